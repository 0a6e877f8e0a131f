//! Balancing: which of a frontend's candidates takes a new connection or flow. One file per algorithm.
//!
//! Pure: no clock, socket, task, log or hidden random numbers. A balancer knows candidates by index, weight and hash
//! identity; everything else is in [`PickInput`], so the same input gives the same choice.

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

/// Whether this client's connection already failed at the candidate with this index.
pub type Tried<'a> = &'a dyn Fn(usize) -> bool;

/// Everything a choice may depend on besides the candidates.
#[derive(Clone, Copy)]
pub struct PickInput<'a> {
    /// Stable hash of the client ([`hash::client`] or [`hash::client_ip`]).
    pub hash: u64,
    /// A fresh random number.
    pub random: u64,
    /// How many choices were made before; only round robin uses it.
    pub turn: usize,
    /// Open connections or flows of a candidate.
    pub load: &'a dyn Fn(usize) -> u32,
    /// Candidates to avoid while another is left; `None` on the first attempt.
    pub tried: Option<Tried<'a>>,
}

/// A balancing algorithm over a fixed, non-empty list of candidates.
pub trait Balance {
    /// The index of the chosen candidate: a tried one only if there is no other, never one of weight 0.
    fn choose(&self, input: &PickInput<'_>) -> usize;
}

/// The balancer of any algorithm. Not a boxed trait object: a pick on a rarely used frontend consists of cache misses, and
/// the box would add one.
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
    /// The balancer of `algorithm`, without clusters. `identities` are the candidates' [`hash::endpoint`], in the order of
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
