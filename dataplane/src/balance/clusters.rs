//! Balancing in two steps: first a cluster by its load, then an endpoint inside it.
//!
//! With [`Inside::Maglev`] both steps are consistent: the client's hash chooses the cluster. Endpoints that are added or
//! removed in one cluster move no client of another, and a client whose endpoint is gone stays in its cluster while that takes
//! traffic. With [`Inside::LeastConnections`] the cluster is random, and connections are compared only within a cluster;
//! otherwise long connections in one cluster would push more traffic to the others than their loads allow.
//!
//! [Rendezvous hashing](super::rendezvous) chooses the cluster: if its load falls, only its own clients move, and if it rises,
//! clients only move to it.

use std::ops::Range;
use std::sync::Arc;

use super::hash::mix;
use super::maglev::Maglev;
use super::rendezvous::{self, MOST_CANDIDATES, Rendezvous, Run};
use super::weights::Weights;
use super::{PickInput, Tried, p2c};

/// Number of failures in one cluster from which the cluster is to blame rather than its endpoints.
pub const SUSPICIOUS: usize = 2;

/// A cluster and its candidates.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// The cluster's [`hash::cluster`](super::hash::cluster).
    pub identity: u64,
    /// Share among the clusters; not 0.
    pub load: u64,
    /// Candidates in the cluster; not empty.
    pub members: Vec<ClusterMember>,
}

/// Choice of an endpoint inside its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Hash of the client.
    Maglev,
    /// The less loaded of two random candidates.
    LeastConnections,
}

/// A candidate of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterMember {
    /// Index among all candidates.
    pub index: u32,
    /// The endpoint's [`hash::endpoint`](super::hash::endpoint).
    pub identity: u64,
    /// Share inside the cluster.
    pub weight: u32,
}

/// Balancer over clusters and their candidates.
#[derive(Debug)]
pub struct Clusters {
    inside: Inside,
    /// Separate from `inner`, which has the same order, because every choice reads all identities.
    identities: Box<[u64]>,
    runs: Box<[Run]>,
    inner: Box<[InnerCluster]>,
    /// The candidates of all clusters, cluster by cluster.
    member_identities: Box<[u64]>,
    member_indices: Box<[u32]>,
}

#[derive(Debug)]
struct InnerCluster {
    /// Index of its first candidate.
    start: u32,
    weights: Weights,
    runs: Box<[Run]>,
    /// Maglev table, if there are many candidates.
    maglev: Option<Arc<Maglev>>,
}

impl InnerCluster {
    fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.weights.len()
    }
}

impl Clusters {
    /// Creates a balancer over `clusters`; reuses the tables of `known` for clusters with the same candidates.
    pub fn new(inside: Inside, mut clusters: Vec<ClusterSpec>, known: &[Arc<Maglev>]) -> Self {
        // Sorted, so that equal weights form long runs.
        clusters.sort_by_key(|cluster| cluster.load);
        clusters.iter_mut().for_each(|cluster| cluster.members.sort_by_key(|member| member.weight));
        let cluster = |start: &mut u32, ClusterSpec { members, .. }: &ClusterSpec| {
            let weights = Weights::new(members.iter().map(|member| member.weight.into()))?;
            let many = inside == Inside::Maglev && members.len() > MOST_CANDIDATES;
            let identities = || members.iter().map(|member| member.identity).collect();
            let maglev = many.then(|| Maglev::new_or_known(&weights, identities(), known));
            *start += members.len() as u32;
            let runs = rendezvous::runs(&weights);
            Some(InnerCluster { start: *start - members.len() as u32, weights, runs, maglev })
        };
        let members = || clusters.iter().flat_map(|cluster| &cluster.members);
        let loads = Weights::new(clusters.iter().map(|cluster| cluster.load));
        Self {
            inside,
            identities: clusters.iter().map(|cluster| cluster.identity).collect(),
            runs: loads.as_ref().map(rendezvous::runs).unwrap_or_default(),
            inner: clusters.iter().scan(0, cluster).collect(),
            member_identities: members().map(|member| member.identity).collect(),
            member_indices: members().map(|member| member.index).collect(),
        }
    }

    /// The Maglev tables of the clusters.
    pub fn maglevs(&self) -> impl Iterator<Item = &Arc<Maglev>> {
        self.inner.iter().filter_map(|cluster| cluster.maglev.as_ref())
    }

    /// Indices of a cluster's candidates among all candidates.
    fn indices(&self, cluster: &InnerCluster) -> &[u32] {
        self.member_indices.get(cluster.range()).unwrap_or_default()
    }

    fn tried(&self, cluster: &InnerCluster, tried: Tried<'_>) -> usize {
        self.indices(cluster).iter().filter(|&&index| tried(index as usize)).count()
    }

    /// The client's cluster among those that `keep` accepts.
    fn first(&self, client: u64, keep: impl Fn(&InnerCluster) -> bool) -> Option<&InnerCluster> {
        let keep = |index: usize| self.inner.get(index).is_some_and(&keep);
        let clusters = Rendezvous { identities: &self.identities, runs: &self.runs };
        self.inner.get(clusters.first(client, keep)?)
    }

    /// The cluster of a retry: the same cluster, then another one, then any.
    fn again(&self, client: u64, tried: Tried<'_>) -> Option<&InnerCluster> {
        let left = |cluster: &InnerCluster| self.tried(cluster, tried) < cluster.weights.len();
        self.first(client, |cluster| left(cluster) && self.tried(cluster, tried) < SUSPICIOUS)
            .or_else(|| self.first(client, left))
            .or_else(|| self.first(client, |_| true))
    }

    /// The index of the chosen candidate among all candidates.
    pub fn choose(&self, input: &PickInput<'_>) -> usize {
        let draw = match self.inside {
            Inside::Maglev => input.hash,
            // Not the number that chooses an endpoint, since the cluster would otherwise determine which one.
            Inside::LeastConnections => mix(!input.random),
        };
        let cluster = match input.tried {
            None => self.first(draw, |_| true),
            Some(tried) => self.again(draw, tried),
        };
        let Some(cluster) = cluster else { return 0 };
        let indices = self.indices(cluster);
        let index = |place: usize| indices.get(place).map_or(0, |&index| index as usize);
        let load = |place: usize| (input.load)(index(place));
        let was_tried = |place: usize| input.tried.is_some_and(|tried| tried(index(place)));
        let tried: Option<Tried<'_>> = input.tried.is_some().then_some(&was_tried);
        let input = PickInput { load: &load, tried, ..*input };
        index(match (self.inside, &cluster.maglev) {
            (Inside::LeastConnections, _) => p2c::choose(&cluster.weights, &input),
            (Inside::Maglev, Some(maglev)) => maglev.choose(&input),
            (Inside::Maglev, None) => {
                let identities = self.member_identities.get(cluster.range()).unwrap_or_default();
                Rendezvous { identities, runs: &cluster.runs }.choose(&input)
            }
        })
    }
}

#[cfg(test)]
mod tests;
