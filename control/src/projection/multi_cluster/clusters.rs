//! Clusters that may serve a MultiClusterService, and the state of each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Service;

use super::template;
use crate::api::karmada::{Cluster, MultiClusterService, ResourceBinding, cluster_of_namespace};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::store::{KarmadaObjects, ServiceKey};
use crate::projection::annotations;
use crate::projection::annotations::{DRAIN, clusters};
use crate::projection::options::Options;
use crate::projection::plan::NotCounted;
use crate::projection::status::{ClusterState, DrainReason};
use crate::text;

/// Clusters of one MultiClusterService.
pub(super) struct Clusters<'a> {
    pub(super) fleet: &'a KarmadaObjects,
    pub(super) options: &'a Options,
    now: Option<Timestamp>,
    /// Existing clusters that it names; `None` means all.
    pub(super) named: Option<BTreeSet<Arc<str>>>,
    /// Names of clusters that do not exist.
    pub(super) unknown: Vec<String>,
    /// Its ResourceBinding, if known, with the clusters that the Service is scheduled to.
    pub(super) binding: Option<&'a ResourceBinding>,
    bound: Option<BTreeSet<&'a str>>,
    /// Clusters that it names to get no new connections.
    drained: Vec<String>,
    /// All known names of clusters, to resolve attributions that have only a prefix of a name.
    names: BTreeSet<&'a str>,
}

impl<'a> Clusters<'a> {
    /// Reads the clusters that it names, and reports mistakes in them.
    pub(super) fn read(
        key: &ServiceKey,
        service: &'a MultiClusterService,
        effective: &Service,
        fleet: &'a KarmadaObjects,
        (options, now): (&'a Options, Option<Timestamp>),
        report: &mut Report,
    ) -> Self {
        let binding = fleet.bindings.get(key).filter(|it| it.metadata.deletion_timestamp.is_none());
        let binding = binding.map(|it| &**it);
        report_legacy_fields(service, report);
        let (mut named, mut unknown) = (BTreeSet::new(), Vec::new());
        let providers = &service.spec.provider_clusters;
        for (index, provider) in providers.iter().enumerate() {
            if fleet.clusters.is_empty() || fleet.clusters.contains_key(&*provider.name) {
                named.insert(Arc::from(&*provider.name));
            } else {
                let field = format!("spec.providerClusters[{index}].name");
                report.add(reason::CLUSTER_NOT_FOUND, field, None, nobody(&provider.name, fleet));
                unknown.push(provider.name.clone());
            }
        }
        let named = (!providers.is_empty()).then_some(named);
        unknown.sort_unstable();
        unknown.dedup();
        let mut own = Report::about(key.object());
        let drained = clusters::cluster_list(effective, DRAIN, &mut own);
        report.extend(template::renamed(own.into_problems(), service));
        let bound = binding.map(ResourceBinding::clusters).filter(|names| !names.is_empty());
        let mut clusters =
            Self { fleet, options, now, named, unknown, binding, bound, drained, names: BTreeSet::new() };
        clusters.names = clusters.names(key, service);
        clusters
    }

    fn names(&self, key: &ServiceKey, service: &'a MultiClusterService) -> BTreeSet<&'a str> {
        let registered = self.fleet.clusters.keys().map(|name| &**name);
        let providers = service.spec.provider_clusters.iter().map(|it| it.name.as_str());
        let works = self.fleet.works.get(key).into_iter().flat_map(|works| works.keys());
        let works = works.filter_map(|(namespace, _)| cluster_of_namespace(namespace));
        let names = registered.chain(providers).chain(works).chain(self.bound.iter().flatten().copied());
        names.filter(|name| !name.is_empty()).collect()
    }

    /// Whether objects of the cluster with this name may be used.
    pub(super) fn judge(&self, name: &str) -> Result<(), NotCounted> {
        if !self.fleet.clusters.is_empty() && !self.fleet.clusters.contains_key(name) {
            return Err(NotCounted::Unregistered);
        }
        if self.named.as_ref().is_some_and(|named| !named.contains(name)) {
            return Err(NotCounted::NotNamed);
        }
        if self.bound.as_ref().is_some_and(|bound| !bound.contains(name)) {
            return Err(NotCounted::Stale);
        }
        Ok(())
    }

    /// State of the cluster, which decides whether new traffic may go to it.
    pub(super) fn state(&self, name: &str) -> ClusterState {
        if self.bound.as_ref().is_some_and(|bound| !bound.contains(name)) {
            return ClusterState::NotBound;
        }
        if self.drained.iter().any(|it| it == name) {
            return ClusterState::Draining(DrainReason::Asked);
        }
        let evicted = self.binding.into_iter().flat_map(|it| &it.spec.graceful_eviction_tasks);
        if evicted.into_iter().any(|task| task.from_cluster == name) {
            return ClusterState::Draining(DrainReason::Evicted);
        }
        let Some(cluster) = self.fleet.clusters.get(name) else { return ClusterState::Unknown };
        if let Some(why) = drain(cluster) {
            return ClusterState::Draining(why);
        }
        match ready(cluster) {
            Some(true) => ClusterState::Ready,
            None => ClusterState::Unknown,
            Some(false) => {
                let hold = self.options.fleet.not_ready_hold;
                let end = hold.and_then(|hold| held_until(cluster, hold));
                match end.zip(self.now) {
                    Some((end, now)) if end <= now => ClusterState::HeldOff,
                    _ => ClusterState::NotReady,
                }
            }
        }
    }

    /// Problems of the annotations on a Cluster.
    pub(super) fn misread(&self, name: &str) -> Vec<Problem> {
        let Some((name, cluster)) = self.fleet.clusters.get_key_value(name) else { return Vec::new() };
        let object = ObjectRef { kind: Cluster::KIND, namespace: "".into(), name: name.clone() };
        let mut report = Report::about(object);
        if let Some(text) = asked_to_drain(cluster)
            && !matches!(text, "" | "true" | "false")
        {
            let message = format!("{text:?} is not true or false; the cluster is not drained");
            report.invalid(annotations::field(DRAIN), message);
        }
        report.into_problems()
    }

    /// The longest cluster name that `text` starts with, followed by a dash. Cluster names can contain dashes themselves.
    pub(super) fn longest_prefix(&self, text: &str) -> Option<&'a str> {
        let fits = |name: &&str| text.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
        self.names.iter().copied().filter(fits).max_by_key(|name| name.len())
    }

    /// Whether there is a cluster with this name.
    pub(super) fn is_name(&self, text: &str) -> bool {
        self.names.contains(text)
    }

    /// Whether it is a known cluster that may serve it, even if it currently has no endpoints.
    pub(super) fn is_among(&self, name: &str) -> bool {
        self.judge(name).is_ok() && (self.fleet.clusters.contains_key(name) || self.names.contains(name))
    }

    /// Names of clusters that should serve it, whether they have anything or not: those that it names, or those that its Service
    /// is scheduled to.
    pub(super) fn expected(&self) -> BTreeSet<Arc<str>> {
        match (&self.named, &self.bound) {
            (Some(named), _) => named.clone(),
            (None, Some(bound)) => {
                bound.iter().filter(|name| self.judge(name).is_ok()).map(|name| Arc::from(*name)).collect()
            }
            (None, None) => BTreeSet::new(),
        }
    }

    /// Cluster names in `sheave.dev/drain`.
    pub(super) fn drained(&self) -> &[String] {
        &self.drained
    }
}

/// Reports fields of older versions that name clusters. Current Karmada ignores them, so that an object with only these applies to
/// all clusters.
fn report_legacy_fields(service: &MultiClusterService, report: &mut Report) {
    let spec = &service.spec;
    for (field, names) in [
        ("spec.serviceProvisionClusters", &spec.service_provision_clusters),
        ("spec.range.clusterNames", &spec.range.cluster_names),
    ] {
        if !names.is_empty() {
            let message = "Karmada ignores it, and so does Sheave; use spec.providerClusters, without which all clusters count";
            report.add(reason::LEGACY_FIELD, field, None, message);
        }
    }
}

fn nobody(name: &str, fleet: &KarmadaObjects) -> String {
    let known = fleet.clusters.keys().map(|name| &**name);
    match text::closest(name, known) {
        Some(near) => format!("no member cluster is called {name:?}; did you mean {near:?}?"),
        None => format!("no member cluster is called {name:?}; nothing is served from it"),
    }
}

/// Why a cluster is being drained, if it is. `NoSchedule` taints concern new replicas and not traffic; Karmada itself adds them
/// to clusters that it cannot reach.
fn drain(cluster: &Cluster) -> Option<DrainReason> {
    if asked_to_drain(cluster) == Some("true") {
        return Some(DrainReason::Annotated);
    }
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some(DrainReason::Deleted);
    }
    if let Some(taint) = cluster.spec.taints.iter().find(|taint| taint.effect == "NoExecute") {
        return Some(DrainReason::Taint(taint.key.clone()));
    }
    cluster
        .status
        .remedy_actions
        .iter()
        .any(|it| it == "TrafficControl")
        .then_some(DrainReason::TrafficControl)
}

/// Value of the drain annotation on a Cluster.
fn asked_to_drain(cluster: &Cluster) -> Option<&str> {
    cluster.metadata.annotations.as_ref()?.get(DRAIN).map(|value| value.trim())
}

fn ready(cluster: &Cluster) -> Option<bool> {
    let condition = cluster.status.conditions.iter().find(|it| it.type_ == "Ready")?;
    Some(condition.status == "True")
}

/// Time until which a cluster that is not Ready still gets new traffic.
pub(super) fn held_until(cluster: &Cluster, hold: Duration) -> Option<Timestamp> {
    let condition = cluster.status.conditions.iter().find(|it| it.type_ == "Ready" && it.status != "True")?;
    let hold = SignedDuration::try_from(hold).ok()?;
    condition.last_transition_time.0.checked_add(hold).ok()
}
