//! What a Service may take of a gateway, and how long its traffic may be silent.

use std::num::NonZeroU32;
use std::time::Duration;

/// Limits of one Service on each gateway; a UDP flow counts as a connection. `None` = no limit but what the gateway has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceLimits {
    /// Open at a time, over all ports and addresses.
    pub connections: Option<NonZeroU32>,
    /// New ones a second; as many may come at once.
    pub connection_rate: Option<NonZeroU32>,
    /// Open at a time from one client address.
    pub connections_per_client: Option<NonZeroU32>,
    /// New ones a second from one client address; as many may come at once.
    pub connection_rate_per_client: Option<NonZeroU32>,
}

impl ServiceLimits {
    /// Whether anything is limited.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether anything is limited for each client by itself.
    pub fn any_per_client(&self) -> bool {
        self.connections_per_client.is_some() || self.connection_rate_per_client.is_some()
    }
}

/// Timeouts of one Service where they differ from those of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceTimeouts {
    /// How long a connection or flow may be idle.
    pub idle: Option<Duration>,
    /// How long one attempt to connect an endpoint may take.
    pub connect: Option<Duration>,
}
