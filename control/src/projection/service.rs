//! The inner step: one Service's plan, addresses and slices become its frontends. Pure, but for sharing names.

use std::net::IpAddr;
use std::sync::Arc;

use sheave_dataplane::model::{
    Backend, EndpointAddr, Frontend, FrontendAddr, FrontendKind, FrontendSource, ServicePort, Weight,
};

use super::conflicts::Claims;
use super::endpoints::{self, Serving};
use super::exposure::Exposure;
use super::facts::Facts;
use super::health::{HealthCheck, LocalReady};
use super::names::Names;
use super::plan::{Plan, Slices, service_ref};
use super::ports::PlannedPort;
use super::route::Routes;
use super::status::{self, LoadBalancerStatus};
use super::{policy, topology};
use crate::ip::Family;
use crate::problem::{Problem, reason};
use crate::report::Report;

/// What a Service is projected from.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) plan: &'a Plan,
    pub(super) addresses: &'a [IpAddr],
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
    /// Frontend addresses that are also endpoints of the Service, and take no traffic as such.
    pub(super) loops: Vec<FrontendAddr>,
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
    if let Some(slices) = input.slices {
        endpoints::unreadable(slices.values(), &mut output.problems);
    }
    let plan = input.plan;
    let won = won(input, &mut output.problems);
    let mut local_ready = LocalReady::default();
    for (index, port) in plan.ports.iter().enumerate() {
        for family in Family::ALL {
            let here = won.iter().filter(|it| it.port == index && Family::of(it.addr.ip) == family);
            let counted = plan.health_check_port.is_some() && plan.families.wanted.contains(&family);
            if !counted && here.clone().next().is_none() {
                continue;
            }
            let target = target(input, port, family, names, &mut output);
            if counted {
                local_ready.count(target.backends.iter().flat_map(|backend| &backend.endpoints));
            }
            output.frontends.extend(here.map(|exposure| frontend(input, *exposure, &target)));
        }
    }
    output.status = plan.is_load_balancer().then(|| status::of(plan, input.addresses, &won));
    output.health_check = plan.health_check_port.map(|port| local_ready.answer(plan, port));
    output
}

/// The frontends that no older Service has; the others are reported.
fn won(input: Input<'_>, problems: &mut Vec<Problem>) -> Vec<Exposure> {
    let plan = input.plan;
    let mut report = Report::about(service_ref(plan.key()));
    let mut won = plan.exposures(input.addresses, input.facts, |twice, first| {
        // As another kind of the same port it is one place that leads to the same endpoints.
        if twice.port != first.port {
            let (port, other) = (&plan.ports[twice.port], &plan.ports[first.port]);
            let message = format!(
                "{} ({}) is already the {} frontend of spec.ports[{}]; it is not served for this port",
                twice.addr, twice.kind, first.kind, other.index
            );
            let field = format!("spec.ports[{}]", port.index);
            report.add(reason::ADDRESS_IN_USE, field, Some(port.problem_port()), message);
        }
    });
    won.retain(|&Exposure { addr, port, .. }| {
        let owner = input.claims.owner(addr).filter(|owner| *owner != plan.key());
        if let Some(owner) = owner {
            let port = &plan.ports[port];
            let message = format!("{addr} already belongs to Service {owner}; it is not served for this one");
            let field = format!("spec.ports[{}]", port.index);
            report.add(reason::ADDRESS_IN_USE, field, Some(port.problem_port()), message);
        }
        owner.is_none()
    });
    problems.extend(report.into_problems());
    won
}

fn target(
    input: Input<'_>,
    port: &PlannedPort,
    family: Family,
    names: &mut Names,
    output: &mut Output,
) -> Target {
    let frontend_of =
        |addr: EndpointAddr| FrontendAddr { ip: addr.ip, port: addr.port, protocol: port.protocol };
    let is_own = |addr| input.claims.is_endpoint(addr, port.protocol);
    let slices = input.slices.into_iter().flat_map(Slices::values);
    let Serving { endpoints, facets, loops, lingering } =
        endpoints::collect(slices, family, port, input.facts, is_own, names, &mut output.problems);
    report_loops(input.plan, port, &loops, &mut output.problems);
    output.loops.extend(loops.into_iter().map(frontend_of));
    let sets = topology::categorize(&facets);
    let routes = Routes::new(&sets, !endpoints.is_empty());
    let cluster = input.cluster.clone();
    let capacity = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
    let backend = Backend {
        cluster,
        weight: Weight::default(),
        priority: 0,
        capacity,
        remote: false,
        endpoints,
        lingering,
    };
    Target { routes, backends: Arc::new([backend]) }
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
        source: FrontendSource::Service,
        affinity: plan.affinity,
        source_ranges,
        proxied_by: plan.client_address.proxied_by(Family::of(addr.ip), addr.protocol),
        client_sources: plan.client_address.sources(kind, addr.protocol, plan.policies.external),
        app_protocol: port.app_protocol.clone(),
        algorithm: plan.algorithm.unwrap_or_else(|| policy::default_algorithm(port.protocol)),
        external,
        internal,
        failover: None,
        backends: target.backends.clone(),
    }
}
