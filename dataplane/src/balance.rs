//! Load balancing: the choice of a frontend's candidate for a new connection or flow. One file per algorithm.
//!
//! Balancers have no clock, socket, task, log or hidden random numbers. They identify candidates by index, weight and hash
//! identity; everything else is in [`PickInput`], so the same input results in the same choice.

pub mod clusters;
pub mod failover;
pub mod hash;
pub mod maglev;
pub mod p2c;
pub mod random;
pub mod rendezvous;
pub mod round_robin;
pub mod shares;
pub mod weights;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use sheave_model::Algorithm;

use clusters::{ClusterSpec, Clusters, Inside};
use maglev::Maglev;
use rendezvous::{MOST_CANDIDATES, Rendezvous, Run, runs};
use round_robin::RoundRobin;
use weights::Weights;

/// Predicate: whether this client's connection has failed at the candidate with this index.
pub type Tried<'a> = &'a dyn Fn(usize) -> bool;

/// Inputs of a choice besides the candidates.
#[derive(Clone, Copy)]
pub struct PickInput<'a> {
    /// Stable hash of the client ([`hash::client`] or [`hash::client_ip`]).
    pub hash: u64,
    /// A fresh random number.
    pub random: u64,
    /// Number of earlier choices; only used by round robin.
    pub turn: usize,
    /// Number of open connections or flows of a candidate.
    pub load: &'a dyn Fn(usize) -> u32,
    /// Candidates to avoid while there is another; `None` on the first attempt.
    pub tried: Option<Tried<'a>>,
}

/// A balancing algorithm over a fixed, non-empty list of candidates.
#[derive(Debug)]
pub struct Balancer {
    weights: Weights,
    method: Method,
}

/// Method of choosing. Not a boxed trait object: a pick on a rarely used frontend consists of cache misses, and the box
/// would add one.
#[derive(Debug)]
enum Method {
    LeastConnections,
    Random,
    RoundRobin(RoundRobin),
    /// The identities of the candidates, and their [`runs`].
    Rendezvous(Box<[u64]>, Box<[Run]>),
    Maglev(Arc<Maglev>),
    Clusters(Clusters),
}

impl Balancer {
    /// The balancer of `algorithm`, without clusters. `identities` are the candidates' [`hash::endpoint`], in the order of
    /// `weights`. Reuses a table of `known` that has the same candidates.
    pub fn new(
        algorithm: Algorithm,
        weights: Weights,
        identities: impl Iterator<Item = u64>,
        known: &[Arc<Maglev>],
    ) -> Self {
        let method = match algorithm {
            Algorithm::LeastConnections => Method::LeastConnections,
            Algorithm::Random => Method::Random,
            Algorithm::RoundRobin => Method::RoundRobin(RoundRobin::new(&weights)),
            Algorithm::Maglev if weights.len() > MOST_CANDIDATES => {
                Method::Maglev(Maglev::new_or_known(&weights, identities.collect(), known))
            }
            Algorithm::Maglev => Method::Rendezvous(identities.collect(), runs(&weights)),
        };
        Self { weights, method }
    }

    /// A balancer that chooses a cluster first. `weights` are the candidates' overall shares.
    pub fn of_clusters(
        inside: Inside,
        weights: Weights,
        clusters: Vec<ClusterSpec>,
        known: &[Arc<Maglev>],
    ) -> Self {
        Self { weights, method: Method::Clusters(Clusters::new(inside, clusters, known)) }
    }

    /// The share of each candidate.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The Maglev tables in use.
    pub fn maglevs(&self) -> Vec<Arc<Maglev>> {
        match &self.method {
            Method::Maglev(maglev) => vec![Arc::clone(maglev)],
            Method::Clusters(clusters) => clusters.maglevs().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether choices use the turn.
    pub fn takes_turns(&self) -> bool {
        matches!(self.method, Method::RoundRobin(_))
    }

    /// The index of the chosen candidate. Never one of weight 0, and a tried one only if there is no other.
    pub fn choose(&self, input: &PickInput<'_>) -> usize {
        match &self.method {
            Method::LeastConnections => p2c::choose(&self.weights, input),
            Method::Random => random::choose(&self.weights, input),
            Method::RoundRobin(balancer) => balancer.choose(input),
            Method::Rendezvous(identities, runs) => Rendezvous { identities, runs }.choose(input),
            Method::Maglev(maglev) => maglev.choose(input),
            Method::Clusters(clusters) => clusters.choose(input),
        }
    }
}
