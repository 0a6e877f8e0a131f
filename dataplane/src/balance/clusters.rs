//! Two steps: first a cluster by its load, then an endpoint inside it.
//!
//! With [`Maglev`] inside, both are consistent: the cluster goes by the client's hash. So endpoints that come and go in one
//! cluster move no client of another, and a client whose endpoint went stays in its cluster while that takes traffic.
//! With [`LeastConnections`] inside, the cluster goes by chance: connections are compared within a cluster alone, or those that
//! last in one would send more to the others than their loads say.
//!
//! The cluster is the winner of weighted rendezvous hashing (Thaler and Ravishankar 1998; weights: Schindelhauer and
//! Schomaker 2005): each draws a random time, exponential in its load, and the first wins. A load that falls moves
//! only its own clients away, and one that rises only draws clients in. Asking everyone is affordable: clusters are few.

use std::sync::Arc;

use super::hash::mix;
use super::maglev::Maglev;
use super::p2c::LeastConnections;
use super::weights::Weights;
use super::{Balance, PickInput, Tried};

/// So many failures in one cluster speak against it rather than against its endpoints.
pub const SUSPICIOUS: usize = 2;

/// One cluster before it is made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Its [`hash::cluster`](super::hash::cluster).
    pub identity: u64,
    /// Share among the clusters; not 0.
    pub load: u64,
    /// Its candidates: not none.
    pub members: Vec<ClusterMember>,
}

/// How an endpoint is chosen inside its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// By the client's hash, as the cluster is.
    Maglev,
    /// The less loaded of two.
    LeastConnections,
}

/// One candidate of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterMember {
    /// Index among all candidates.
    pub index: u32,
    /// Its [`hash::endpoint`](super::hash::endpoint).
    pub identity: u64,
    /// Share inside the cluster.
    pub weight: u32,
}

/// The balancer over clusters and their candidates.
#[derive(Debug)]
pub struct Clusters {
    inside: Inside,
    /// In the order of `inner`; apart from it, because every choice reads all of them.
    keys: Box<[ClusterKey]>,
    inner: Box<[InnerCluster]>,
}

#[derive(Debug)]
struct ClusterKey {
    identity: u64,
    load: u64,
    /// 1 / load.
    pace: f64,
}

#[derive(Debug)]
struct InnerCluster {
    /// Indices among all candidates.
    members: Box<[u32]>,
    balancer: InnerBalancer,
}

#[derive(Debug)]
enum InnerBalancer {
    Maglev(Arc<Maglev>),
    LeastConnections(LeastConnections),
}

impl InnerBalancer {
    fn is_over(&self, weights: &Weights, identities: &[u64]) -> bool {
        match self {
            Self::Maglev(maglev) => maglev.is_over(weights, identities),
            Self::LeastConnections(balancer) => balancer.is_over(weights),
        }
    }
}

impl InnerCluster {
    fn tried(&self, tried: Tried<'_>) -> usize {
        self.members.iter().filter(|&&index| tried(index as usize)).count()
    }
}

impl Clusters {
    /// A balancer over `clusters`; Maglev tables that `known` has of the same candidates are taken over.
    pub fn new(inside: Inside, clusters: &[ClusterSpec], known: Option<&Self>) -> Self {
        let key = |cluster: &ClusterSpec| {
            let ClusterSpec { identity, load, .. } = *cluster;
            ClusterKey { identity, load, pace: 1.0 / load as f64 }
        };
        let inner = |cluster: &ClusterSpec| {
            let (weights, identities) = candidates(cluster)?;
            let balancer = match inside {
                Inside::LeastConnections => InnerBalancer::LeastConnections(LeastConnections::new(weights)),
                Inside::Maglev => {
                    let same = known.and_then(|known| known.maglev(cluster.identity));
                    let same = same.filter(|maglev| maglev.is_over(&weights, &identities)).cloned();
                    let made = || Arc::new(Maglev::of_cluster(weights, identities));
                    InnerBalancer::Maglev(same.unwrap_or_else(made))
                }
            };
            Some(InnerCluster {
                members: cluster.members.iter().map(|member| member.index).collect(),
                balancer,
            })
        };
        let (keys, inner): (Vec<ClusterKey>, Vec<InnerCluster>) =
            clusters.iter().filter_map(|cluster| Some((key(cluster), inner(cluster)?))).unzip();
        Self { inside, keys: keys.into(), inner: inner.into() }
    }

    /// Whether this is the balancer over `clusters`.
    pub fn is_over(&self, inside: Inside, clusters: &[ClusterSpec]) -> bool {
        let same = |(cluster, (key, inner)): (&ClusterSpec, (&ClusterKey, &InnerCluster))| {
            (key.identity, key.load) == (cluster.identity, cluster.load)
                && inner.members.iter().copied().eq(cluster.members.iter().map(|member| member.index))
                && candidates(cluster)
                    .is_some_and(|(weights, identities)| inner.balancer.is_over(&weights, &identities))
        };
        inside == self.inside
            && clusters.len() == self.keys.len()
            && clusters.iter().zip(self.keys.iter().zip(&self.inner)).all(same)
    }

    fn maglev(&self, identity: u64) -> Option<&Arc<Maglev>> {
        let at = self.keys.iter().position(|key| key.identity == identity)?;
        match &self.inner.get(at)?.balancer {
            InnerBalancer::Maglev(maglev) => Some(maglev),
            InnerBalancer::LeastConnections(_) => None,
        }
    }

    /// The cluster of a client among those that `keep` keeps.
    fn first(&self, client: u64, keep: impl Fn(&InnerCluster) -> bool) -> Option<&InnerCluster> {
        let mut first = None;
        let mut earliest = f64::INFINITY;
        for (key, inner) in self.keys.iter().zip(&self.inner) {
            let time = exponential(mix(client ^ key.identity)) * key.pace;
            if time < earliest && keep(inner) {
                earliest = time;
                first = Some(inner);
            }
        }
        first
    }

    /// After failures: another candidate of the same cluster, then other clusters, then whatever is left.
    fn again(&self, client: u64, tried: Tried<'_>) -> Option<&InnerCluster> {
        let left = |inner: &InnerCluster| inner.members.len() - inner.tried(tried);
        self.first(client, |inner| left(inner) > 0 && inner.tried(tried) < SUSPICIOUS)
            .or_else(|| self.first(client, |inner| left(inner) > 0))
            .or_else(|| self.first(client, |_| true))
    }
}

impl Balance for Clusters {
    fn choose(&self, input: &PickInput<'_>) -> usize {
        let draw = match self.inside {
            Inside::Maglev => input.hash,
            // Not the number by which an endpoint is drawn, or the cluster would decide which one.
            Inside::LeastConnections => mix(!input.random),
        };
        let cluster = match input.tried {
            None => self.first(draw, |_| true),
            Some(tried) => self.again(draw, tried),
        };
        let Some(InnerCluster { members, balancer }) = cluster else { return 0 };
        let index = |member: usize| members.get(member).map_or(0, |&index| index as usize);
        let load = |member: usize| (input.load)(index(member));
        let was_tried = |member: usize| input.tried.is_some_and(|tried| tried(index(member)));
        let tried: Option<Tried<'_>> = input.tried.is_some().then_some(&was_tried);
        let input = PickInput { load: &load, tried, ..*input };
        index(match balancer {
            InnerBalancer::Maglev(maglev) => maglev.choose(&input),
            InnerBalancer::LeastConnections(balancer) => balancer.choose(&input),
        })
    }
}

fn candidates(cluster: &ClusterSpec) -> Option<(Weights, Box<[u64]>)> {
    let weights: Vec<u32> = cluster.members.iter().map(|member| member.weight).collect();
    Some((Weights::new(&weights)?, cluster.members.iter().map(|member| member.identity).collect()))
}

/// Turns a uniform random number into an exponential one, -ln(u), to about a millionth. By hand, because a library's
/// logarithm may differ in the last bit from machine to machine, and gateways must agree; IEEE 754 fixes these steps.
fn exponential(random: u64) -> f64 {
    // u = fraction / 2^shift, with the fraction from 1/2 to 1.
    let random = random | 1;
    let shift = random.leading_zeros();
    let fraction = ((random << shift) >> 11) as f64 / (1u64 << 53) as f64;
    // -ln(x) = 2 artanh((1 - x) / (1 + x))
    let t = (1.0 - fraction) / (1.0 + fraction);
    let square = t * t;
    let series =
        1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0))));
    2.0 * t * series + f64::from(shift) * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests;
