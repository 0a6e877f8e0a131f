//! Amount of load: small next to other tests, large in `tests/soak`.

use crate::support::length::by_length;

/// Amount of each kind of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    /// New connections per second, regardless of earlier ones.
    pub(crate) connections_per_second: f64,
    /// Number of long-lived connections.
    pub(crate) long_lived: usize,
    /// Number of UDP flows.
    pub(crate) flows: usize,
    /// Clients with an address each, which connect repeatedly.
    pub(crate) affinity_clients: u16,
}

impl Amount {
    /// Full load.
    pub(crate) fn full() -> Self {
        by_length(
            Self { connections_per_second: 100.0, long_lived: 20, flows: 40, affinity_clients: 16 },
            Self { connections_per_second: 2000.0, long_lived: 500, flows: 1000, affinity_clients: 200 },
        )
    }
}
