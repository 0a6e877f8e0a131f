//! Chooses in two steps: first a cluster by its load, then an endpoint inside it.
//!
//! With [`Maglev`] inside, both steps are consistent: the client's hash chooses the cluster. Endpoints that come and go in one
//! cluster move no client of another, and a client whose endpoint is gone stays in its cluster while that takes traffic.
//! With [`LeastConnections`] inside, the cluster is random and connections are compared only within a cluster; otherwise
//! long connections in one cluster would push more traffic to the others than their loads allow.
//!
//! Weighted rendezvous hashing chooses the cluster (Thaler and Ravishankar 1998; weights: Schindelhauer and Schomaker 2005):
//! each draws a random time, exponential in its load, and the first wins. A load that falls moves only its own clients
//! away, and one that rises only attracts clients. Clusters are few, so drawing for each of them is cheap.

use std::sync::Arc;

use super::hash::mix;
use super::maglev::Maglev;
use super::p2c::LeastConnections;
use super::weights::Weights;
use super::{Balance, PickInput, Tried};

/// From this many failures in one cluster on, the cluster is to blame rather than its endpoints.
pub const SUSPICIOUS: usize = 2;

/// One cluster and its candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Its [`hash::cluster`](super::hash::cluster).
    pub identity: u64,
    /// Share among the clusters; not 0.
    pub load: u64,
    /// Its candidates; not empty.
    pub members: Vec<ClusterMember>,
}

/// How an endpoint is chosen inside its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// By the client's hash.
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
    specs: Box<[ClusterSpec]>,
    /// In the order of `specs`, as `inner` is; apart from it, because every choice reads all keys.
    keys: Box<[ClusterKey]>,
    inner: Box<[InnerCluster]>,
}

#[derive(Debug)]
struct ClusterKey {
    identity: u64,
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

impl InnerCluster {
    fn tried(&self, tried: Tried<'_>) -> usize {
        self.members.iter().filter(|&&index| tried(index as usize)).count()
    }
}

impl Clusters {
    /// A balancer over `clusters`; reuses the Maglev tables of `known` for clusters whose candidates are the same.
    pub fn new(inside: Inside, clusters: Vec<ClusterSpec>, known: Option<&Self>) -> Self {
        let key = |&ClusterSpec { identity, load, .. }: &_| ClusterKey { identity, pace: 1.0 / load as f64 };
        let inner = |cluster: &ClusterSpec| {
            let weights: Vec<u32> = cluster.members.iter().map(|member| member.weight).collect();
            let weights = Weights::new(&weights)?;
            let balancer = match inside {
                Inside::LeastConnections => InnerBalancer::LeastConnections(LeastConnections::new(weights)),
                Inside::Maglev => {
                    InnerBalancer::Maglev(known.and_then(|it| it.maglev(cluster)).unwrap_or_else(|| {
                        let identities = cluster.members.iter().map(|member| member.identity).collect();
                        Arc::new(Maglev::of_cluster(weights, identities))
                    }))
                }
            };
            Some(InnerCluster {
                members: cluster.members.iter().map(|member| member.index).collect(),
                balancer,
            })
        };
        let (keys, inner): (Vec<ClusterKey>, Vec<InnerCluster>) =
            clusters.iter().filter_map(|cluster| Some((key(cluster), inner(cluster)?))).unzip();
        Self { inside, specs: clusters.into(), keys: keys.into(), inner: inner.into() }
    }

    /// Whether this is the balancer over `clusters`.
    pub fn is_over(&self, inside: Inside, clusters: &[ClusterSpec]) -> bool {
        inside == self.inside && *self.specs == *clusters
    }

    /// The Maglev table of the cluster, if its candidates are the same, whatever their indices.
    fn maglev(&self, cluster: &ClusterSpec) -> Option<Arc<Maglev>> {
        let candidates = |of: &ClusterSpec| {
            of.members.iter().map(|member| (member.identity, member.weight)).collect::<Vec<_>>()
        };
        let at = self.specs.iter().position(|spec| spec.identity == cluster.identity)?;
        match &self.inner.get(at)?.balancer {
            InnerBalancer::Maglev(maglev) if candidates(self.specs.get(at)?) == candidates(cluster) => {
                Some(Arc::clone(maglev))
            }
            _ => None,
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
            // Not the number that draws an endpoint, or the cluster would decide which one.
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
