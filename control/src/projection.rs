//! The projection: derives the routing table and the list of Problems from the objects of a cluster.
//!
//! The inner step is a pure function: one Service with its slices and addresses results in its frontends (`frontends`). Around
//! it, a reconcile pass (`reconcile`) resolves what Services share: addresses (`addresses`, `allocation_order`), address and port
//! pairs that several claim (`conflicts`), and endpoints that are frontends of ours. A pass projects only Services that may have
//! changed, and an unchanged frontend keeps its `Arc`.
#![doc = include_str!("projection/fields.md")]

mod absent;
mod addresses;
mod age;
mod allocation_order;
mod allocator;
mod annotations;
pub mod announce_claims;
mod class;
mod conflicts;
mod eligibility;
mod endpoints;
pub mod explain;
mod families;
mod frontends;
pub mod gateway_api;
mod health_checks;
mod multi_cluster;
mod nodes;
mod options;
mod plan;
mod ports;
mod published;
mod read_service;
mod reconcile;
mod requests;
mod service_addresses;
pub mod service_health;
mod shared_addresses;
mod source_ranges;
mod status;
mod unplanned_status;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use sheave_model::RoutingTable;
use sheave_model::{Frontend, FrontendAddr, FrontendKind};

pub use self::absent::AbsentEndpoints;
use self::addresses::AllocatedAddresses;
use self::allocation_order::WaitList;
pub(crate) use self::allocator::AddressRange;
use self::allocator::Allocator;
pub use self::allocator::{AnnouncePolicies, AnnouncePolicy, NodeFamilies};
pub(crate) use self::annotations::gateway_api::{IP_FAMILIES, SOURCE_RANGES};
pub(crate) use self::annotations::{ACCEPT_PROXY, ADDRESS_POOL, ADDRESSES, BALANCE, CLIENT_SOURCE, PREFIX};
use self::conflicts::Claims;
use self::endpoints::interner::NameInterner;
use self::gateway_api::frontends::ListenerFrontends;
use self::gateway_api::outcome::{GatewayOutcome, RouteParent};
pub use self::health_checks::HealthCheck;
use self::health_checks::HealthChecks;
use self::nodes::ClusterContext;
pub use self::options::{
    Authority, GATEWAY_CONTROLLER, KarmadaOptions, LARGEST_CONNECTION_LIMIT, LARGEST_RATE_LIMIT, Options,
    RESERVED_PORTS, Role,
};
use self::plan::Plan;
pub use self::published::Published;
use self::reconcile::PassScope;
use self::service_addresses::ServiceAddresses;
use self::service_health::{Fault, GatewayScope, Live, ServiceState};
use self::shared_addresses::LocalSharing;
pub use self::shared_addresses::SharedAddresses;
pub(crate) use self::source_ranges::SOURCE_RANGES_OF_SERVICE;
pub use self::status::{
    ClusterState, DrainReason, IP_MODE, Ingress, LoadBalancerStatus, MemberClusterStatus, MultiClusterStatus,
    NoEndpoints, PortStatus, ResolvedRefs, port_error,
};
use crate::api::address_pool::AddressPool;
use crate::api::gateway_api::{GatewayClass, ParentReference, RouteKey};
use crate::api::problem::{Problem, ProblemChanges, ProblemSet};
use crate::api::routes::{AnyRoute, ParentKey};
use crate::api::store::{Dirty, Objects, ServiceKey};

/// Result of a projection.
#[derive(Clone, Debug)]
pub struct Projection {
    /// The table; the same `Arc` as before unless `changed`.
    pub table: Arc<RoutingTable>,
    /// Problems that came or went; [`Projector::problems`] has all of them.
    pub problem_changes: ProblemChanges,
    /// All Problems.
    #[cfg(test)]
    pub(crate) problems: Vec<Arc<Problem>>,
    /// Whether the table differs from the previous one.
    pub changed: bool,
    /// Services that were processed. The status of all others is unchanged.
    pub touched: BTreeSet<ServiceKey>,
    /// Health check node ports to serve, sorted by key.
    pub health_checks: Arc<[HealthCheck]>,
    /// Whether load balancers may send traffic to this node.
    pub node_eligible: bool,
    /// Addresses of this node from its Node object.
    pub node_addresses: Vec<IpAddr>,
    /// Addresses of all nodes. They belong to the nodes, whatever else claims them.
    pub all_node_addresses: Arc<BTreeSet<IpAddr>>,
    /// How gateways announce the addresses of pools, if pools are known.
    pub announce_policies: Arc<AnnouncePolicies>,
    /// Services with the policy `Local` that share an address.
    pub shared_addresses: Arc<SharedAddresses>,
    /// Time of the next projection even if no object changes by then: a cluster that is not Ready will be held off.
    pub due: Option<Timestamp>,
}

/// Projects the objects of a cluster repeatedly, each time with no more work than the changes require.
///
/// The same objects result in the same table, in whatever order they came. The one intended exception is that a Service keeps the
/// address that a pool gave it.
#[derive(Clone, Debug)]
pub struct Projector {
    options: Options,
    cluster: Arc<str>,
    started: bool,
    context: ClusterContext,
    /// Pools that the allocator has read; `None` before the first time.
    pools: Option<KnownPools>,
    allocator: Allocator,
    announce_policies: Arc<AnnouncePolicies>,
    /// Services that wait for addresses of others.
    waiting: WaitList,
    claims: Claims,
    sharing: LocalSharing,
    service_addresses: ServiceAddresses,
    /// Addresses of nodes that came or went since the last pass.
    changed_nodes: BTreeSet<IpAddr>,
    names: NameInterner,
    services: BTreeMap<ServiceKey, ProjectedService>,
    /// What writes publish that were sent and that the objects do not show yet.
    sent: BTreeMap<ServiceKey, Published>,
    /// Objects whose `sent` has changed since the last projection.
    sent_changed: BTreeSet<ServiceKey>,
    /// Keys of `services` that have a status.
    published: BTreeSet<ServiceKey>,
    health_checks: HealthChecks,
    frontends: BTreeMap<FrontendAddr, Arc<Frontend>>,
    /// Services that Gateways send traffic to, each with the Gateway.
    backends: BTreeSet<(ServiceKey, ServiceKey)>,
    /// Endpoints of Services, as the frontends that they would be.
    reached: BTreeSet<(FrontendAddr, ServiceKey)>,
    table: Arc<RoutingTable>,
    /// Problems of Services, and under `None` those of Nodes and pools.
    problems: ProblemSet<Option<ServiceKey>>,
    /// Current time, once it is set.
    now: Option<Timestamp>,
    /// Time of the next change that only the time causes.
    due: Option<Timestamp>,
    /// Whether it decides about other MultiClusterServices than in the last projection.
    authority_changed: bool,
    /// Whether the networks of the gateways' own cluster have changed since the last projection.
    own_networks_changed: bool,
    /// Whether the options have changed since the last projection.
    options_changed: bool,
}

/// State of a Service between passes.
#[derive(Clone, Debug, Default)]
struct ProjectedService {
    allocated: AllocatedAddresses,
    frontends: Vec<Arc<Frontend>>,
    /// Its endpoints, as the frontends that they would be, sorted. The Service must be projected again when one of them becomes a
    /// frontend or stops being one.
    reached: Vec<FrontendAddr>,
    status: Option<LoadBalancerStatus>,
    /// State of the clusters of a MultiClusterService.
    fleet: Option<MultiClusterStatus>,
    /// A Gateway's plan, decisions and frontends.
    gateway: Option<Box<ProjectedGateway>>,
    /// Problems in addition to those of `allocated`.
    problems: Vec<Problem>,
    /// Uid: an object with the same name and another uid is another Service.
    uid: Option<String>,
    /// Addresses in its status at the last projection, if another installation decides about it.
    seen: Option<Vec<IpAddr>>,
}

/// State of a Gateway between passes.
#[derive(Clone, Debug)]
struct ProjectedGateway {
    plan: Arc<Plan>,
    outcome: Arc<GatewayOutcome>,
    /// Frontends by listener, to keep those of listeners that do not change.
    listeners: Vec<ListenerFrontends>,
    /// Services that its listeners send traffic to, sorted.
    backends: Vec<ServiceKey>,
}

impl Projector {
    /// A projector without objects; its table is empty.
    pub fn new(options: Options) -> Self {
        Self {
            cluster: options.cluster.as_str().into(),
            options,
            started: false,
            context: ClusterContext::default(),
            pools: None,
            allocator: Allocator::default(),
            announce_policies: Arc::default(),
            waiting: WaitList::default(),
            claims: Claims::default(),
            sharing: LocalSharing::default(),
            service_addresses: ServiceAddresses::default(),
            changed_nodes: BTreeSet::new(),
            names: NameInterner::default(),
            services: BTreeMap::new(),
            sent: BTreeMap::new(),
            sent_changed: BTreeSet::new(),
            published: BTreeSet::new(),
            health_checks: HealthChecks::default(),
            frontends: BTreeMap::new(),
            backends: BTreeSet::new(),
            reached: BTreeSet::new(),
            table: Arc::default(),
            problems: ProblemSet::default(),
            now: None,
            due: None,
            authority_changed: false,
            own_networks_changed: false,
            options_changed: false,
        }
    }

    /// Name of the cluster that the gateways run in.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Sets the time for the next projections. Until it is set, clusters that are not Ready are never held off.
    pub fn set_now(&mut self, now: Timestamp) {
        if self.now.replace(now).is_none() {
            self.due = Some(now);
        }
    }

    /// Sets the MultiClusterServices that this installation decides about, from the next projection on.
    pub fn set_authority(&mut self, authority: Authority) {
        self.authority_changed |=
            std::mem::replace(&mut self.options.fleet.authority, authority) != authority;
    }

    /// Sets what writes publish that were sent and may take effect, beyond what the objects of the next projection publish. It belongs
    /// to these objects until then.
    pub fn set_sent(&mut self, sent: BTreeMap<ServiceKey, Published>) {
        let (before, now) = (&self.sent, &sent);
        let differs = |key: &&ServiceKey| before.get(*key) != now.get(*key);
        self.sent_changed.extend(before.keys().chain(now.keys()).filter(differs).cloned());
        self.sent = sent;
    }

    /// Sets the options from the next projection on. Node, cluster, class, role and authority keep their values, because earlier
    /// allocations and statuses depend on them.
    pub fn set_options(&mut self, options: Options) {
        let Options { node, cluster, load_balancer_class, role, .. } = self.options.clone();
        let authority = self.options.fleet.authority;
        let fleet = KarmadaOptions { authority, ..options.fleet };
        let options = Options { node, cluster, load_balancer_class, role, fleet, ..options };
        self.options_changed |= self.options != options;
        self.options = options;
    }

    /// Updates the table. `dirty` names what changed in `objects` since the last call. The first call processes everything,
    /// whatever `dirty` is.
    pub fn project(&mut self, objects: &Objects, dirty: &Dirty) -> Projection {
        let mut keys = match dirty {
            Dirty::Services(keys) | Dirty::Shared(keys) => keys.clone(),
            Dirty::Nothing | Dirty::Everything => BTreeSet::new(),
        };
        keys.append(&mut self.sent_changed);
        let first = !std::mem::replace(&mut self.started, true);
        let reconfigured = std::mem::take(&mut self.options_changed);
        let unknown = first || reconfigured || *dirty == Dirty::Everything;
        if unknown || matches!(dirty, Dirty::Shared(_)) || self.options.role.depends_on(&keys) {
            let suffices = self.refresh(objects);
            if unknown || !suffices {
                let all = objects.services.keys().chain(objects.fleet.services.keys());
                let all = all.chain(objects.gateway_api.gateways.keys());
                keys.extend(all.chain(self.services.keys()).cloned());
            }
        }
        let due = self.now.zip(self.due).is_some_and(|(now, due)| due <= now);
        if std::mem::take(&mut self.authority_changed) || due {
            keys.extend(objects.fleet.services.keys().cloned());
        }
        if std::mem::take(&mut self.own_networks_changed) {
            // Those with endpoints in other clusters, as Gateways have them by ServiceImports.
            let elsewhere =
                self.services.iter().filter(|(_, known)| known.fleet.is_some() || known.gateway.is_some());
            keys.extend(elsewhere.map(|(key, _)| key.clone()));
        }
        self.due = self.options.fleet.not_ready_hold.and_then(|hold| {
            self.now.and_then(|now| multi_cluster::next_hold_off(&objects.fleet, hold, now))
        });
        if keys.is_empty() && *dirty == Dirty::Nothing && !first && !reconfigured {
            return self.answer(false, BTreeSet::new());
        }
        let scope = if unknown { PassScope::Everything } else { PassScope::Changes };
        let (changes, touched) = self.pass(objects, keys, scope, first);
        let changed = !changes.is_empty() || self.table.internal_clients() != &self.context.internal;
        if changed {
            self.table = Arc::new(self.table.with(&changes, self.context.internal.clone()));
        }
        self.answer(changed, touched)
    }

    /// Statuses of all Services that are served as load balancers, sorted by key.
    pub fn statuses(&self) -> impl Iterator<Item = &LoadBalancerStatus> {
        self.services.values().filter_map(|projected| projected.status.as_ref())
    }

    /// Number of [`Self::statuses`].
    pub fn published(&self) -> usize {
        self.published.len()
    }

    /// Status of a Service, if it is served as a load balancer.
    pub fn status(&self, key: &ServiceKey) -> Option<&LoadBalancerStatus> {
        self.services.get(key)?.status.as_ref()
    }

    /// State of a MultiClusterService's clusters, if this installation serves it.
    pub fn fleet_status(&self, key: &ServiceKey) -> Option<&MultiClusterStatus> {
        self.services.get(key)?.fleet.as_ref()
    }

    /// Decisions about a Gateway, if this installation implements it.
    pub fn gateway(&self, key: &ServiceKey) -> Option<&Arc<GatewayOutcome>> {
        Some(&self.services.get(key)?.gateway.as_ref()?.outcome)
    }

    /// Whether this installation implements Gateways of the class.
    pub fn implements(&self, class: &GatewayClass) -> bool {
        self.options.gateway_controller.as_deref() == Some(class.spec.controller_name.as_str())
    }

    /// The Gateways that this installation implements.
    pub fn gateways(&self) -> impl Iterator<Item = (&ServiceKey, &Arc<GatewayOutcome>)> {
        self.services.iter().filter_map(|(key, known)| Some((key, &known.gateway.as_ref()?.outcome)))
    }

    /// State of a route at each of its parents that this installation implements, in the order of the spec.
    pub fn route_parents(&self, route: &AnyRoute, objects: &Objects) -> Vec<&RouteParent> {
        let key = route.key();
        let refs = route.spec().parent_refs.iter();
        refs.filter_map(|reference| self.route_parent(&key, reference, objects)).collect()
    }

    /// State of a route at one of its parents, if this installation implements that.
    fn route_parent(
        &self,
        route: &RouteKey,
        reference: &ParentReference,
        objects: &Objects,
    ) -> Option<&RouteParent> {
        let gateway = gateway_of(reference, &route.namespace, objects)?;
        let parents = self.gateway(&gateway)?.routes.get(route)?;
        parents.iter().find(|parent| parent.reference == *reference)
    }

    /// Whether a MultiClusterService is left unchanged for other installations.
    pub fn leaves_alone(&self, key: &ServiceKey, objects: &Objects) -> bool {
        let Some(service) = objects.fleet.services.get(key) else { return false };
        multi_cluster::is_left_alone(service, multi_cluster::template(&objects.fleet, key), &self.options)
    }

    /// Faults of the load balancer frontends of a Service, for clients that may reach any gateway.
    pub fn faults(&self, key: &ServiceKey) -> Vec<(FrontendAddr, Fault)> {
        let gateways = GatewayScope::Of { cluster: &self.cluster, nodes: &self.context.gateways };
        let frontends = self.services.get(key).map(|known| known.frontends.as_slice()).unwrap_or_default();
        let frontends = frontends.iter().filter(|frontend| frontend.kind == FrontendKind::LoadBalancer);
        let fault_of = |it: &Frontend| match service_health::fault_of(it, gateways, Live::default()) {
            Some(fault) if fault.state() == ServiceState::Broken => Some(fault),
            _ if self.sharing.is_unserved(key, it.addr.ip) => Some(Fault::NoCommonNode),
            other => other,
        };
        frontends.filter_map(|it| Some((it.addr, fault_of(it)?))).collect()
    }

    /// All Problems, sorted and without duplicates.
    pub fn problems(&self) -> impl Iterator<Item = &Arc<Problem>> {
        self.problems.iter()
    }

    /// Problems of a Service, sorted.
    pub fn problems_of(&self, key: &ServiceKey) -> Vec<Problem> {
        self.problems.of(&Some(key.clone())).map(|problem| (**problem).clone()).collect()
    }

    /// Name of each pool, the number of its addresses that Services have, and the number that is free.
    pub fn pool_usage(&self) -> impl Iterator<Item = (&Arc<str>, usize, u128)> {
        self.allocator.usage()
    }

    /// How gateways announce the addresses of pools, as of the last projection.
    pub fn announce_policies(&self) -> &AnnouncePolicies {
        &self.announce_policies
    }

    /// Whether the frontends of all Services are those of the table, each once.
    #[cfg(test)]
    fn is_consistent(&self) -> bool {
        let mut all = self.services.values().flat_map(|known| &known.frontends);
        let count = all.clone().count();
        let is_in_force =
            |it: &Arc<Frontend>| self.frontends.get(&it.addr).is_some_and(|there| Arc::ptr_eq(it, there));
        all.all(is_in_force) && count == self.frontends.len() && count == self.table.frontends().len()
    }

    /// Reads the objects that any Service may depend on. Returns whether all Services stay as they are.
    fn refresh(&mut self, objects: &Objects) -> bool {
        let gateways = nodes::gateway_nodes(&self.options.role, objects);
        let (context, problems) = nodes::read(&self.options, &objects.nodes, &gateways);
        let mut suffices = context.suffice(&self.context);
        let has_read = |pools: &KnownPools| suffices && pools.hold_for(objects);
        if self.options.role != Role::Gateway && !self.pools.as_ref().is_some_and(has_read) {
            suffices = false;
            let (pools, namespaces_known) = (objects.pools.clone(), !objects.namespaces.is_empty());
            let problems = self.allocator.set_pools(&pools, namespaces_known, &context.gateway_nodes);
            self.pools = Some(KnownPools { pools, namespaces_known, problems });
        }
        let (before, now) = (&self.context.of_all_nodes, &context.of_all_nodes);
        self.changed_nodes.extend(before.symmetric_difference(now));
        self.sharing.outdated |= before != now;
        self.own_networks_changed |= self.context.own_networks != context.own_networks;
        self.context = context;
        let (policies, of_policies) = AnnouncePolicies::read(&objects.pools, &objects.nodes);
        if *self.announce_policies != policies {
            self.announce_policies = Arc::new(policies);
            self.sharing.outdated = true;
        }
        let of_pools = self.pools.iter().flat_map(|pools| &pools.problems);
        self.problems.set(None, problems.iter().chain(of_pools).chain(&of_policies));
        suffices
    }

    fn answer(&mut self, changed: bool, touched: BTreeSet<ServiceKey>) -> Projection {
        Projection {
            table: self.table.clone(),
            problem_changes: self.problems.take_changes(),
            #[cfg(test)]
            problems: self.problems.iter().cloned().collect(),
            changed,
            touched,
            health_checks: self.health_checks.list(),
            node_eligible: self.context.eligible,
            node_addresses: self.context.addresses.clone(),
            all_node_addresses: Arc::clone(&self.context.of_all_nodes),
            announce_policies: Arc::clone(&self.announce_policies),
            shared_addresses: Arc::clone(self.sharing.shared()),
            due: self.due,
        }
    }
}

/// The Gateway that a parentRef of an object in `own` leads to, directly or through a ListenerSet.
fn gateway_of(reference: &ParentReference, own: &str, objects: &Objects) -> Option<ServiceKey> {
    objects.gateway_api.gateway_behind(ParentKey::of(reference, own)?)
}

/// Pools as the allocator has read them.
#[derive(Clone, Debug)]
pub(super) struct KnownPools {
    pub(super) pools: BTreeMap<Arc<str>, Arc<AddressPool>>,
    /// Whether any Namespace is known. Without one, only names of Namespaces can be selected.
    pub(super) namespaces_known: bool,
    pub(super) problems: Vec<Problem>,
}

impl KnownPools {
    /// Whether the pools in `objects` are the same.
    pub(super) fn hold_for(&self, objects: &Objects) -> bool {
        let same = |(old, new): (&Arc<AddressPool>, &Arc<AddressPool>)| {
            Arc::ptr_eq(old, new) || old.spec == new.spec
        };
        self.namespaces_known != objects.namespaces.is_empty()
            && self.pools.keys().eq(objects.pools.keys())
            && self.pools.values().zip(objects.pools.values()).all(same)
    }
}

#[cfg(test)]
mod tests;
