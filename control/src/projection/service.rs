//! The inner step: one Service's plan, addresses and slices become its frontends. Pure, but for sharing names.

use std::sync::Arc;

use sheave_model::{Backend, EndpointAddr, Frontend, FrontendAddr, FrontendKind, ServicePort};

use super::addresses::Placed;
use super::conflicts::Claims;
use super::endpoints::{self, Serving};
use super::exposure::{Exposure, Obstacle};
use super::facts::Facts;
use super::health::{HealthCheck, LocalReady};
use super::members::{Gathered, Member};
use super::multi_cluster::overlaps;
use super::names::Names;
use super::plan::{Plan, Slices, service_ref};
use super::policy;
use super::ports::PlannedPort;
use super::route::Routes;
use super::status::{self, LoadBalancerStatus};
use super::topology::{self, Scope};
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::net::Family;

/// What a Service is projected from.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) plan: &'a Plan,
    pub(super) placed: &'a Placed,
    pub(super) slices: Option<&'a Slices>,
    pub(super) facts: &'a Facts,
    pub(super) claims: &'a Claims,
    pub(super) cluster: &'a Arc<str>,
}

/// What a Service comes to.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) frontends: Vec<Frontend>,
    pub(super) problems: Vec<Problem>,
    /// Its endpoints, with those that are frontends and therefore left out, as the frontends that they would be.
    pub(super) reached: Vec<FrontendAddr>,
    /// `None` unless it is a load balancer of ours.
    pub(super) status: Option<LoadBalancerStatus>,
    pub(super) health_check: Option<HealthCheck>,
}

/// What the frontends of one port and family share.
struct Target {
    routes: Routes,
    backends: Arc<[Backend]>,
}

/// Projects one Service.
pub(super) fn project(input: Input<'_>, names: &mut Names) -> Output {
    let mut output = Output::default();
    let plan = input.plan;
    let members = plan.members(input.slices, input.cluster);
    members.iter().for_each(|member| endpoints::unreadable(member, &mut output.problems));
    let won = won(input, &mut output.problems);
    let mut local_ready = LocalReady::default();
    for (index, port) in plan.ports.iter().enumerate() {
        for family in Family::ALL {
            let here = won.iter().filter(|it| it.port == index && Family::of(it.addr.ip) == family);
            let counted = plan.health_check_port.is_some() && plan.families.wanted.contains(&family);
            if !counted && here.clone().next().is_none() {
                continue;
            }
            let target = target(input, &members, (port, family), names, &mut output);
            if counted {
                local_ready.count(target.backends.iter().flat_map(|backend| &backend.endpoints));
            }
            output.frontends.extend(here.map(|exposure| frontend(input, *exposure, &target)));
        }
    }
    output.status = plan.is_load_balancer().then(|| status::of(plan, input.placed, &won));
    output.health_check = plan.health_check_port.map(|port| local_ready.answer(plan, port));
    output
}

/// The frontends that no older Service has; the others are reported.
fn won(input: Input<'_>, problems: &mut Vec<Problem>) -> Vec<Exposure> {
    let plan = input.plan;
    let mut report = Report::about(service_ref(plan.key()));
    let mut won = plan.exposures(&input.placed.addresses, input.facts, |exposure, obstacle| {
        let Exposure { kind, addr, port } = exposure;
        let message = match obstacle {
            // As another kind of the same port it is one place that leads to the same endpoints.
            Obstacle::Twice(first) if first.port == port => return,
            Obstacle::Twice(first) => format!(
                "{addr} ({kind}) is already the {} frontend of spec.ports[{}]; it is not served for this port",
                first.kind, plan.ports[first.port].index
            ),
            Obstacle::Reserved => format!(
                "{addr} is an address of the node itself, and this port of it is reserved for the node (reservedPorts in the \
                 configuration); it is not served"
            ),
        };
        let port = &plan.ports[port];
        let field = plan.field(format!("spec.ports[{}]", port.index));
        report.add(reason::ADDRESS_IN_USE, field, Some(port.problem_port()), message);
    });
    won.retain(|&Exposure { addr, port, .. }| {
        let owner = input.claims.owner(addr).filter(|owner| *owner != plan.key());
        if let Some(owner) = owner {
            let port = &plan.ports[port];
            let message =
                format!("{addr} already belongs to {}; it is not served for this one", owner.object());
            let field = plan.field(format!("spec.ports[{}]", port.index));
            report.add(reason::ADDRESS_IN_USE, field, Some(port.problem_port()), message);
        }
        owner.is_none()
    });
    problems.extend(report.into_problems());
    won
}

fn target(
    input: Input<'_>,
    members: &[Member],
    (port, family): (&PlannedPort, Family),
    names: &mut Names,
    output: &mut Output,
) -> Target {
    let plan = input.plan;
    let frontend_of =
        |addr: EndpointAddr| FrontendAddr { ip: addr.ip, port: addr.port, protocol: port.protocol };
    let is_own = |addr| input.claims.is_endpoint(addr, port.protocol);
    let mut gathered = Gathered::default();
    for (index, member) in members.iter().enumerate() {
        let serving =
            endpoints::collect(member, family, port, input.facts, is_own, names, &mut output.problems);
        report_loops(plan, port, &serving.loops, &mut output.problems);
        let endpoints = serving.endpoints.iter().map(|endpoint| endpoint.addr);
        output.reached.extend(serving.loops.iter().copied().chain(endpoints).map(frontend_of));
        if plan.fleet.is_none() || !serving.is_empty() {
            gathered.add(index, serving);
        }
    }
    let sets = topology::categorize(&gathered.facets);
    let open = gathered.facets.iter().any(|facet| facet.scope != Scope::Closed);
    let routes = Routes::new(&sets, &gathered.candidates, open);
    let backends: Arc<[Backend]> = gathered
        .parts
        .into_iter()
        .filter_map(|(index, serving)| Some(backend(plan, members.get(index)?, serving)))
        .collect();
    if plan.fleet.is_some() {
        overlaps::report(plan.key(), port, members, &backends, &mut output.problems);
    }
    Target { routes, backends }
}

fn backend(plan: &Plan, member: &Member, serving: Serving) -> Backend {
    let served = u32::try_from(serving.endpoints.len()).unwrap_or(u32::MAX);
    Backend {
        cluster: member.cluster.clone(),
        weight: member.weight,
        priority: member.priority,
        // Within one cluster nothing is measured by it.
        capacity: if plan.fleet.is_some() { serving.capacity.max(served) } else { served },
        remote: !member.own,
        endpoints: serving.endpoints,
        lingering: serving.lingering,
    }
}

fn report_loops(plan: &Plan, port: &PlannedPort, loops: &[EndpointAddr], problems: &mut Vec<Problem>) {
    let mut report = Report::about(service_ref(plan.key()));
    for addr in loops {
        let message =
            format!("endpoint {addr} is a frontend of this gateway; it is left out, to not send in circles");
        report.add(reason::ENDPOINT_LOOP, "", Some(port.problem_port()), message);
    }
    problems.extend(report.into_problems());
}

fn frontend(input: Input<'_>, exposure: Exposure, target: &Target) -> Frontend {
    let Input { plan, facts, .. } = input;
    let Exposure { kind, addr, port } = exposure;
    let port = &plan.ports[port];
    let (external, internal) = target.routes.of(kind, plan.policies);
    // Node ports, external IPs and the cluster address are open to all (kube-proxy's "firewall" chain is for load
    // balancer addresses alone).
    let source_ranges = match kind {
        FrontendKind::LoadBalancer => plan.ranges.of(addr.ip, &facts.addresses),
        FrontendKind::ExternalIp | FrontendKind::NodePort | FrontendKind::ClusterIp => Arc::default(),
    };
    Frontend {
        addr,
        kind,
        service: ServicePort {
            namespace: plan.key().namespace.clone(),
            name: plan.key().name.clone(),
            port_name: port.name.clone(),
            protocol: port.protocol,
        },
        source: plan.key().source,
        affinity: plan.affinity,
        source_ranges,
        proxied_by: plan.client_address.proxied_by(Family::of(addr.ip), addr.protocol),
        client_sources: plan.client_address.sources(kind, addr.protocol, plan.policies.external),
        app_protocol: port.app_protocol.clone(),
        algorithm: plan.algorithm.unwrap_or_else(|| policy::default_algorithm(port.protocol)),
        external,
        internal,
        limits: plan.limits,
        timeouts: plan.timeouts,
        failover: plan.fleet.as_ref().map(|fleet| fleet.failover.clone()),
        backends: target.backends.clone(),
    }
}
