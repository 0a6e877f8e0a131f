//! Limits and timeouts of one Service.

use std::num::NonZeroU32;
use std::time::Duration;

/// Limits of one Service on each gateway; a UDP flow counts as a connection. `None` = only the gateway's own limits apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceLimits {
    /// Concurrent connections, over all ports and addresses.
    pub connections: Option<NonZeroU32>,
    /// New connections a second; the burst is the same number.
    pub connection_rate: Option<NonZeroU32>,
    /// Concurrent connections from one client address.
    pub connections_per_client: Option<NonZeroU32>,
    /// New connections a second from one client address; the burst is the same number.
    pub connection_rate_per_client: Option<NonZeroU32>,
}

impl ServiceLimits {
    /// Whether anything is limited.
    pub fn any(&self) -> bool {
        *self != Self::default()
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
    /// How long one attempt to connect to an endpoint may take.
    pub connect: Option<Duration>,
    /// How old a TCP connection may become; `None` = as old as it likes.
    pub max_age: Option<Duration>,
    /// How long a TCP connection that is too old may wait for a pause.
    pub max_age_grace: Option<Duration>,
}
