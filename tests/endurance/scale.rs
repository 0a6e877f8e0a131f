//! How much load there is: little beside the other tests, much in `tests/soak`.

use crate::support::length::by_length;

/// How much of each kind of load there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    /// New connections in a second, whatever becomes of those before.
    pub(crate) connections_per_second: f64,
    /// Connections that stay and talk.
    pub(crate) long_lived: usize,
    /// UDP flows that ask.
    pub(crate) flows: usize,
    /// Clients with an address of their own, which connect again and again.
    pub(crate) affinity_clients: u16,
}

impl Amount {
    /// All of it.
    pub(crate) fn full() -> Self {
        by_length(
            Self { connections_per_second: 100.0, long_lived: 20, flows: 40, affinity_clients: 16 },
            Self { connections_per_second: 2000.0, long_lived: 500, flows: 1000, affinity_clients: 200 },
        )
    }
}
