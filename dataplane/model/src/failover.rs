//! How traffic is spread over the clusters of a frontend, and when it fails over to the next.

/// The rules between the backends of one frontend.
///
/// Backends of equal priority form one tier. A tier takes as much traffic as its health times the overprovisioning factor
/// allows; the rest spills over to the next tier (the model of Envoy's priority levels).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failover {
    /// What determines the shares inside a tier.
    pub spread: Spread,
    /// In percent, at least 100: with 140 a tier carries all of its traffic while 1/1.4 = 72 % of it is healthy.
    pub overprovisioning: u16,
}

/// What determines the share of a backend inside its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Weight times the number of eligible endpoints: with equal weights every endpoint gets the same.
    Endpoints,
    /// Weight alone, however many endpoints there are.
    Backends,
}
