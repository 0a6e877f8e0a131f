//! Values that one process hands to another that takes over from it: sockets with their queues, flows, affinity and health records.
//! They describe each descriptor; the transport between the processes is defined elsewhere.
//!
//! Both processes hold the same sockets (unix(7), SCM_RIGHTS), so nothing is closed or bound again, and clients notice nothing. Only
//! one process may read them: workers are [held](crate::Options::held) until the other process has left.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sheave_model::{ClientSource, EndpointAddr, FrontendAddr, FrontendSource};

/// A socket that is handed over.
#[derive(Debug)]
pub struct HandedSocket {
    /// Role of the socket.
    pub role: SocketRole,
    /// The socket.
    pub fd: OwnedFd,
}

/// Role of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SocketRole {
    /// A frontend's own socket.
    Frontend {
        /// Address that it is bound to.
        #[serde(flatten)]
        addr: FrontendAddr,
        /// Index of the worker that reads it.
        worker: usize,
    },
    /// A socket that receives packets of steered frontends. Its address determines its kind.
    Steering {
        /// Address that it is bound to.
        #[serde(flatten)]
        addr: FrontendAddr,
        /// Index of the worker that reads it.
        worker: usize,
    },
}

/// A UDP flow that is handed over.
#[derive(Debug)]
pub struct HandedFlow {
    /// State of the flow.
    pub record: FlowRecord,
    /// The flow's socket, connected to the endpoint.
    pub fd: OwnedFd,
}

/// State of a UDP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowRecord {
    /// Frontend that the client sends to.
    pub frontend: SocketAddr,
    /// Address of the client.
    pub client: SocketAddr,
    /// Endpoint of the flow.
    pub endpoint: EndpointAddr,
    /// Client source that the endpoint sees.
    pub source: ClientSource,
    /// Time since the last datagram.
    pub quiet_millis: u64,
    /// Whether the endpoint has ever answered.
    pub answered: bool,
    /// Whether the endpoint was reported unreachable since.
    #[serde(default)]
    pub suspect: bool,
    /// Local port, if it is a shared one.
    pub port: Option<u16>,
}

/// A session affinity record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityRecord {
    /// Affinity scope, whose hash is the same in every version.
    pub scope: u64,
    /// Address of the client.
    pub client: IpAddr,
    /// Endpoint of the client.
    pub endpoint: EndpointAddr,
    /// Time since the last use.
    pub quiet_millis: u64,
    /// Timeout at the last use.
    pub timeout_millis: u64,
}

/// Health of an endpoint that differs from a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthRecord {
    /// Namespace of the Service that judges the endpoint.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Name of the Service port.
    pub port: String,
    /// Whether it is a MultiClusterService rather than a Service.
    #[serde(default)]
    pub of_fleet: bool,
    /// Whether it is a Gateway rather than a Service.
    #[serde(default)]
    pub of_gateway: bool,
    /// Another object whose settings count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_of: Option<String>,
    /// Whether the port is for UDP rather than TCP.
    pub udp: bool,
    /// The endpoint.
    pub endpoint: EndpointAddr,
    /// Verdict, if new traffic avoids the endpoint.
    pub unhealthy: Option<HandedVerdict>,
    /// Failures of its connections, if there were any.
    pub failures: Option<FailureRecord>,
    /// Time since its share began to grow, if it grows.
    pub growing_millis: Option<u64>,
}

/// Verdict that an endpoint is unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedVerdict {
    /// Text of the error.
    pub why: String,
    /// Time since it became unhealthy.
    pub for_millis: u64,
}

/// Failure record of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRecord {
    /// Number of consecutive failures.
    pub failures: u8,
    /// Number of ejections that are not forgiven.
    pub ejections: u32,
    /// Duration of the last ejection.
    pub penalty_millis: u64,
    /// Current phase.
    pub phase: HandedPhase,
    /// Whether the last failure was a missing answer.
    #[serde(default)]
    pub silent: bool,
}

/// Phase of an endpoint's failure record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HandedPhase {
    /// In use.
    Used {
        /// Time since its last failure or return.
        for_millis: u64,
        /// Whether one failure ejects it again.
        trial: bool,
    },
    /// Ejected.
    Ejected {
        /// Remaining time of the ejection.
        for_millis: u64,
    },
}

/// Number of connections and flows of a Service with limits in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionCount {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Whether it is a MultiClusterService rather than a Service.
    #[serde(default)]
    pub of_fleet: bool,
    /// Whether it is a Gateway rather than a Service.
    #[serde(default)]
    pub of_gateway: bool,
    /// Another object whose settings count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_of: Option<String>,
    /// Number of open connections and flows.
    pub open: u32,
}

/// The kind of object that `of_fleet` and `of_gateway` stand for.
pub(crate) fn source(of_fleet: bool, of_gateway: bool) -> FrontendSource {
    match (of_fleet, of_gateway) {
        (_, true) => FrontendSource::Gateway,
        (true, false) => FrontendSource::MultiClusterService,
        (false, false) => FrontendSource::Service,
    }
}

/// Milliseconds from `then` to `now`.
pub(crate) fn millis_since(then: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX)
}

/// The time `millis` before `now`; `now` itself if that is before this machine's clock began.
pub(crate) fn before(now: Instant, millis: u64) -> Instant {
    now.checked_sub(Duration::from_millis(millis)).unwrap_or(now)
}
