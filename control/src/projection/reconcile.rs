//! A reconcile pass: extends the set of changed Services to all that have to be projected again because of them, plans those that
//! are ours, and computes the new frontends.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use sheave_model::{EndpointAddr, Frontend, FrontendAddr, FrontendChange, FrontendSource, Protocol};

use super::addresses::RequestContext;
use super::class::ClassMatch;
use super::conflicts::{ClaimChanges, ServiceClaims};
use super::endpoints::observer::EndpointLoop;
use super::frontends::{FrontendInput, ServiceOutput};
use super::gateway_api::frontends::GatewayChange;
use super::options::{Options, Role};
use super::plan::{Plan, Planned, Rank, Slices, service_ref};
use super::published::Published;
use super::read_service::{ServiceFields, read};
use super::service_addresses::ServiceAddressChanges;
use super::status::{MultiClusterStatus, ResolvedRefs};
use super::unplanned_status::{UnplannedStatus, foreign_addresses, unplanned_status};
use super::{
    ProjectedGateway, ProjectedService, Projector, addresses, allocation_order, annotations, class,
    frontends, gateway_api, multi_cluster,
};
use crate::api::problem::Problem;
use crate::api::problem::report::Report;
use crate::api::store::{Objects, ServiceKey};

/// State of a Service before it was retired.
#[derive(Default)]
struct Before {
    uid: Option<String>,
    held: Vec<IpAddr>,
    reserved: Vec<IpAddr>,
    /// See [`ProjectedService::seen`](super::ProjectedService::seen).
    seen: Option<Vec<IpAddr>>,
}

/// Objects that a pass projects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PassScope {
    /// Everything: nothing of the last pass need hold.
    #[default]
    Everything,
    /// Changed objects.
    Changes,
}

/// Intermediate state of a pass.
#[derive(Default)]
struct Pass {
    scope: PassScope,
    /// Whether this is the first pass, which includes every Service.
    starting: bool,
    /// Services to project, with their plans.
    plans: BTreeMap<ServiceKey, Arc<Plan>>,
    /// Services whose slices may have changed.
    backends: BTreeSet<ServiceKey>,
    /// Whether an endpoint may have become a frontend or an address that nodes forward, or ceased to be one.
    loops_changed: bool,
    touched: ClaimChanges,
    /// Addresses that other load balancers publish, of each object that was looked at.
    foreign: Vec<(ServiceKey, Vec<IpAddr>)>,
    /// Addresses of Services that came or went, which nodes forward.
    led_on: ServiceAddressChanges,
    /// Frontends of Services that went, or changed or moved when their Service was projected again. Those that are not created again are
    /// removed.
    stale: HashSet<FrontendAddr>,
    /// Frontends that are new, changed or moved.
    fresh: Vec<Arc<Frontend>>,
    /// Addresses of the frontends that were projected again, changed or not.
    addresses: BTreeSet<IpAddr>,
}

impl Pass {
    /// The frontends of a Service that had those in `before`: the same as before if they are equal. Adds what is new and what went.
    fn keep_equal(
        &mut self,
        all: &BTreeMap<FrontendAddr, Arc<Frontend>>,
        before: &[Arc<Frontend>],
        now: impl Iterator<Item = Arc<Frontend>>,
    ) -> Vec<Arc<Frontend>> {
        let mut same_place = before.iter();
        let now = now.map(|new| {
            let is_equal = |old: &&Arc<Frontend>| Arc::ptr_eq(old, &new) || ***old == *new;
            let known = same_place.next().filter(is_equal);
            known.or_else(|| all.get(&new.addr).filter(is_equal)).map(Arc::clone).unwrap_or(new)
        });
        let now: Vec<Arc<Frontend>> = now.collect();
        self.stale.extend(in_other_places(before, &now).map(|frontend| frontend.addr));
        self.fresh.extend(in_other_places(&now, before).cloned());
        self.addresses.extend(now.iter().map(|frontend| frontend.addr.ip));
        now
    }
}

impl Projector {
    /// Projects the dirty Services and all that depend on them. Returns the changed frontends by address, and all Services that
    /// were processed.
    pub(super) fn pass(
        &mut self,
        objects: &Objects,
        mut dirty: BTreeSet<ServiceKey>,
        scope: PassScope,
        starting: bool,
    ) -> (Vec<FrontendChange>, BTreeSet<ServiceKey>) {
        let mut pass = Pass { scope, starting, ..Pass::default() };
        if scope == PassScope::Changes {
            pass.backends =
                dirty.iter().filter(|key| key.source == FrontendSource::Service).cloned().collect();
            dirty.extend(self.keep_plans(&dirty, &mut pass));
        }
        let planned: BTreeSet<ServiceKey> = pass.plans.keys().cloned().collect();
        for key in dirty.difference(&planned) {
            if key.source == FrontendSource::Service {
                let service = objects.services.get(key).map(Arc::as_ref);
                self.service_addresses.set(key, service, &mut pass.led_on);
            }
            pass.foreign.push((key.clone(), foreign_addresses(key, objects, &self.options)));
            match self.plan(objects, key, scope) {
                Planned::Ours(plan) => {
                    pass.plans.insert(key.clone(), plan.into());
                }
                Planned::Foreign => {
                    let before = self.retire(key, Vec::new(), &mut pass);
                    self.keep_addresses(objects, key, before, &mut pass);
                }
                Planned::Refused(problems) => {
                    let before = self.retire(key, problems, &mut pass);
                    self.set_refused_status(objects, key);
                    self.keep_addresses(objects, key, before, &mut pass);
                }
            }
        }
        self.allocate(objects, &mut pass);
        self.claim(&mut pass);
        self.add_affected(objects, &mut pass);
        for (key, plan) in std::mem::take(&mut pass.plans) {
            self.project_one(objects, &key, &plan, &mut pass);
            dirty.insert(key);
        }
        let mut touched = std::mem::take(&mut pass.addresses);
        touched.extend(pass.stale.iter().map(|addr| addr.ip));
        let changes = self.replace(pass);
        dirty.extend(self.check_sharing(objects, touched));
        for key in &dirty {
            let known = self.services.get(key);
            let problems =
                known.into_iter().flat_map(|known| known.allocated.problems.iter().chain(&known.problems));
            self.problems.set(Some(key.clone()), problems.chain(self.sharing.problems(key)));
            if known.is_some_and(|known| known.status.is_some()) {
                self.published.insert(key.clone());
            } else {
                self.published.remove(key);
            }
        }
        (changes, dirty)
    }

    /// Gateways with a backend among `changed`, whose plans stay as they are. Adds their plans to the pass.
    fn keep_plans(&self, changed: &BTreeSet<ServiceKey>, pass: &mut Pass) -> BTreeSet<ServiceKey> {
        let mut kept = BTreeSet::new();
        for backend in &pass.backends {
            let first = (backend.clone(), ServiceKey::first());
            let there = self.backends.range(first..).take_while(|(at, _)| at == backend);
            for (_, gateway) in there.filter(|(_, gateway)| !changed.contains(gateway)) {
                if let Some(known) = self.services.get(gateway).and_then(|known| known.gateway.as_ref()) {
                    pass.plans.insert(gateway.clone(), Arc::clone(&known.plan));
                    kept.insert(gateway.clone());
                }
            }
        }
        kept
    }

    /// Plans an object.
    fn plan(&self, objects: &Objects, key: &ServiceKey, scope: PassScope) -> Planned {
        match key.source {
            FrontendSource::Service => match objects.services.get(key) {
                Some(service) => plan_service(key, service, objects.slices.get(key), &self.options),
                None => Planned::Foreign,
            },
            FrontendSource::MultiClusterService => {
                multi_cluster::plan(key, &objects.fleet, &self.options, self.now)
            }
            FrontendSource::Gateway => {
                let known = self.services.get(key).and_then(|known| known.gateway.as_ref());
                let before = known.filter(|_| scope == PassScope::Changes);
                let before = before.and_then(|known| known.plan.gateway.as_deref());
                gateway_api::plan::plan(key, objects, &self.options, before)
            }
        }
    }

    /// Adds plans of Services to the pass.
    fn add(&self, objects: &Objects, keys: impl IntoIterator<Item = ServiceKey>, pass: &mut Pass) {
        for key in keys {
            if !pass.plans.contains_key(&key)
                && let Planned::Ours(plan) = self.plan(objects, &key, pass.scope)
            {
                pass.plans.insert(key, plan.into());
            }
        }
    }

    /// Removes a Service that is not served, or no longer served, except for its Problems. Returns the addresses that it had.
    fn retire(&mut self, key: &ServiceKey, problems: Vec<Problem>, pass: &mut Pass) -> Before {
        let mut before = Before {
            uid: None,
            held: self.allocator.held(key).to_vec(),
            reserved: self.allocator.reserved(key).to_vec(),
            seen: None,
        };
        if let Some(old) = self.services.remove(key) {
            pass.stale.extend(old.frontends.iter().map(|frontend| frontend.addr));
            self.index(key, &old.reached, &[]);
            let backends = old.gateway.map(|gateway| gateway.backends).unwrap_or_default();
            self.index_backends(key, &backends, &[]);
            (before.seen, before.uid) = (old.seen, old.uid);
        }
        self.allocator.release(key);
        self.claims.release(key, &mut pass.touched);
        self.waiting.remove(key);
        self.health_checks.set(key, None);
        if !problems.is_empty() {
            self.services.insert(key.clone(), ProjectedService { problems, ..ProjectedService::default() });
        }
        before
    }

    /// Holds the addresses and ports in the status of an object that is no longer served until it is released.
    fn keep_addresses(&mut self, objects: &Objects, key: &ServiceKey, before: Before, pass: &mut Pass) {
        let unplanned = unplanned_status(key, objects, &self.options);
        let sent = self.sent.get(key).cloned().unwrap_or_default();
        let Some(unplanned) = unplanned else {
            if let Some((metadata, _)) = Published::of(key, objects).filter(|_| !sent.is_empty()) {
                let mut claims = ServiceClaims::default();
                claims.add_published(&sent);
                self.claims.set(&Rank::new(key, metadata), claims, &mut pass.touched);
                self.allocator.reserve(key, sent.addresses);
            }
            return;
        };
        let mut claims = ServiceClaims::default();
        [&unplanned.published, &sent].into_iter().for_each(|it| claims.add_published(it));
        self.claims.set(&unplanned.rank, claims, &mut pass.touched);
        if self.options.role == Role::Gateway {
            // Only a controller allocates addresses, so only a controller keeps them.
            return;
        }
        let UnplannedStatus { published, node_families, .. } = &unplanned;
        let replaced = before.uid.is_some() && before.uid != unplanned.uid;
        let Before { held, reserved, seen, .. } = if replaced { Before::default() } else { before };
        let had = [held.as_slice(), &reserved].concat();
        let is_own =
            |ip: &IpAddr| addresses::is_own(*ip, &had, *node_families, pass.starting, &self.allocator);
        let mut kept: Vec<IpAddr> = published.addresses.iter().copied().filter(is_own).collect();
        if unplanned.stays_published
            && let Some(known) = self.services.get_mut(key).filter(|_| !kept.is_empty())
        {
            known.status = Some(unplanned.reserving(&kept));
        }
        if unplanned.unseen && seen.is_none_or(|seen| seen == published.addresses) {
            let missing: Vec<IpAddr> = held.into_iter().filter(|ip| !kept.contains(ip)).collect();
            kept.extend(missing);
        }
        if !kept.is_empty() {
            let known = self.services.entry(key.clone()).or_default();
            (known.seen, known.uid) = (Some(published.addresses.clone()), unplanned.uid.clone());
        }
        self.allocator.hold_again(key, kept, *node_families);
        self.allocator.reserve(key, sent.addresses);
    }

    /// Sets the status of a MultiClusterService that is ours but not served.
    fn set_refused_status(&mut self, objects: &Objects, key: &ServiceKey) {
        if key.source == FrontendSource::MultiClusterService
            && let Some(known) = self.services.get_mut(key)
        {
            let template = multi_cluster::template(&objects.fleet, key).is_some();
            let resolved = ResolvedRefs { template, ..ResolvedRefs::default() };
            known.fleet = Some(MultiClusterStatus { resolved, ..MultiClusterStatus::default() });
        }
    }

    /// Allocates addresses for the planned Services, and for waiting ones if addresses became free.
    fn allocate(&mut self, objects: &Objects, pass: &mut Pass) {
        let role = &self.options.role;
        for plan in allocation_order::order_of_holders(pass.plans.values().map(|plan| &**plan)) {
            let key = plan.key();
            // A Service that was refused before has no recorded uid, and may keep its addresses.
            let replaced =
                self.services.get(key).is_some_and(|known| known.uid.is_some() && known.uid != plan.uid);
            if replaced && *role != Role::Standalone {
                self.allocator.release(key);
            }
            // Standalone, nothing is published by which a full build would know what it keeps.
            if plan.suspended && *role != Role::Standalone {
                let before = self.services.get(key).and_then(|known| known.seen.as_ref());
                addresses::hold_suspended(plan, before, &mut self.allocator);
                self.allocator
                    .reserve(key, self.sent.get(key).map_or_else(Vec::new, |it| it.addresses.clone()));
                continue;
            }
            let local = addresses::local_nodes(plan, role, objects);
            let known = RequestContext::new(plan, local.as_ref(), &self.context, objects);
            let mut reserved = self.sent.get(key).map_or_else(Vec::new, |sent| sent.addresses.clone());
            let published = &plan.requests.status.addresses;
            reserved.retain(|ip| !published.contains(ip));
            reserved.extend(published);
            addresses::prepare(plan, known, role, (reserved, pass.starting), &mut self.allocator);
        }
        for (key, addresses) in std::mem::take(&mut pass.foreign) {
            self.allocator.set_foreign(&key, addresses);
        }
        let mut freed: BTreeSet<IpAddr> = self.allocator.take_freed().into_iter().collect();
        let mut asked = BTreeSet::new();
        let mut next: BTreeSet<ServiceKey> = pass.plans.keys().cloned().collect();
        next.extend(self.waiting.next(&freed, &next, &self.allocator));
        // Terminates because no Service releases an address that it waited for.
        while !next.is_empty() {
            self.add(objects, next.iter().cloned(), pass);
            self.allocate_in_order(objects, pass, &next);
            asked.append(&mut next);
            // A Service that moves to another address releases its previous one, for which others may wait.
            let moved = self.allocator.take_freed();
            if !moved.is_empty() {
                asked.clear();
                freed.extend(moved);
            }
            next = self.waiting.next(&freed, &asked, &self.allocator);
        }
    }

    fn allocate_in_order(&mut self, objects: &Objects, pass: &Pass, asked: &BTreeSet<ServiceKey>) {
        let role = &self.options.role;
        let plans = asked.iter().filter_map(|key| pass.plans.get(key)).map(|plan| &**plan);
        for plan in allocation_order::order_of_requests(plans) {
            let rank = &plan.rank;
            let local = addresses::local_nodes(plan, role, objects);
            let known = RequestContext::new(plan, local.as_ref(), &self.context, objects);
            let allocated = addresses::allocate(plan, known, role, &self.context, &mut self.allocator);
            self.waiting.set(rank, &allocated.demand);
            let known = self.services.entry(rank.key.clone()).or_default();
            known.allocated = allocated;
            known.uid.clone_from(&plan.uid);
            known.seen = plan.suspended.then(|| plan.requests.published.clone());
        }
    }

    fn claim(&mut self, pass: &mut Pass) {
        for (key, plan) in &pass.plans {
            let addresses = self.services.get(key).map(|known| known.allocated.addresses.as_slice());
            let mut claims = plan.claims(addresses.unwrap_or_default(), &self.context);
            if self.options.role != Role::Standalone {
                // Ports that it gave up remain its own until its status no longer lists them. Without a list it has those of its
                // plan: others may have the rest, with such a status, too.
                claims.add_listed(&plan.requests.status);
                self.sent.get(key).into_iter().for_each(|sent| claims.add_published(sent));
            }
            self.claims.set(&plan.rank, claims, &mut pass.touched);
        }
    }

    /// Adds Services that share a frontend address whose claimants changed, those with an endpoint that became, or ceased to be, a
    /// frontend or an address that nodes forward, and those on a port that came or went as a node port.
    fn add_affected(&mut self, objects: &Objects, pass: &mut Pass) {
        pass.loops_changed = !pass.led_on.is_empty() || !self.changed_nodes.is_empty();
        let mut affected = self.led_elsewhere(&pass.led_on);
        affected.extend(self.claims.on_ports(&pass.led_on.node_ports));
        for addr in pass.touched.addrs.keys() {
            affected.extend(self.claims.claimants(*addr).cloned());
        }
        if !pass.touched.whole.is_empty() {
            affected.extend(self.claims.claimants_at(&pass.touched.whole).cloned());
        }
        // Additional claims on an address do not matter to Services that have it as an endpoint.
        let came_or_went =
            pass.touched.addrs.iter().filter(|(addr, was)| self.claims.is_frontend(**addr) != **was);
        for (addr, _) in came_or_went {
            pass.loops_changed = true;
            affected.extend(self.reaching(*addr).cloned());
        }
        self.add(objects, affected, pass);
    }

    /// Services with an endpoint at an address that nodes forward, or at a node, that came or went.
    fn led_elsewhere(&mut self, changes: &ServiceAddressChanges) -> BTreeSet<ServiceKey> {
        let nodes = std::mem::take(&mut self.changed_nodes);
        if self.reached.is_empty() {
            return BTreeSet::new();
        }
        let mut affected = BTreeSet::new();
        for ip in changes.cluster.iter().chain(&nodes) {
            let first = FrontendAddr { ip: *ip, port: 0, protocol: Protocol::Tcp };
            let there =
                self.reached.range((first, ServiceKey::first())..).take_while(|(addr, _)| addr.ip == *ip);
            affected.extend(there.map(|(_, key)| key.clone()));
        }
        for addr in &changes.external {
            affected.extend(self.reaching(*addr).cloned());
        }
        for (port, protocol) in &changes.node_ports {
            for ip in self.context.of_all_nodes.iter() {
                let addr = FrontendAddr { ip: *ip, port: *port, protocol: *protocol };
                affected.extend(self.reaching(addr).cloned());
            }
        }
        affected
    }

    /// Why traffic to an endpoint returns, if it does or may.
    pub(super) fn loops(&self, protocol: Protocol) -> impl Fn(EndpointAddr) -> Option<EndpointLoop> {
        frontends::loops(&self.claims, &self.service_addresses, &self.context, protocol)
    }

    /// Services with an endpoint at this address.
    fn reaching(&self, addr: FrontendAddr) -> impl Iterator<Item = &ServiceKey> {
        let first = (addr, ServiceKey::first());
        self.reached.range(first..).take_while(move |(at, _)| *at == addr).map(|(_, key)| key)
    }

    /// Updates the index of endpoints of a Service; both lists are sorted.
    fn index(&mut self, key: &ServiceKey, before: &[FrontendAddr], now: &[FrontendAddr]) {
        for addr in without(before, now) {
            self.reached.remove(&(*addr, key.clone()));
        }
        self.reached.extend(without(now, before).map(|addr| (*addr, key.clone())));
    }

    /// Updates the index of the Services that a Gateway sends traffic to; both lists are sorted.
    fn index_backends(&mut self, gateway: &ServiceKey, before: &[ServiceKey], now: &[ServiceKey]) {
        for backend in without(before, now) {
            self.backends.remove(&(backend.clone(), gateway.clone()));
        }
        self.backends.extend(without(now, before).map(|backend| (backend.clone(), gateway.clone())));
    }

    fn project_one(&mut self, objects: &Objects, key: &ServiceKey, plan: &Arc<Plan>, pass: &mut Pass) {
        let projected = self.services.entry(key.clone()).or_default();
        let known = projected.gateway.take().map(|known| *known);
        let same_plan = known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.plan, plan));
        let (mut listeners, backends_before) =
            known.map(|known| (known.listeners, known.backends)).unwrap_or_default();
        let input = FrontendInput {
            plan,
            allocated: &projected.allocated,
            slices: objects.slices.get(key),
            context: &self.context,
            claims: &self.claims,
            services: &self.service_addresses,
            cluster: &self.cluster,
        };
        let changed = match pass.scope {
            PassScope::Changes if !pass.loops_changed => GatewayChange::Backends(&pass.backends),
            PassScope::Changes | PassScope::Everything => GatewayChange::Anything,
        };
        let (output, shared) = match &plan.gateway {
            Some(gateway) => {
                let world = (objects, changed);
                gateway_api::frontends::build(input, gateway, world, &mut self.names, &mut listeners)
            }
            None if plan.suspended => Default::default(),
            None => (frontends::build(input, &mut self.names), Vec::new()),
        };
        let fleet = plan.fleet.as_ref().filter(|_| !plan.suspended);
        let fleet = fleet.map(|fleet| multi_cluster::status(input, fleet, &self.options));
        let ServiceOutput { frontends, mut problems, mut reached, status, health_check } = output;
        let is_silent = plan.suspended && plan.gateway.is_none();
        problems.extend(plan.problems.iter().filter(|_| !is_silent).cloned());
        let before = std::mem::take(&mut projected.frontends);
        let frontends = frontends.into_iter().map(Arc::new).chain(shared);
        projected.frontends = pass.keep_equal(&self.frontends, &before, frontends);
        // Those of each listener are sorted, which a stable sort makes use of.
        reached.sort();
        reached.dedup();
        let reached_before = std::mem::take(&mut projected.reached);
        projected.status = status;
        projected.fleet = fleet;
        let backends = match &plan.gateway {
            _ if same_plan => backends_before.clone(),
            Some(gateway) => gateway.backends(),
            None => Vec::new(),
        };
        projected.gateway = plan.gateway.as_ref().map(|gateway| {
            let (plan, outcome) = (Arc::clone(plan), Arc::clone(&gateway.outcome));
            Box::new(ProjectedGateway { plan, outcome, listeners, backends: backends.clone() })
        });
        self.health_checks.set(key, health_check);
        projected.problems = problems;
        projected.reached.clone_from(&reached);
        self.index(key, &reached_before, &reached);
        if !same_plan {
            self.index_backends(key, &backends_before, &backends);
        }
    }

    /// Replaces the old frontends by the new ones. Returns the changes.
    fn replace(&mut self, mut pass: Pass) -> Vec<FrontendChange> {
        let mut changed = BTreeMap::new();
        for frontend in pass.fresh {
            let addr = frontend.addr;
            pass.stale.remove(&addr);
            let old = self.frontends.insert(addr, frontend.clone());
            if old.is_none_or(|old| !Arc::ptr_eq(&old, &frontend)) {
                changed.insert(addr, Some(frontend));
            }
        }
        for addr in pass.stale {
            if self.frontends.remove(&addr).is_some() {
                changed.insert(addr, None);
            }
        }
        changed.into_iter().collect()
    }
}

/// The items of a list that are not in the other one. Both are sorted and without duplicates.
fn without<'a, T: Ord>(items: &'a [T], others: &'a [T]) -> impl Iterator<Item = &'a T> {
    let mut others = others.iter().peekable();
    items.iter().filter(move |item| {
        while others.next_if(|other| other < item).is_some() {}
        others.next_if(|other| other == item).is_none()
    })
}

/// The frontends of a list that are not in the same place of the other one.
fn in_other_places<'a>(
    list: &'a [Arc<Frontend>],
    other: &'a [Arc<Frontend>],
) -> impl Iterator<Item = &'a Arc<Frontend>> {
    let is_same = |at, it| other.get(at).is_some_and(|other: &Arc<Frontend>| Arc::ptr_eq(other, it));
    list.iter().enumerate().filter(move |(at, it)| !is_same(*at, it)).map(|(_, it)| it)
}

/// Plans a Service. Its slices only suggest IP families if the Service names none.
pub(super) fn plan_service(
    key: &ServiceKey,
    service: &Service,
    slices: Option<&Slices>,
    options: &Options,
) -> Planned {
    let leaving = service.metadata.deletion_timestamp.is_some();
    if leaving && matches!(options.role, Role::Controller { .. }) {
        // Gateways serve it until its status is empty, and it keeps its addresses until then.
        return Planned::Foreign;
    }
    let mut report = Report::about(service_ref(key));
    let kinds = match class::classify(service, options, &mut report) {
        ClassMatch::Foreign => return Planned::Foreign,
        ClassMatch::Refused => return Planned::Refused(report.into_problems()),
        ClassMatch::Ours(kinds) => kinds,
    };
    annotations::check(service, &mut report);
    let slices = || slices.into_iter().flat_map(BTreeMap::values);
    let fleet = multi_cluster::of_service(key, service, slices(), options, &mut report);
    let mut plan = read(ServiceFields { key, service, kinds, exposed: None }, slices(), options, report);
    plan.fleet = fleet;
    Planned::Ours(Box::new(plan))
}
