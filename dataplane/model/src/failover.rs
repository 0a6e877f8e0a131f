//! Failover: how traffic is spread over the clusters of a frontend, and when it spills over to the next tier.

/// Rules for spreading traffic over the backends of one frontend.
///
/// Backends of equal priority form one tier. A tier takes as much traffic as its health times the overprovisioning factor
/// allows; the rest spills over to the next tier (the model of Envoy's priority levels).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failover {
    /// How traffic is shared inside a tier.
    pub spread: Spread,
    /// Overprovisioning factor in percent, at least 100: with 140 a tier carries all of its traffic while 1/1.4 = 72 % of
    /// it is healthy.
    pub overprovisioning: u16,
}

/// How a backend's share of its tier is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Weight times the number of eligible endpoints: with equal weights every endpoint gets the same.
    Endpoints,
    /// Weight alone, regardless of the number of endpoints.
    Backends,
}
