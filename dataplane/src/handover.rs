//! What one process hands to another that takes over from it: sockets with whatever waits in them, flows, and affinity records. The
//! values say what each descriptor is; how they get from one process to the other is not decided here.
//!
//! Both processes hold the same sockets (unix(7), SCM_RIGHTS), so nothing is closed or bound anew, and a client cannot tell. Only one
//! of them may read them: workers are [held](crate::Options::held) until the other has let go.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sheave_model::{ClientSource, EndpointAddr, FrontendAddr, FrontendSource, Path, Protocol};

/// A socket that others are given.
#[derive(Debug)]
pub struct HandedSocket {
    /// What it is.
    pub role: SocketRole,
    /// The socket.
    pub fd: OwnedFd,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SocketRole {
    /// A frontend's own, of the worker of this index.
    Frontend {
        /// Where it is bound.
        addr: SocketAddr,
        /// UDP, or else TCP.
        udp: bool,
        /// Whose it is.
        worker: usize,
    },
    /// One that packets of steered frontends arrive on, of the worker of this index. The kind follows from its own address.
    Steering {
        /// Where it is bound.
        addr: SocketAddr,
        /// UDP, or else TCP.
        udp: bool,
        /// Whose it is.
        worker: usize,
    },
}

/// An address with its protocol, as another process is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedFrontend {
    /// Where clients connect to.
    pub addr: SocketAddr,
    /// UDP, or else TCP.
    pub udp: bool,
}

impl From<FrontendAddr> for HandedFrontend {
    fn from(addr: FrontendAddr) -> Self {
        Self { addr: addr.socket_addr(), udp: addr.protocol == Protocol::Udp }
    }
}

impl From<HandedFrontend> for FrontendAddr {
    fn from(HandedFrontend { addr, udp }: HandedFrontend) -> Self {
        let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
        Self { ip: addr.ip(), port: addr.port(), protocol }
    }
}

/// A UDP flow.
#[derive(Debug)]
pub struct HandedFlow {
    /// What is known of it.
    pub record: FlowRecord,
    /// Its socket, connected to the endpoint.
    pub fd: OwnedFd,
}

/// What is known of a UDP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowRecord {
    /// The frontend that the client addresses.
    pub frontend: SocketAddr,
    /// The client.
    pub client: SocketAddr,
    /// The endpoint that answers.
    pub endpoint: HandedEndpoint,
    /// What the endpoint sees of the client.
    pub source: HandedSource,
    /// For how long nothing has passed.
    pub quiet_millis: u64,
    /// Whether the endpoint has ever answered.
    pub answered: bool,
    /// Its endpoint was reported unreachable since.
    #[serde(default)]
    pub suspect: bool,
    /// The local port, if it is one of those that flows share.
    pub port: Option<u16>,
}

/// An endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedEndpoint {
    /// Where it serves.
    pub addr: SocketAddr,
    /// By which path it is reached, as the process numbers them that hands over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub path: u16,
}

fn is_default(path: &u16) -> bool {
    *path == Path::DEFAULT.0
}

impl From<EndpointAddr> for HandedEndpoint {
    fn from(endpoint: EndpointAddr) -> Self {
        Self { addr: endpoint.socket_addr(), path: endpoint.path.0 }
    }
}

impl From<HandedEndpoint> for EndpointAddr {
    fn from(HandedEndpoint { addr, path }: HandedEndpoint) -> Self {
        Self { ip: addr.ip(), port: addr.port(), path: Path(path) }
    }
}

/// What an endpoint sees of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HandedSource {
    /// Nothing: the gateway's address.
    Gateway,
    /// Its address.
    Transparent,
    /// A PROXY protocol header.
    ProxyV1,
    /// The same, in binary.
    ProxyV2,
}

impl From<ClientSource> for HandedSource {
    fn from(source: ClientSource) -> Self {
        match source {
            ClientSource::Gateway => Self::Gateway,
            ClientSource::Transparent => Self::Transparent,
            ClientSource::ProxyV1 => Self::ProxyV1,
            ClientSource::ProxyV2 => Self::ProxyV2,
        }
    }
}

impl From<HandedSource> for ClientSource {
    fn from(source: HandedSource) -> Self {
        match source {
            HandedSource::Gateway => Self::Gateway,
            HandedSource::Transparent => Self::Transparent,
            HandedSource::ProxyV1 => Self::ProxyV1,
            HandedSource::ProxyV2 => Self::ProxyV2,
        }
    }
}

/// A session affinity record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityRecord {
    /// The Service port, as every version hashes it.
    pub scope: u64,
    /// The client.
    pub client: IpAddr,
    /// Where it goes.
    pub endpoint: HandedEndpoint,
    /// How long ago it was last used.
    pub quiet_millis: u64,
    /// How long it was to last then.
    pub timeout_millis: u64,
}

/// An endpoint that is not as good as a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthRecord {
    /// Of the Service that judges it.
    pub namespace: String,
    /// The Service.
    pub name: String,
    /// The Service port's name.
    pub port: String,
    /// It is of several clusters: a MultiClusterService, or else a Service.
    #[serde(default)]
    pub of_fleet: bool,
    /// Of UDP, or else TCP.
    pub udp: bool,
    /// Where it serves.
    pub endpoint: HandedEndpoint,
    /// Set if new traffic avoids it.
    pub unhealthy: Option<HandedVerdict>,
    /// Its connections that failed, if any did.
    pub failures: Option<FailureRecord>,
    /// How long ago its share began to grow, if it grows.
    pub growing_millis: Option<u64>,
}

/// That an endpoint is unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandedVerdict {
    /// The error, for people.
    pub why: String,
    /// Since when.
    pub for_millis: u64,
}

/// What is known of an endpoint from connections that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRecord {
    /// Consecutive ones.
    pub failures: u8,
    /// Ejections that are not forgiven.
    pub ejections: u32,
    /// The length of the last one.
    pub penalty_millis: u64,
    /// What has come of them.
    pub phase: HandedPhase,
    /// The last one was that it did not answer.
    #[serde(default)]
    pub silent: bool,
}

/// Whether an endpoint is ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HandedPhase {
    /// It is used.
    Used {
        /// Since when.
        for_millis: u64,
        /// One failure ejects it again.
        trial: bool,
    },
    /// It is not.
    Ejected {
        /// For so long from now on.
        for_millis: u64,
    },
}

/// How many connections and flows a Service with limits has in a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionCount {
    /// Of the Service.
    pub namespace: String,
    /// The Service.
    pub name: String,
    /// It is of several clusters: a MultiClusterService, or else a Service.
    #[serde(default)]
    pub of_fleet: bool,
    /// So many.
    pub open: u32,
}

/// Whose a record is, by its `of_fleet`.
pub(crate) fn source(of_fleet: bool) -> FrontendSource {
    if of_fleet { FrontendSource::MultiClusterService } else { FrontendSource::Service }
}

/// How long ago `then` was.
pub(crate) fn millis_since(then: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX)
}

/// So long before `now`; `now`, if that is before this machine's clock began.
pub(crate) fn before(now: Instant, millis: u64) -> Instant {
    now.checked_sub(Duration::from_millis(millis)).unwrap_or(now)
}
