//! Failover: computes the share of each backend by priority, health and weight, and of each endpoint inside it. The model is Envoy's
//! priority levels, overprovisioning factor, locality weights and panic threshold, with one difference: panic sets in gradually.
//!
//! The computation has no state and uses integers, so that gateways with the same view of health compute the same shares.

use std::collections::BTreeMap;

use sheave_model::{Backend, Frontend, Spread, Weight};

use super::shares::Member;

/// Failover rules of one frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverRules {
    /// See [`Failover`](sheave_model::Failover).
    pub spread: Spread,
    /// See [`Failover`](sheave_model::Failover).
    pub overprovisioning: u16,
    /// See [`HealthPolicy`](sheave_model::HealthPolicy).
    pub panic_threshold: u8,
    /// Whether endpoints that serve nothing at present count as lost. Not within one cluster: no other could take over, and a Pod that
    /// is not ready says nothing about those that are.
    pub counts_lost: bool,
}

impl FailoverRules {
    /// The rules of `frontend`. Within one cluster only the panic threshold matters.
    pub fn of(frontend: &Frontend) -> Self {
        let (spread, overprovisioning) = match frontend.failover {
            Some(failover) => (failover.spread, failover.overprovisioning),
            None => (Spread::Endpoints, 100),
        };
        let counts_lost = frontend.failover.is_some();
        Self { spread, overprovisioning, panic_threshold: frontend.health.panic_threshold, counts_lost }
    }
}

/// Properties of a candidate that determine its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverCandidate {
    /// Index into the backends.
    pub backend: u32,
    /// Share among the endpoints of its backend.
    pub weight: Weight,
    /// Whether it is Ready and not known to be unhealthy.
    pub healthy: bool,
}

/// All traffic; loads of tiers are parts of it.
const WHOLE: u64 = 1 << 20;
/// Score of a healthy endpoint; in panic an unhealthy one scores a part of it.
const SOUND: u64 = 1 << 12;
/// Resolution of the division of a tier's load among its backends.
const GRAIN: u128 = 1 << 24;

/// Converts the candidates, in order, to members to [fold](super::shares::fold).
///
/// Health is measured over the candidates, and, if the rules count lost endpoints, also over those in a backend's `capacity` that serve
/// nothing at present. Endpoints that serve but are no candidates were excluded by a policy and do not count as lost, nor do those of a
/// backend of weight 0: such a backend gets nothing in any tier while any candidate has a weight. When nothing is healthy anywhere,
/// every candidate counts as healthy: traffic is never refused while an endpoint exists.
pub fn members(backends: &[Backend], candidates: &[FailoverCandidate], rules: FailoverRules) -> Vec<Member> {
    let mut clusters = ClusterHealth::all(backends, candidates, rules);
    if clusters.iter().all(|cluster| cluster.healthy == 0) {
        clusters.iter_mut().for_each(|cluster| cluster.healthy = cluster.candidates);
    }
    let overprovisioning = u64::from(rules.overprovisioning.max(100));
    let mut tiers = Tier::all(&clusters, overprovisioning);
    distribute(&mut tiers);
    let available = tiers.values().fold(0, |sum, tier| sum + tier.health).min(WHOLE);
    let alone = tiers.values().filter(|tier| tier.load > 0).count() == 1;
    for (priority, tier) in &tiers {
        let mut of_tier: Vec<&mut ClusterHealth> =
            clusters.iter_mut().filter(|cluster| cluster.priority == *priority).collect();
        let unsound = tier.unsound(available, rules.panic_threshold);
        of_tier.iter_mut().for_each(|cluster| cluster.unsound = unsound);
        let parts: Vec<u64> = match rules.spread {
            Spread::Endpoints => of_tier.iter().map(|cluster| cluster.weight * cluster.sound()).collect(),
            Spread::Backends => fill(&of_tier, overprovisioning),
        };
        let sum: u64 = parts.iter().sum();
        for (cluster, part) in of_tier.into_iter().zip(parts) {
            cluster.share = match tier.load {
                0 => 0,
                // A single tier is divided exactly, without rounding.
                _ if alone => part,
                load => portion(u128::from(load) * GRAIN * u128::from(part), u128::from(sum)),
            };
        }
    }
    candidates.iter().map(|candidate| member(&clusters, candidate)).collect()
}

fn member(clusters: &[ClusterHealth], candidate: &FailoverCandidate) -> Member {
    let cluster = clusters.get(candidate.backend as usize);
    let weight = cluster.map_or(0, |cluster| cluster.weight_of(candidate) * cluster.counts(candidate));
    Member {
        backend: candidate.backend,
        backend_weight: cluster.map_or(0, |cluster| cluster.share),
        weight: u32::try_from(weight).unwrap_or(u32::MAX),
    }
}

/// Health of one backend.
struct ClusterHealth {
    priority: u32,
    /// 0 only if other backends have a weight.
    weight: u64,
    /// Whether all its candidates have weight 0 and share equally.
    even: bool,
    /// Number of candidates with a weight.
    candidates: u64,
    /// Number of those that count as healthy.
    healthy: u64,
    /// Number that `healthy` is compared with.
    total: u64,
    /// Score of an unhealthy candidate.
    unsound: u64,
    /// Share among all backends.
    share: u64,
}

impl ClusterHealth {
    fn all(backends: &[Backend], candidates: &[FailoverCandidate], rules: FailoverRules) -> Vec<Self> {
        let mut clusters: Vec<Self> = backends.iter().map(|backend| Self::new(backend, rules)).collect();
        for candidate in candidates {
            if let Some(cluster) = clusters.get_mut(candidate.backend as usize) {
                cluster.candidates += 1;
                cluster.even &= candidate.weight.0 == 0;
            }
        }
        if clusters.iter().all(|cluster| cluster.candidates == 0 || cluster.weight == 0) {
            clusters.iter_mut().for_each(|cluster| cluster.weight = 1);
        }
        clusters.iter_mut().for_each(|cluster| cluster.candidates = 0);
        for candidate in candidates {
            if let Some(cluster) = clusters.get_mut(candidate.backend as usize)
                && cluster.weight > 0
                && cluster.weight_of(candidate) > 0
            {
                cluster.candidates += 1;
                cluster.healthy += u64::from(candidate.healthy);
            }
        }
        for cluster in &mut clusters {
            cluster.total = if cluster.weight == 0 { 0 } else { cluster.total + cluster.candidates };
        }
        clusters
    }

    /// Creates the state before candidates are counted.
    fn new(backend: &Backend, rules: FailoverRules) -> Self {
        let lost = u64::from(backend.capacity).saturating_sub(backend.endpoints.len() as u64);
        Self {
            priority: backend.priority,
            weight: u64::from(backend.weight.0),
            even: true,
            candidates: 0,
            healthy: 0,
            total: if rules.counts_lost { lost } else { 0 },
            unsound: 0,
            share: 0,
        }
    }

    fn weight_of(&self, candidate: &FailoverCandidate) -> u64 {
        if self.even { 1 } else { u64::from(candidate.weight.0) }
    }

    /// The candidate's score, in parts of [`SOUND`].
    fn counts(&self, candidate: &FailoverCandidate) -> u64 {
        // If all candidates count as healthy, so does this one.
        if candidate.healthy || self.healthy == self.candidates { SOUND } else { self.unsound }
    }

    /// Sum of the candidates' scores.
    fn sound(&self) -> u64 {
        self.healthy * SOUND + (self.candidates - self.healthy) * self.unsound
    }
}

/// Tier: the backends of one priority.
#[derive(Default)]
struct Tier {
    total: u64,
    healthy: u64,
    /// Part of all traffic that it can take, of [`WHOLE`].
    health: u64,
    /// Part of all traffic that it takes, in proportion to the other tiers.
    load: u64,
}

impl Tier {
    fn all(clusters: &[ClusterHealth], overprovisioning: u64) -> BTreeMap<u32, Self> {
        let mut tiers = BTreeMap::<u32, Self>::new();
        for cluster in clusters {
            let tier = tiers.entry(cluster.priority).or_default();
            tier.total += cluster.total;
            tier.healthy += cluster.healthy;
        }
        for tier in tiers.values_mut() {
            let able = u128::from(overprovisioning) * u128::from(tier.healthy) * u128::from(WHOLE);
            tier.health = portion(able, 100 * u128::from(tier.total)).min(WHOLE);
        }
        tiers
    }

    /// The score of an unhealthy candidate: 0, unless the tier is in panic, that is, below `threshold` percent of health with too
    /// little health in all tiers.
    ///
    /// Envoy then uses all endpoints alike, and the share of the healthy ones drops at once by half or more. Here they keep the share
    /// that they had at the threshold, and the unhealthy ones get the rest. With healthy part h, threshold t and availability a over
    /// all tiers, the rest is min(1 - h/t, 1 - a), divided among the unhealthy.
    fn unsound(&self, available: u64, threshold: u8) -> u64 {
        let percent = u64::from(threshold.min(100));
        if self.load == 0 || available >= WHOLE || 100 * self.healthy >= percent * self.total {
            return 0;
        }
        let [total, healthy, available] = [self.total, self.healthy, available].map(u128::from);
        let (percent, sound, whole) = (u128::from(percent), u128::from(SOUND), u128::from(WHOLE));
        let by_threshold = portion(sound * (percent * total - 100 * healthy), 100 * (total - healthy));
        let by_lack = portion(sound * healthy * (whole - available), available * (total - healthy));
        by_threshold.min(by_lack).min(SOUND)
    }
}

/// Loads the tiers in order, each as far as its health allows. If there is too little health for all traffic, each takes its part of
/// the available health.
fn distribute(tiers: &mut BTreeMap<u32, Tier>) {
    let enough = tiers.values().map(|tier| tier.health).sum::<u64>() >= WHOLE;
    let mut left = WHOLE;
    for tier in tiers.values_mut() {
        tier.load = if enough { tier.health.min(left) } else { tier.health };
        left -= tier.load.min(left);
    }
}

/// Parts of a tier's backends by weight. A backend that lost endpoints takes at most its weight times its overprovisioned health; the
/// rest goes to backends with room. Beyond that all are overloaded alike.
fn fill(clusters: &[&mut ClusterHealth], overprovisioning: u64) -> Vec<u64> {
    /// Part of weight 1.
    const UNIT: u64 = 1 << 16;
    let wanted = |cluster: &ClusterHealth| if cluster.total == 0 { 0 } else { cluster.weight * UNIT };
    let able = |cluster: &ClusterHealth| {
        let sound = u128::from(overprovisioning) * u128::from(cluster.sound());
        portion(u128::from(wanted(cluster)) * sound, u128::from(100 * SOUND * cluster.total))
    };
    let base = |cluster: &ClusterHealth| wanted(cluster).min(able(cluster));
    let room = |cluster: &ClusterHealth| able(cluster) - base(cluster);
    let lost: u64 = clusters.iter().map(|cluster| wanted(cluster) - base(cluster)).sum();
    let rooms: u64 = clusters.iter().map(|cluster| room(cluster)).sum();
    let given = u128::from(lost.min(rooms));
    let more = |cluster: &ClusterHealth| portion(given * u128::from(room(cluster)), u128::from(rooms));
    clusters.iter().map(|cluster| base(cluster) + more(cluster)).collect()
}

/// `part / whole`, never rounded to 0; 0 of 0.
fn portion(part: u128, whole: u128) -> u64 {
    let portion = part.checked_div(whole).unwrap_or_default();
    u64::try_from(portion).unwrap_or(u64::MAX).max(u64::from(part > 0 && whole > 0))
}

#[cfg(test)]
mod tests;
