//! Annotations about clusters: weights, priority and drain. A contradictory or malformed value is ignored completely, because
//! half of it is not what the user intended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use sheave_model::{Spread, Weight};

use super::{CLUSTER_PRIORITY, CLUSTER_WEIGHTS};
use crate::api::karmada::Cluster;
use crate::api::problem::reason;
use crate::api::problem::report::Report;
use crate::projection::annotations;
use crate::text;

/// Known locations of clusters.
pub(in crate::projection) struct ClusterRegions<'a> {
    /// The gateway's own cluster.
    pub(in crate::projection) own: &'a str,
    pub(in crate::projection) clusters: &'a BTreeMap<Arc<str>, Arc<Cluster>>,
}

/// Distribution of traffic between clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::projection) struct ClusterTiers {
    /// Weights of clusters; `None` gives all endpoints equal shares.
    weights: Option<BTreeMap<String, u16>>,
    /// Tier of each cluster. Clusters without an entry belong to tier `last`.
    tiers: BTreeMap<String, u32>,
    last: u32,
}

impl ClusterTiers {
    /// Reads the annotations for the clusters in `serving`.
    pub(in crate::projection) fn read(
        service: &Service,
        serving: &BTreeSet<Arc<str>>,
        region: &ClusterRegions<'_>,
        report: &mut Report,
    ) -> Self {
        let mut tiers = Self::default();
        if let Some(text) = annotations::value(service, CLUSTER_WEIGHTS) {
            match weights(text) {
                Ok(weights) => {
                    let names = weights.keys().map(String::as_str);
                    check_names(CLUSTER_WEIGHTS, names, serving, report);
                    tiers.weights = Some(weights);
                }
                Err(why) => report.invalid(
                    annotations::field(CLUSTER_WEIGHTS),
                    format!("{text:?}: {why}; every endpoint gets the same"),
                ),
            }
        }
        let Some(text) = annotations::value(service, CLUSTER_PRIORITY) else { return tiers };
        if text.trim() == "locality" {
            tiers.by_locality(serving, region, report);
            return tiers;
        }
        match order(text) {
            Ok(order) => {
                let names = order.keys().map(String::as_str);
                check_names(CLUSTER_PRIORITY, names, serving, report);
                tiers.last = order.values().max().map_or(0, |tier| tier + 1);
                tiers.tiers = order;
            }
            Err(why) => report.invalid(
                annotations::field(CLUSTER_PRIORITY),
                format!("{text:?}: {why}; all clusters are used alike"),
            ),
        }
        tiers
    }

    /// Sets the tiers by locality: the gateway's own cluster, then those in its region, then the rest.
    fn by_locality(
        &mut self,
        serving: &BTreeSet<Arc<str>>,
        region: &ClusterRegions<'_>,
        report: &mut Report,
    ) {
        let of = |name: &str| {
            let cluster = region.clusters.get(name)?;
            Some(cluster.spec.region.as_str()).filter(|region| !region.is_empty())
        };
        if !serving.contains(region.own) && of(region.own).is_none() {
            let message = format!(
                "nothing is known of where this gateway's cluster, {:?}, is (cluster in the configuration); all clusters \
                 are used alike",
                region.own
            );
            return report.invalid(annotations::field(CLUSTER_PRIORITY), message);
        }
        self.last = 2;
        for name in serving {
            let near = of(region.own).is_some_and(|own| of(name) == Some(own));
            if **name == *region.own || near {
                self.tiers.insert(name.to_string(), u32::from(**name != *region.own));
            }
        }
    }

    pub(in crate::projection) fn weight(&self, cluster: &str) -> u16 {
        match &self.weights {
            None => Weight::default().0,
            Some(weights) => weights.get(cluster).copied().unwrap_or(1),
        }
    }

    pub(in crate::projection) fn priority(&self, cluster: &str) -> u32 {
        self.tiers.get(cluster).copied().unwrap_or(self.last)
    }

    /// How traffic is spread: explicit weights apply regardless of the clusters' sizes.
    pub(in crate::projection) fn spread(&self) -> Spread {
        if self.weights.is_some() { Spread::Backends } else { Spread::Endpoints }
    }
}

fn weights(text: &str) -> Result<BTreeMap<String, u16>, String> {
    let mut weights = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, weight) =
            part.split_once('=').ok_or_else(|| format!("{part:?} is not a cluster, = and a weight"))?;
        let (name, weight) = (name.trim(), weight.trim());
        let weight: u16 = weight.parse().map_err(|_| format!("{weight:?} is not a weight (0 to 65535)"))?;
        if name.is_empty() {
            return Err(format!("{part:?} names no cluster"));
        }
        if let Some(other) = weights.insert(name.to_owned(), weight).filter(|other| *other != weight) {
            return Err(format!("{name} is given {other} and {weight}"));
        }
    }
    if weights.is_empty() { Err("it names no cluster".to_owned()) } else { Ok(weights) }
}

fn order(text: &str) -> Result<BTreeMap<String, u32>, String> {
    let mut order = BTreeMap::new();
    for (tier, part) in (0..).zip(text.split('>')) {
        let names: Vec<&str> = part.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Err("a tier names no cluster".to_owned());
        }
        for name in names {
            if name.contains('=') {
                return Err(format!("{name:?} is not the name of a cluster"));
            }
            if order.insert(name.to_owned(), tier).is_some_and(|other| other != tier) {
                return Err(format!("{name} is in two tiers"));
            }
        }
    }
    Ok(order)
}

/// Cluster names from an annotation, separated by commas.
pub(in crate::projection) fn cluster_list(
    service: &Service,
    annotation: &str,
    report: &mut Report,
) -> Vec<String> {
    let text = annotations::value(service, annotation).unwrap_or_default();
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    if names.iter().any(|name| name == "true") {
        let message = "true is for Clusters: name the clusters that get nothing new here";
        report.invalid(annotations::field(annotation), message);
    }
    names.into_iter().filter(|name| name != "true").collect()
}

/// Reports names in an annotation that are not in `serving`.
pub(in crate::projection) fn check_names<'n>(
    annotation: &str,
    names: impl Iterator<Item = &'n str>,
    serving: &BTreeSet<Arc<str>>,
    report: &mut Report,
) {
    for name in names.filter(|name| !serving.contains(*name)) {
        let hint = match text::closest(name, serving.iter().map(|it| &**it)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => "it has no effect".to_owned(),
        };
        let message = format!("{name:?} is none of the clusters that this is served from; {hint}");
        report.add(reason::CLUSTER_NOT_FOUND, annotations::field(annotation), None, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_read_whole_or_not_at_all() {
        let read = |text| weights(text).map(|it| it.into_iter().collect::<Vec<_>>());
        assert_eq!(read("m1=3, m2 = 0,"), Ok(vec![("m1".to_owned(), 3), ("m2".to_owned(), 0)]));
        for bad in ["", "m1", "=3", "m1=-1", "m1=65536", "m1=3,m1=4", "m1=3 m2=1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tiers_follow_each_other_and_name_a_cluster_once() {
        let read = |text| order(text).map(|it| it.into_iter().collect::<Vec<_>>());
        let tiers = vec![("a".to_owned(), 0), ("b".to_owned(), 0), ("c".to_owned(), 1)];
        assert_eq!(read("a, b > c"), Ok(tiers));
        for bad in ["", "a>>b", "a>", "a>b,a", "a=1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
