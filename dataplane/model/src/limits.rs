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
    /// Prefix by which IPv6 addresses count as one client.
    pub client_prefix: Ipv6Prefix,
}

/// Prefix length that the addresses of one IPv6 client share: a host may use any address of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Prefix(u8);

impl Ipv6Prefix {
    /// /64, the smallest network that hosts are assigned (RFC 6177, RFC 7421).
    pub const DEFAULT: Self = Self(64);
    /// Shortest prefix: a shorter one would join the customers of whole providers.
    pub const SHORTEST: u8 = 32;
    /// Longest prefix: every address is a client of its own.
    pub const LONGEST: u8 = 128;

    /// A prefix of `bits` bits; `None` if that is out of bounds.
    pub fn new(bits: u8) -> Option<Self> {
        (Self::SHORTEST..=Self::LONGEST).contains(&bits).then_some(Self(bits))
    }

    /// Length of the prefix in bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The address that identifies the client: an IPv6 address is masked to the prefix, an IPv4 address stays as it is.
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
    /// Idle timeout of a connection or flow.
    pub idle: Option<Duration>,
    /// Whether TCP keepalives that peers send count as traffic.
    pub keepalives: bool,
    /// Timeout of one attempt to connect to an endpoint.
    pub connect: Option<Duration>,
    /// Maximum age of a TCP connection; `None` = unlimited.
    pub max_age: Option<Duration>,
    /// How long a TCP connection past its maximum age may wait for a pause in its traffic.
    pub max_age_grace: Option<Duration>,
    /// How long a TCP connection may continue after its endpoint stopped serving; `None` = without limit.
    pub removed_endpoint_grace: Option<Duration>,
}
