//! Balancing: which of a frontend's candidates takes a new connection or flow. One file per algorithm.
//!
//! Pure: no clock, no socket, no task, no log, no hidden random numbers. A balancer knows candidates by their index,
//! weight and hash identity; what it is asked is all in [`PickInput`], so the same input gets the same answer.

pub mod clusters;
pub mod failover;
pub mod hash;
pub mod maglev;
pub mod p2c;
pub mod random;
pub mod round_robin;
pub mod shares;
pub mod weights;

#[cfg(test)]
mod tests;

use sheave_model::Algorithm;

use clusters::Clusters;
use maglev::Maglev;
use p2c::LeastConnections;
use random::Random;
use round_robin::RoundRobin;
use weights::Weights;

/// Tells of a candidate, by index, whether this client's connection already failed there.
pub type Tried<'a> = &'a dyn Fn(usize) -> bool;

/// All that a choice may depend on besides the candidates themselves.
#[derive(Clone, Copy)]
pub struct PickInput<'a> {
    /// Stable hash of the client ([`hash::client`] or [`hash::client_ip`]).
    pub hash: u64,
    /// A fresh random number.
    pub random: u64,
    /// How many choices were made before this one; only round robin looks at it.
    pub turn: usize,
    /// Present connections or flows of a candidate.
    pub load: &'a dyn Fn(usize) -> u32,
    /// Candidates to avoid while another is left; `None` on the first attempt.
    pub tried: Option<Tried<'a>>,
}

/// A balancing algorithm over a fixed, non-empty list of candidates.
pub trait Balance {
    /// The index of the chosen candidate. A tried one only if there is no other, one of weight 0 never.
    fn choose(&self, input: &PickInput<'_>) -> usize;
}

/// The balancer of any algorithm. Not a boxed trait object: a pick on a seldom used frontend is all cache misses, and
/// the box would be one more.
#[derive(Debug)]
pub enum Balancer {
    /// See [`p2c`].
    LeastConnections(LeastConnections),
    /// See [`maglev`].
    Maglev(Maglev),
    /// See [`round_robin`].
    RoundRobin(RoundRobin),
    /// See [`random`].
    Random(Random),
    /// See [`clusters`].
    Clusters(Clusters),
}

impl Balancer {
    /// Makes the balancer for `algorithm` over candidates of which none belong together. `identities` are the candidates' [`hash::endpoint`], in the order of
    /// `weights`.
    pub fn new(algorithm: Algorithm, weights: Weights, identities: Box<[u64]>) -> Self {
        match algorithm {
            Algorithm::LeastConnections => Self::LeastConnections(LeastConnections::new(weights)),
            Algorithm::Maglev => Self::Maglev(Maglev::new(weights, identities)),
            Algorithm::RoundRobin => Self::RoundRobin(RoundRobin::new(weights)),
            Algorithm::Random => Self::Random(Random::new(weights)),
        }
    }
}

impl Balance for Balancer {
    fn choose(&self, input: &PickInput<'_>) -> usize {
        match self {
            Self::LeastConnections(balancer) => balancer.choose(input),
            Self::Maglev(balancer) => balancer.choose(input),
            Self::RoundRobin(balancer) => balancer.choose(input),
            Self::Random(balancer) => balancer.choose(input),
            Self::Clusters(balancer) => balancer.choose(input),
        }
    }
}
