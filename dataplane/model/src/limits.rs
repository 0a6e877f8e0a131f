//! Limits and timeouts of one Service.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

/// Limits of one Service on each gateway; a UDP flow counts as a connection. `None` = only the gateway's own limits apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceLimits {
    /// Concurrent connections, over all ports and addresses.
    pub connections: Option<NonZeroU32>,
    /// New connections a second; the burst is the same number.
    pub connection_rate: Option<NonZeroU32>,
    /// Concurrent connections from one client.
    pub connections_per_client: Option<NonZeroU32>,
    /// New connections a second from one client; the burst is the same number.
    pub connection_rate_per_client: Option<NonZeroU32>,
    /// What counts as one client of IPv6.
    pub client_prefix: Ipv6Prefix,
}

/// How long a prefix the addresses of one IPv6 client have in common: a host may use any address of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Prefix(u8);

impl Ipv6Prefix {
    /// What hosts get at least (RFC 6177, RFC 7421).
    pub const DEFAULT: Self = Self(64);
    /// What is shorter joins whole providers.
    pub const SHORTEST: u8 = 32;
    /// Each address by itself.
    pub const LONGEST: u8 = 128;

    /// A prefix of so many bits; `None` if that is out of bounds.
    pub fn new(bits: u8) -> Option<Self> {
        (Self::SHORTEST..=Self::LONGEST).contains(&bits).then_some(Self(bits))
    }

    /// How many bits it has.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// What stands for the client of this address: IPv4 addresses stand for themselves.
    pub fn client(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => {
                let mask = u128::MAX << (128 - u32::from(self.0));
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }
}

impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ServiceLimits {
    /// Whether anything is limited.
    pub fn any(&self) -> bool {
        self.connections.is_some() || self.connection_rate.is_some() || self.any_per_client()
    }

    /// Whether anything is limited per client.
    pub fn any_per_client(&self) -> bool {
        self.connections_per_client.is_some() || self.connection_rate_per_client.is_some()
    }
}

/// Timeouts of one Service where they differ from those of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceTimeouts {
    /// How long a connection or flow may be idle.
    pub idle: Option<Duration>,
    /// TCP keepalives that peers send count as traffic.
    pub keepalives: bool,
    /// How long one attempt to connect to an endpoint may take.
    pub connect: Option<Duration>,
    /// How old a TCP connection may become; `None` = as old as it likes.
    pub max_age: Option<Duration>,
    /// How long a TCP connection that is too old may wait for a pause.
    pub max_age_grace: Option<Duration>,
    /// How long a TCP connection may go on once its endpoint serves no more; `None` = as long as it likes.
    pub removed_endpoint_grace: Option<Duration>,
}
