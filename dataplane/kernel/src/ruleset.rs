//! Ruleset: the elements and chains that a plan needs in the kernel, and changes of them. `table.rs` has the sets, maps and rules around
//! them.

use std::net::{IpAddr, SocketAddr};

use sheave_model::{FrontendAddr, Protocol};

use crate::forwarding::Method;

/// Address family of a table: there are `ip sheave` and `ip6 sheave`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

/// Chain that chooses an endpoint: there is one for each way to choose and number of slots, and none for a single Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chooser {
    /// How a slot is chosen.
    pub method: Method,
    /// Number of slots; at least 1.
    pub slots: u32,
    /// Number of the first slot: those of the internal route lie behind those of the external one.
    pub offset: u32,
    /// Whether the client's affinity record is looked up first.
    pub sticky: bool,
    /// Whether segments that open no connection are left to the proxy's socket. A random choice always does that.
    pub guarded: bool,
}

/// Decision of the kernel about the first packet of a connection or flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Chooses an endpoint.
    Choose(Chooser),
    /// Refuses it with a TCP reset or ICMP port unreachable.
    Refuse,
    /// Drops it.
    Discard,
    /// Leaves it to the socket at this address.
    Accept,
}

/// Chain whose number of users varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chain {
    /// Chooses an endpoint.
    Choose(Chooser),
    /// Writes affinity records that last this many seconds.
    Learn(u32),
}

/// Element of a set or map, in the table of its address's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// `service`: what happens to the connections of a frontend.
    Service(FrontendAddr, Action),
    /// `service_internal`: the same for clients inside the cluster, of frontends that treat them differently.
    ServiceInternal(FrontendAddr, Action),
    /// `slot`: the endpoint of one slot of a frontend.
    Slot(FrontendAddr, u32, SocketAddr),
    /// `endpoint`: an endpoint that may be used by connections of a frontend. Its counter counts connections.
    Endpoint(FrontendAddr, SocketAddr),
    /// `external_only`: an endpoint that clients inside the cluster do not get, of a frontend with affinity.
    ExternalOnly(FrontendAddr, SocketAddr),
    /// `internal_only`: the same for clients outside the cluster.
    InternalOnly(FrontendAddr, SocketAddr),
    /// `learn`: for how many seconds a frontend's affinity records last.
    Learn(FrontendAddr, u32),
    /// `address`: an address with a frontend of the kernel path.
    Address(IpAddr),
    /// `internal`: an interval of clients inside the cluster, first and last included.
    Internal(IpAddr, IpAddr),
    /// `machine`: an address of the machine, where ports without a frontend belong to other programs.
    Machine(IpAddr),
    /// `masqueraded`: a frontend whose endpoints see the gateway's address.
    Masqueraded(FrontendAddr),
    /// `masqueraded_internal`: a frontend whose endpoints see the gateway's address in place of clients inside the cluster.
    MasqueradedInternal(FrontendAddr),
    /// `ranged`: a frontend that not every client may use.
    Ranged(FrontendAddr),
    /// `admitted`: an interval of clients that may use a frontend, first and last included.
    Admitted(FrontendAddr, IpAddr, IpAddr),
    /// `endpoint_port`: an endpoint of any frontend.
    EndpointPort(Protocol, SocketAddr),
}

/// Changes that turn one ruleset into another. They take effect together, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Chains that are not there yet, with their families.
    pub new_chains: Vec<(Family, Chain)>,
    /// Elements that leave. One whose key stays with another value is here and in `added`.
    pub removed: Vec<Element>,
    /// Elements that come.
    pub added: Vec<Element>,
    /// Chains that nothing uses any more.
    pub old_chains: Vec<(Family, Chain)>,
}

impl Element {
    /// The frontend that alone has the element; `None` if several may share it.
    pub fn frontend(&self) -> Option<FrontendAddr> {
        self.owner().ok()
    }

    /// The family of the table that has the element.
    pub fn family(&self) -> Family {
        Family::of(self.owner().map_or_else(|shared| shared, |frontend| frontend.ip))
    }

    /// The frontend that alone has the element, or the address that several may share.
    fn owner(&self) -> Result<FrontendAddr, IpAddr> {
        match *self {
            Self::Service(frontend, _)
            | Self::ServiceInternal(frontend, _)
            | Self::Slot(frontend, ..)
            | Self::Endpoint(frontend, _)
            | Self::ExternalOnly(frontend, _)
            | Self::InternalOnly(frontend, _)
            | Self::Learn(frontend, _)
            | Self::Masqueraded(frontend)
            | Self::MasqueradedInternal(frontend)
            | Self::Ranged(frontend)
            | Self::Admitted(frontend, ..) => Ok(frontend),
            Self::Address(ip) | Self::Internal(ip, _) | Self::Machine(ip) => Err(ip),
            Self::EndpointPort(_, endpoint) => Err(endpoint.ip()),
        }
    }
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}
