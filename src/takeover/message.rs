//! What the two processes say. JSON, so that a version reads what it knows of what another one says.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sheave_dataplane::handover::{
    AffinityRecord, ConnectionCount, FlowRecord, HandedFrontend, HealthRecord, SocketRole,
};

/// One message. The descriptors that come with it are those of its list, in the same order.
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
        frontends: Vec<HandedFrontend>,
    },
    /// Those by which paths lead to clusters.
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
        /// What the announcer of addresses goes on with; none where nothing is announced.
        #[serde(default)]
        announcing: Option<HandedAnnouncing>,
        /// The interfaces from which a routing daemon announces addresses; none where none does.
        #[serde(default)]
        interfaces: Vec<String>,
    },
    Serving,
    Connections {
        counts: Vec<ConnectionCount>,
    },
    HandedOver,
    /// Of a later version, which does without an answer.
    #[serde(other)]
    Unknown,
}

/// What an announcer goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandedAnnouncing {
    /// It may own addresses.
    pub(crate) eligible: bool,
    /// For how long other gateways surely take it for alive.
    pub(crate) lease_microseconds: u64,
    /// How long it has to be heard before it owns addresses again.
    pub(crate) hold_down_microseconds: u64,
}

/// Who wants to take over.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hello {
    pub(super) protocol: u32,
    pub(super) version: String,
    #[serde(flatten)]
    pub(super) place: ServingPlace,
    /// The Pod, if it is in one: its container may be started again after it has handed over.
    #[serde(default)]
    pub(super) pod: Option<String>,
    /// Whether it keeps the connection for as long as it serves.
    #[serde(default)]
    pub(super) stays: bool,
}

/// What two processes have in common of which one can take over from the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServingPlace {
    /// The node's name.
    pub(crate) node: String,
    /// The class of the Services that it serves.
    pub(crate) class: String,
    /// The network namespace, to which sockets belong (namespaces(7)).
    pub(crate) network: String,
}

/// What the successor is started with. Its descriptors are the token, the sockets of `servers`, and the claim on local ports.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Welcome {
    pub(super) version: String,
    #[serde(default)]
    pub(super) pod: Option<String>,
    /// As many as have sockets and flows.
    pub(super) workers: usize,
    /// Where HTTP servers listen.
    pub(super) servers: Vec<SocketAddr>,
    /// Whether the last descriptor is the claim on the local ports of UDP flows.
    #[serde(default)]
    pub(super) local_ports: bool,
    /// Whether it is started again, and takes over in its turn, if its successor ends before it is told to end itself.
    #[serde(default)]
    pub(super) returns: bool,
}
