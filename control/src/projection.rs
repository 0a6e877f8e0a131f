//! The projection: from the objects of a cluster to the routing table and the list of Problems.
//!
//! The inner step is pure: one Service with its slices and addresses gives its frontends (`frontends`). Around it, a reconcile
//! pass (`reconcile`) settles what Services share: addresses (`addresses`, `allocation_order`), who owns an address and port that
//! several claim (`conflicts`), and that no endpoint is a frontend of ours. Only Services that a pass can have changed are
//! projected again, and a frontend that is equal keeps its `Arc`.
#![doc = include_str!("projection/fields.md")]

mod addresses;
mod allocation_order;
mod allocator;
mod annotations;
mod class;
mod conflicts;
mod eligibility;
mod endpoints;
pub mod explain;
mod families;
mod frontends;
mod health_checks;
mod kept;
mod multi_cluster;
mod nodes;
mod options;
mod plan;
mod planner;
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

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use sheave_model::RoutingTable;
use sheave_model::{Frontend, FrontendAddr, FrontendKind};

use self::addresses::AllocatedAddresses;
use self::allocation_order::WaitList;
pub(crate) use self::allocator::AddressRange;
use self::allocator::Allocator;
pub use self::allocator::{AnnouncePolicies, AnnouncePolicy, NodeFamilies};
pub(crate) use self::annotations::{ADDRESS_POOL, ADDRESSES, BALANCE};
use self::conflicts::Claims;
use self::endpoints::interner::NameInterner;
pub use self::health_checks::HealthCheck;
use self::health_checks::HealthChecks;
use self::nodes::ClusterContext;
pub use self::options::{
    Authority, FleetOptions, LARGEST_CONNECTION_LIMIT, LARGEST_RATE_LIMIT, Options, RESERVED_PORTS, Role,
};
use self::service_addresses::ServiceAddresses;
use self::service_health::{Fault, GatewayScope, Live, ServiceState};
use self::shared_addresses::LocalSharing;
pub use self::shared_addresses::{SharedAddresses, common_nodes, nodes_with_endpoints};
pub use self::status::{
    ClusterState, DrainReason, FleetStatus, Ingress, LoadBalancerStatus, MemberClusterStatus, NoEndpoints,
    PortStatus, ResolvedRefs, port_error,
};
use crate::api::address_pool::AddressPool;
use crate::api::problem::{Problem, ProblemChanges, ProblemSet};
use crate::api::store::{Dirty, Objects, ServiceKey};

/// The result of a projection.
#[derive(Clone, Debug)]
pub struct Projection {
    /// The table; the very same `Arc` as before unless `changed`.
    pub table: Arc<RoutingTable>,
    /// What users should know, and no longer need to; [`Projector::problems`] has all of it.
    pub problem_changes: ProblemChanges,
    /// All of it.
    #[cfg(test)]
    pub(crate) problems: Vec<Arc<Problem>>,
    /// Whether the table differs from the one before.
    pub changed: bool,
    /// The Services that were looked at for it: whatever is published for others is as before.
    pub touched: BTreeSet<ServiceKey>,
    /// The health check node ports to answer on, sorted by key.
    pub health_checks: Arc<[HealthCheck]>,
    /// Whether load balancers may send traffic to this node.
    pub node_eligible: bool,
    /// All addresses of this node itself, as its Node object names them.
    pub node_addresses: Vec<IpAddr>,
    /// All addresses of all nodes, which are theirs whatever else has them.
    pub all_node_addresses: Arc<BTreeSet<IpAddr>>,
    /// How gateways announce the addresses of pools, as far as pools are known.
    pub announce_policies: Arc<AnnouncePolicies>,
    /// Which Services under `Local` share an address.
    pub shared_addresses: Arc<SharedAddresses>,
    /// When to project again, although nothing may have changed by then: a cluster that is not Ready will be held off.
    pub due: Option<Timestamp>,
}

/// Projects a cluster's objects again and again, each time doing no more than what changed asks for.
///
/// From the same objects it gives the same table, however they came: with one exception that is wanted, that a Service
/// keeps the address which a pool gave it.
#[derive(Clone, Debug)]
pub struct Projector {
    options: Options,
    cluster: Arc<str>,
    started: bool,
    context: ClusterContext,
    /// The pools that the allocator has read; none before the first time.
    pools: Option<KnownPools>,
    allocator: Allocator,
    announce_policies: Arc<AnnouncePolicies>,
    /// Services that wait for addresses which others have.
    waiting: WaitList,
    claims: Claims,
    sharing: LocalSharing,
    service_addresses: ServiceAddresses,
    /// Addresses of nodes that came or went since the last pass.
    changed_nodes: BTreeSet<IpAddr>,
    names: NameInterner,
    services: BTreeMap<ServiceKey, ProjectedService>,
    /// Those of `services` that have a status.
    published: BTreeSet<ServiceKey>,
    health_checks: HealthChecks,
    frontends: BTreeMap<FrontendAddr, Arc<Frontend>>,
    /// Which Services have which endpoints, as the frontends that these would be.
    reached: BTreeSet<(FrontendAddr, ServiceKey)>,
    table: Arc<RoutingTable>,
    /// Of Services, and those of Nodes and pools, which are no Service's.
    problems: ProblemSet<Option<ServiceKey>>,
    /// The time, once it is set.
    now: Option<Timestamp>,
    /// When the time alone makes a difference.
    due: Option<Timestamp>,
    /// It decides about other MultiClusterServices than at the last projection.
    authority_changed: bool,
    /// The networks of the gateways' own cluster are others than at the last projection.
    own_networks_changed: bool,
    /// Its options are others than at the last projection.
    options_changed: bool,
}

/// What is kept of a Service between passes.
#[derive(Clone, Debug, Default)]
struct ProjectedService {
    allocated: AllocatedAddresses,
    frontends: Vec<Arc<Frontend>>,
    /// Its endpoints, as the frontends that they would be, sorted: whether one of them is a frontend makes a difference to it.
    reached: Vec<FrontendAddr>,
    status: Option<LoadBalancerStatus>,
    /// The state of its clusters, of a MultiClusterService.
    fleet: Option<FleetStatus>,
    /// Problems in addition to those of `allocated`.
    problems: Vec<Problem>,
    /// An object of the same name with another uid is another Service.
    uid: Option<String>,
    /// The addresses that its status had when it was last looked at, while another installation decides about it.
    seen: Option<Vec<IpAddr>>,
}

impl Projector {
    /// A projector that has seen nothing; its table is empty.
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
            published: BTreeSet::new(),
            health_checks: HealthChecks::default(),
            frontends: BTreeMap::new(),
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

    /// The name of the cluster that the gateways run in.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Sets the time for the next projections. Until it is set, clusters that are not Ready are never held off.
    pub fn set_now(&mut self, now: Timestamp) {
        if self.now.replace(now).is_none() {
            self.due = Some(now);
        }
    }

    /// Sets which MultiClusterServices are decided about from the next projection on.
    pub fn set_authority(&mut self, authority: Authority) {
        self.authority_changed |=
            std::mem::replace(&mut self.options.fleet.authority, authority) != authority;
    }

    /// Projects by these options from the next projection on. The node, the cluster, the class, the role and the authority stay what
    /// they are: what was allocated and published so far is by them.
    pub fn set_options(&mut self, options: Options) {
        let Options { node, cluster, load_balancer_class, role, .. } = self.options.clone();
        let authority = self.options.fleet.authority;
        let fleet = FleetOptions { authority, ..options.fleet };
        let options = Options { node, cluster, load_balancer_class, role, fleet, ..options };
        self.options_changed |= self.options != options;
        self.options = options;
    }

    /// Brings the table up to date. `dirty` names what changed in `objects` since the last call; the first call takes
    /// everything, whatever `dirty` is.
    pub fn project(&mut self, objects: &Objects, dirty: &Dirty) -> Projection {
        let mut keys = match dirty {
            Dirty::Services(keys) | Dirty::Shared(keys) => keys.clone(),
            Dirty::Nothing | Dirty::Everything => BTreeSet::new(),
        };
        let first = !std::mem::replace(&mut self.started, true);
        let reconfigured = std::mem::take(&mut self.options_changed);
        let unknown = first || reconfigured || *dirty == Dirty::Everything;
        if unknown || matches!(dirty, Dirty::Shared(_)) || self.options.role.depends_on(&keys) {
            let suffices = self.refresh(objects);
            if unknown || !suffices {
                let all = objects.services.keys().chain(objects.fleet.services.keys());
                keys.extend(all.chain(self.services.keys()).cloned());
            }
        }
        let due = self.now.zip(self.due).is_some_and(|(now, due)| due <= now);
        if std::mem::take(&mut self.authority_changed) || due {
            keys.extend(objects.fleet.services.keys().cloned());
        }
        if std::mem::take(&mut self.own_networks_changed) {
            let elsewhere = self.services.iter().filter(|(_, known)| known.fleet.is_some());
            keys.extend(elsewhere.map(|(key, _)| key.clone()));
        }
        self.due = self.options.fleet.not_ready_hold.and_then(|hold| {
            self.now.and_then(|now| multi_cluster::next_hold_off(&objects.fleet, hold, now))
        });
        if keys.is_empty() && *dirty == Dirty::Nothing && !first && !reconfigured {
            return self.answer(false, BTreeSet::new());
        }
        let (changes, touched) = self.pass(objects, keys, first);
        let changed = !changes.is_empty() || self.table.internal_clients() != &self.context.internal;
        if changed {
            self.table = Arc::new(self.table.with(&changes, self.context.internal.clone()));
        }
        self.answer(changed, touched)
    }

    /// What would be published for each Service that is ours as a load balancer, sorted by key.
    pub fn statuses(&self) -> impl Iterator<Item = &LoadBalancerStatus> {
        self.services.values().filter_map(|projected| projected.status.as_ref())
    }

    /// How many [`Self::statuses`] there are.
    pub fn published(&self) -> usize {
        self.published.len()
    }

    /// What would be published for a Service, if it is ours as a load balancer.
    pub fn status(&self, key: &ServiceKey) -> Option<&LoadBalancerStatus> {
        self.services.get(key)?.status.as_ref()
    }

    /// The state of a MultiClusterService's clusters, if it is ours.
    pub fn fleet_status(&self, key: &ServiceKey) -> Option<&FleetStatus> {
        self.services.get(key)?.fleet.as_ref()
    }

    /// Whether a MultiClusterService is left to other installations as it is.
    pub fn leaves_alone(&self, key: &ServiceKey, objects: &Objects) -> bool {
        let Some(service) = objects.fleet.services.get(key) else { return false };
        multi_cluster::is_left_alone(service, multi_cluster::template(&objects.fleet, key), &self.options)
    }

    /// What is wrong with the load balancer frontends of a Service, for clients who may come to any gateway.
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

    /// Everything that is wrong, sorted, each once.
    pub fn problems(&self) -> impl Iterator<Item = &Arc<Problem>> {
        self.problems.iter()
    }

    /// What is wrong with a Service, sorted.
    pub fn problems_of(&self, key: &ServiceKey) -> Vec<Problem> {
        self.problems.of(&Some(key.clone())).map(|problem| (**problem).clone()).collect()
    }

    /// Per pool its name, how many of its addresses Services have, and how many can still be given.
    pub fn pool_usage(&self) -> impl Iterator<Item = (&Arc<str>, usize, u128)> {
        self.allocator.usage()
    }

    /// How gateways announce the addresses of pools, as of the last projection.
    pub fn announce_policies(&self) -> &AnnouncePolicies {
        &self.announce_policies
    }

    /// Reads what any Service may depend on; whether all of them come out as before by it.
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

/// The pools as the allocator has read them.
#[derive(Clone, Debug)]
pub(super) struct KnownPools {
    pub(super) pools: BTreeMap<Arc<str>, Arc<AddressPool>>,
    /// Where none is, only their names can be selected.
    pub(super) namespaces_known: bool,
    pub(super) problems: Vec<Problem>,
}

impl KnownPools {
    /// Whether they are as they were then.
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
