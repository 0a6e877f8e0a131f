//! Messages between the two processes. JSON, so that a version reads the fields it knows of another version's messages.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sheave_dataplane::handover::{AffinityRecord, ConnectionCount, FlowRecord, HealthRecord, SocketRole};
use sheave_model::FrontendAddr;

/// A message. Its descriptors are those of its list, in the same order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Refused {
        why: String,
    },
    Begin,
    Sockets {
        roles: Vec<SocketRole>,
    },
    NodePorts {
        addresses: Vec<SocketAddr>,
    },
    Steered {
        frontends: Vec<FrontendAddr>,
    },
    /// Interfaces on the paths to clusters.
    Interfaces {
        names: Vec<String>,
    },
    Affinity {
        records: Vec<AffinityRecord>,
    },
    Health {
        records: Vec<HealthRecord>,
    },
    Listening,
    Prepared,
    Flows {
        worker: usize,
        records: Vec<FlowRecord>,
    },
    Offer {
        /// State of the announcer; `None` if nothing is announced.
        #[serde(default)]
        announcing: Option<HandedAnnouncing>,
        /// Interfaces whose addresses a routing daemon announces; empty without a daemon.
        #[serde(default)]
        interfaces: Vec<String>,
    },
    Serving,
    Connections {
        counts: Vec<ConnectionCount>,
    },
    HandedOver,
    /// Message of a later version, which expects no answer.
    #[serde(other)]
    Unknown,
}

/// State that the next announcer continues with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandedAnnouncing {
    /// Whether it may own addresses.
    pub(crate) eligible: bool,
    /// How long other gateways are certain to count it as alive.
    pub(crate) lease_microseconds: u64,
    /// How long it must send heartbeats before it may own addresses again.
    pub(crate) hold_down_microseconds: u64,
    /// Longest silence after which others may believe it dead.
    #[serde(default)]
    pub(crate) fail_after_microseconds: u64,
    /// That silence in its last heartbeat; without it the same.
    #[serde(default)]
    pub(crate) promised_microseconds: Option<u64>,
}

/// Introduction of a successor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) version: String,
    #[serde(flatten)]
    pub(super) place: ServingPlace,
    /// Its Pod, if any. The container may be restarted after it has handed over.
    #[serde(default)]
    pub(super) pod: Option<String>,
    /// Whether it keeps the connection for as long as it serves.
    #[serde(default)]
    pub(super) stays: bool,
}

/// Properties that two processes must share for one to take over from the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServingPlace {
    /// Name of the node.
    pub(crate) node: String,
    /// Class of the Services that it serves.
    pub(crate) class: String,
    /// Network namespace, to which sockets belong (namespaces(7)).
    pub(crate) network: String,
}

/// State that the successor starts with. Its descriptors are the token, the sockets of `servers`, and the claim on local
/// ports.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Welcome {
    pub(super) version: String,
    #[serde(default)]
    pub(super) pod: Option<String>,
    /// Number of workers that have sockets and flows.
    pub(super) workers: usize,
    /// Addresses of HTTP servers.
    pub(super) servers: Vec<SocketAddr>,
    /// Whether the last descriptor is the claim on the local ports of UDP flows.
    #[serde(default)]
    pub(super) local_ports: bool,
    /// Whether the predecessor is restarted and takes over again, if its successor ends first.
    #[serde(default)]
    pub(super) returns: bool,
}
