//! Addresses that several Services with `externalTrafficPolicy: Local` share. A gateway with such an address serves the Services
//! with an endpoint on its node and drops traffic for the others, so a Service without a node in common with those before it gets
//! an error. MetalLB and Cilium refuse such sharing by comparing selectors; here the nodes decide, because Services with the same
//! nodes work.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sheave_model::{EndpointState, Frontend, FrontendAddr, FrontendKind, Protocol};

use super::{Projector, Role};
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::api::store::{Objects, ServiceKey};

/// Services with `Local` that share an address, by address, with the highest rank first.
pub type SharedAddresses = BTreeMap<IpAddr, Vec<ServiceKey>>;

/// Known shared addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct LocalSharing {
    shared: Arc<SharedAddresses>,
    /// Problems of Services that have no node in common with those before them.
    unserved: BTreeMap<ServiceKey, BTreeMap<IpAddr, Problem>>,
    /// Whether all addresses must be checked again.
    pub(super) outdated: bool,
}

impl LocalSharing {
    pub(super) fn shared(&self) -> &Arc<SharedAddresses> {
        &self.shared
    }

    pub(super) fn problems(&self, key: &ServiceKey) -> impl Iterator<Item = &Problem> {
        self.unserved.get(key).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn is_unserved(&self, key: &ServiceKey, ip: IpAddr) -> bool {
        self.unserved.get(key).is_some_and(|problems| problems.contains_key(&ip))
    }

    /// Sets the Services that share an address and their Problems. Returns the Services whose Problems may have changed.
    fn set(
        &mut self,
        ip: IpAddr,
        services: Vec<ServiceKey>,
        unserved: Vec<(ServiceKey, Problem)>,
    ) -> Vec<ServiceKey> {
        let before = self.shared.get(&ip);
        let mut concerned = before.cloned().unwrap_or_default();
        if before != Some(&services) && (before.is_some() || !services.is_empty()) {
            let shared = Arc::make_mut(&mut self.shared);
            if services.is_empty() {
                shared.remove(&ip)
            } else {
                shared.insert(ip, services)
            };
        }
        concerned.retain(|key| {
            let Some(problems) = self.unserved.get_mut(key) else { return false };
            let had = problems.remove(&ip).is_some();
            if problems.is_empty() {
                self.unserved.remove(key);
            }
            had
        });
        for (key, problem) in unserved {
            self.unserved.entry(key.clone()).or_default().insert(ip, problem);
            concerned.push(key);
        }
        concerned
    }
}

/// The nodes that serve all of these Services, given highest rank first, and the Services without a node in common with those
/// before them. The latter are ignored for the nodes, and so are Services without any node.
pub(super) fn common_nodes<K>(
    services: impl IntoIterator<Item = (K, BTreeSet<Arc<str>>)>,
) -> (BTreeSet<Arc<str>>, Vec<K>) {
    let mut common = BTreeSet::new();
    let mut unserved = Vec::new();
    for (service, nodes) in services {
        if common.is_empty() {
            common = nodes;
        } else if !common.is_disjoint(&nodes) {
            common.retain(|node| nodes.contains(node));
        } else if !nodes.is_empty() {
            unserved.push(service);
        }
    }
    (common, unserved)
}

/// Nodes with a ready endpoint or, if there is none, with one that terminates but still serves, as in kube-proxy
/// (`CategorizeEndpoints` in pkg/proxy/topology.go). `cluster` is the gateways' own.
pub(super) fn nodes_with_endpoints(frontend: &Frontend, cluster: &str) -> BTreeSet<Arc<str>> {
    let endpoints = || {
        let own = frontend.backends.iter().filter(|backend| *backend.cluster == *cluster);
        own.flat_map(|backend| &backend.endpoints).filter(|endpoint| !endpoint.node.is_empty())
    };
    let nodes_of = |state| {
        endpoints()
            .filter(|endpoint| endpoint.state == state)
            .map(|endpoint| Arc::clone(&endpoint.node))
            .collect()
    };
    let ready: BTreeSet<Arc<str>> = nodes_of(EndpointState::Ready);
    if ready.is_empty() { nodes_of(EndpointState::Terminating) } else { ready }
}

impl Projector {
    /// Checks again which Services share these addresses. Returns the Services whose Problems may have changed.
    pub(super) fn check_sharing(
        &mut self,
        objects: &Objects,
        mut touched: BTreeSet<IpAddr>,
    ) -> Vec<ServiceKey> {
        if std::mem::take(&mut self.sharing.outdated) {
            touched.extend(self.frontends.keys().map(|addr| addr.ip));
        }
        let mut concerned = Vec::new();
        for ip in touched {
            let services = self.sharing_services(ip);
            // A gateway does not know the nodes of other gateways; the controller reports the Problem.
            let unserved = match self.options.role {
                Role::Gateway => Vec::new(),
                Role::Controller { .. } | Role::Standalone => without_common_node(objects, ip, &services),
            };
            let keys = services.into_iter().map(|(key, _)| key).collect();
            concerned.extend(self.sharing.set(ip, keys, unserved));
        }
        concerned
    }

    /// Services with `Local` at an address that is shared among gateways, highest rank first, with the nodes that may have the
    /// address and serve them; empty if there are fewer than two.
    fn sharing_services(&self, ip: IpAddr) -> Vec<(ServiceKey, BTreeSet<Arc<str>>)> {
        if ip.is_loopback() || self.context.of_all_nodes.contains(&ip) {
            return Vec::new();
        }
        let first = FrontendAddr { ip, port: 0, protocol: Protocol::Tcp };
        let here = self.frontends.range(first..).take_while(|(addr, _)| addr.ip == ip);
        let local = here.filter(|(_, it)| it.node_local && it.kind == FrontendKind::LoadBalancer);
        let mut services: BTreeMap<ServiceKey, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (_, frontend) in local {
            let nodes = nodes_with_endpoints(frontend, &self.cluster);
            services.entry(ServiceKey::from(&frontend.service)).or_default().extend(nodes);
        }
        if services.len() < 2 {
            return Vec::new();
        }
        let policy = self.announce_policies.of(ip);
        let gateways = &self.context.gateways;
        let mut services: Vec<_> = services.into_iter().collect();
        for (_, nodes) in &mut services {
            nodes.retain(|node| {
                (gateways.is_empty() || gateways.contains(node))
                    && policy.is_none_or(|policy| policy.selects(node))
            });
        }
        services.sort_by_cached_key(|(key, _)| self.claims.rank(key).cloned());
        services
    }
}

/// Services without a node in common with those before them, with the Problem of each.
fn without_common_node(
    objects: &Objects,
    ip: IpAddr,
    services: &[(ServiceKey, BTreeSet<Arc<str>>)],
) -> Vec<(ServiceKey, Problem)> {
    let (common, unserved) = common_nodes(services.iter().cloned());
    let unserved: BTreeSet<ServiceKey> = unserved.into_iter().collect();
    // Services with the same selector have the same Pods, and their slices are updated one after the other.
    let selector = |key: &ServiceKey| {
        let spec = objects.services.get(key)?.spec.as_ref()?;
        let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
        Some((Arc::clone(&key.namespace), selector.clone()))
    };
    let serving = |key: &ServiceKey| !unserved.contains(key);
    let selected: BTreeSet<_> =
        services.iter().filter(|(key, _)| serving(key)).filter_map(|(key, _)| selector(key)).collect();
    let Some((holder, _)) =
        services.iter().find(|(_, nodes)| nodes.is_superset(&common) && !nodes.is_empty())
    else {
        return Vec::new();
    };
    let unserved = unserved.iter().filter(|key| selector(key).is_none_or(|its| !selected.contains(&its)));
    unserved.map(|key| (key.clone(), problem(key, holder, ip))).collect()
}

fn problem(key: &ServiceKey, holder: &ServiceKey, ip: IpAddr) -> Problem {
    let mut report = Report::about(key.object());
    let message = format!(
        "Local keeps clients of {ip} on the nodes of its endpoints, and no node that may have the address has endpoints of both this one \
         and {}, which comes first: clients of this one get no answer there; set Cluster, select the same Pods, or give it another address",
        holder.object()
    );
    let field = super::plan::service_field(key, "spec.externalTrafficPolicy".to_owned());
    report.add(reason::NO_COMMON_NODE, field, None, message);
    report.into_problems().remove(0)
}
