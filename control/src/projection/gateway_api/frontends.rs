//! Frontends of a Gateway: one for each socket and address, split over the backends of the listener's route, or with a target for each
//! server name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::Resource as _;
use sheave_model::{Backend, Frontend, FrontendAddr, PartTarget, RefusedPart, ServerNames, Split, SplitPart};

use crate::api::objects::Objects;
use crate::api::problem::Problem;
use crate::api::service_import::ServiceImport;
use crate::api::service_key::ServiceKey;
use crate::net::Family;
use crate::projection::eligibility::Routes;
use crate::projection::endpoints;
use crate::projection::endpoints::interner::NameInterner;
use crate::projection::frontends::{
    FrontendInput, PlannedFrontend, PortTarget, ServiceOutput, build_frontend, load_balancer_status,
    owned_frontends, port_target,
};
use crate::projection::plan::{GatewayPlan, ListenerPlan, NamesPlan, PartPlan};

/// Frontends of a listener, and the endpoints that they lead to.
#[derive(Clone, Debug)]
pub(in crate::projection) struct ListenerFrontends {
    listener: Arc<ListenerPlan>,
    /// One for each address.
    frontends: Vec<Arc<Frontend>>,
    /// Frontends of the targets of its server names.
    targets: Arc<[ListenerFrontends]>,
    reached: Vec<FrontendAddr>,
    problems: Vec<Problem>,
}

/// Changes since the last projection of a Gateway, except those of its plan.
#[derive(Clone, Copy, Debug)]
pub(in crate::projection) enum GatewayChange<'a> {
    /// Anything.
    Anything,
    /// The endpoints of these Services alone.
    Backends(&'a BTreeSet<ServiceKey>),
}

/// Projects a Gateway. Listeners in `before` whose plan, addresses and endpoints are the same keep their frontends. `known` is
/// replaced by what a next projection may keep.
pub(in crate::projection) fn build(
    input: FrontendInput<'_>,
    gateway: &GatewayPlan,
    (objects, changed): (&Objects, GatewayChange<'_>),
    names: &mut NameInterner,
    known: &mut Vec<ListenerFrontends>,
) -> (ServiceOutput, Vec<Arc<Frontend>>) {
    let mut output = ServiceOutput::default();
    let won = owned_frontends(input, &mut output.problems);
    let mut by_port: Vec<Vec<PlannedFrontend>> = vec![Vec::new(); gateway.listeners.len()];
    for exposure in &won {
        by_port[exposure.port].push(*exposure);
    }
    // Listeners rarely move within the list.
    let mut same_place = std::mem::take(known).into_iter();
    let mut frontends = Vec::with_capacity(won.len());
    for (listener, here) in gateway.listeners.iter().zip(&by_port) {
        let built = match same_place.next() {
            Some(same) if same.stays(listener, here, changed) => same,
            before => of_listener(input, (listener, here), before.as_ref(), (objects, changed), names),
        };
        output.reached.extend(&built.reached);
        output.problems.extend(built.problems.iter().cloned());
        frontends.extend(built.frontends.iter().cloned());
        known.push(built);
    }
    output.status = Some(load_balancer_status(input.plan, input.allocated, &won));
    (output, frontends)
}

impl ListenerFrontends {
    /// Whether the frontends are still those of the listener on these addresses.
    fn stays(
        &self,
        listener: &Arc<ListenerPlan>,
        here: &[PlannedFrontend],
        changed: GatewayChange<'_>,
    ) -> bool {
        let GatewayChange::Backends(backends) = changed else { return false };
        Arc::ptr_eq(&self.listener, listener)
            && !listener.backends().any(|backend| backends.contains(backend))
            && here.iter().map(|it| it.addr).eq(self.frontends.iter().map(|frontend| frontend.addr))
    }
}

/// The frontends of a listener on the addresses `here`, which had those in `before` and does not [stay](ListenerFrontends::stays).
fn of_listener(
    input: FrontendInput<'_>,
    (listener, here): (&Arc<ListenerPlan>, &[PlannedFrontend]),
    before: Option<&ListenerFrontends>,
    (objects, changed): (&Objects, GatewayChange<'_>),
    names: &mut NameInterner,
) -> ListenerFrontends {
    if let Some(plan) = &listener.names {
        let known = before.iter().flat_map(|before| before.targets.iter());
        let known: BTreeMap<_, _> = known.map(|it| (Arc::as_ptr(&it.listener), it)).collect();
        let targets = plan.targets.iter().map(|target| match known.get(&Arc::as_ptr(target)).copied() {
            Some(same) if same.stays(target, here, changed) => same.clone(),
            before => of_listener(input, (target, here), before, (objects, changed), names),
        });
        return of_targets(input, (listener, here), plan, targets.collect());
    }
    let mut output = ServiceOutput::default();
    let mut frontends = Vec::with_capacity(here.len());
    for of_family in here.chunk_by(|one, other| Family::of(one.addr.ip) == Family::of(other.addr.ip)) {
        let Some(first) = of_family.first() else { continue };
        let family = Family::of(first.addr.ip);
        let targets: Vec<Option<PortTarget>> = listener
            .parts
            .iter()
            .map(|part| target(input, part, family, objects, names, &mut output))
            .collect();
        frontends.extend(of_family.iter().map(|it| Arc::new(frontend(input, listener, &targets, *it))));
    }
    let ServiceOutput { mut reached, problems, .. } = output;
    reached.sort_unstable();
    let (listener, targets) = (Arc::clone(listener), Arc::default());
    ListenerFrontends { listener, frontends, targets, reached, problems }
}

/// The frontends of TLS listeners with one port, whose server names lead to these targets.
fn of_targets(
    input: FrontendInput<'_>,
    (listener, here): (&Arc<ListenerPlan>, &[PlannedFrontend]),
    NamesPlan { names, .. }: &NamesPlan,
    targets: Arc<[ListenerFrontends]>,
) -> ListenerFrontends {
    let whole = |(at, exposure): (usize, &PlannedFrontend)| {
        let here = targets.iter().map(|target| Arc::clone(&target.frontends[at]));
        let mut frontend = frontend(input, listener, &[], *exposure);
        frontend.server_names = Some(Arc::new(ServerNames::new(here.collect(), names.iter().cloned())));
        Arc::new(frontend)
    };
    ListenerFrontends {
        listener: Arc::clone(listener),
        frontends: here.iter().enumerate().map(whole).collect(),
        reached: targets.iter().flat_map(|target| &target.reached).copied().collect(),
        problems: targets.iter().flat_map(|target| &target.problems).cloned().collect(),
        targets,
    }
}

/// The endpoints of a part; `None` if it is refused.
fn target(
    input: FrontendInput<'_>,
    part: &PartPlan,
    family: Family,
    objects: &Objects,
    names: &mut NameInterner,
    output: &mut ServiceOutput,
) -> Option<PortTarget> {
    let pool = part.target.as_ref().ok()?;
    let input = FrontendInput { plan: &pool.plan, slices: objects.slices.get(pool.plan.key()), ..input };
    let port = pool.plan.ports.first()?;
    let members = pool.members(input.slices, input.cluster);
    let first = output.problems.len();
    members.iter().for_each(|member| endpoints::unreadable(member, &mut output.problems));
    let target = port_target(input, &members, (port, family), names, output);
    if pool.plan.fleet.is_some() {
        let backend = pool.plan.key().object();
        let own = output.problems.iter_mut().skip(first).filter(|problem| problem.object == backend);
        own.for_each(|problem| problem.object.kind = ServiceImport::KIND);
    }
    Some(target)
}

fn frontend(
    input: FrontendInput<'_>,
    listener: &ListenerPlan,
    targets: &[Option<PortTarget>],
    exposure: PlannedFrontend,
) -> Frontend {
    let exposure = PlannedFrontend { port: 0, ..exposure };
    let nothing = PortTarget { routes: Routes::refusing(), backends: Arc::<[Backend]>::default() };
    let mut frontend = build_frontend(FrontendInput { plan: &listener.plan, ..input }, exposure, &nothing);
    let parts = listener.parts.iter().zip(targets).map(|(part, target)| {
        let target = match (&part.target, target) {
            (Ok(pool), Some(target)) => {
                let input = FrontendInput { plan: &pool.plan, ..input };
                PartTarget::Pool(Arc::new(build_frontend(input, exposure, target)))
            }
            (Ok(_), None) => PartTarget::Refused(RefusedPart::BackendNotFound),
            (Err(refused), _) => PartTarget::Refused(*refused),
        };
        SplitPart { name: Arc::clone(&part.name), weight: part.weight, target }
    });
    let parts: Vec<SplitPart> = parts.collect();
    frontend.split = listener
        .route
        .as_ref()
        .map(|route| Arc::new(Split { route: Arc::clone(route), superseded: listener.superseded, parts }));
    frontend
}
