//! The inner step: one Service's plan, addresses and slices become its frontends. Pure, but for sharing names.

use std::net::IpAddr;
use std::sync::Arc;

use sheave_dataplane::model::{
    Backend, ClientSources, EndpointAddr, Frontend, FrontendAddr, FrontendKind, FrontendSource, Route,
    ServicePort, Weight,
};

use super::conflicts::Claims;
use super::endpoints::{self, Serving};
use super::facts::Facts;
use super::names::Names;
use super::plan::{Plan, Slices, service_ref};
use super::ports::PlannedPort;
use super::{policy, route, topology};
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
}

/// What the frontends of one port and family share.
struct Target {
    external: Route,
    internal: Route,
    backends: Arc<[Backend]>,
}

/// Projects one Service.
pub(super) fn project(input: Input<'_>, names: &mut Names) -> Output {
    let mut output = Output::default();
    if let Some(slices) = input.slices {
        endpoints::unreadable(slices.values(), &mut output.problems);
    }
    for port in &input.plan.ports {
        for family in Family::ALL {
            let addresses = input.addresses.iter().copied().filter(|ip| Family::of(*ip) == family);
            let won = won(input, port, addresses, &mut output.problems);
            if won.is_empty() {
                continue;
            }
            let target = target(input, port, family, names, &mut output);
            output.frontends.extend(won.into_iter().map(|addr| frontend(input, port, addr, &target)));
        }
    }
    output
}

/// The addresses on which no older Service serves this port; the others are reported.
fn won(
    input: Input<'_>,
    port: &PlannedPort,
    addresses: impl Iterator<Item = IpAddr>,
    problems: &mut Vec<Problem>,
) -> Vec<FrontendAddr> {
    let mut report = Report::about(service_ref(input.plan.key()));
    let mut won = Vec::new();
    for addr in addresses.map(|ip| port.on(ip)) {
        match input.claims.owner(addr) {
            Some(owner) if owner != input.plan.key() => {
                let message =
                    format!("{addr} already belongs to Service {owner}; it is not served for this one");
                let field = format!("spec.ports[{}]", port.index);
                report.add(reason::ADDRESS_IN_USE, field, Some(port.problem_port()), message);
            }
            _ => won.push(addr),
        }
    }
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
    let is_own = |addr| input.claims.is_frontend(frontend_of(addr));
    let slices = input.slices.into_iter().flat_map(Slices::values);
    let Serving { endpoints, facets, loops } =
        endpoints::collect(slices, family, port, input.facts, is_own, names, &mut output.problems);
    report_loops(input.plan, port, &loops, &mut output.problems);
    output.loops.extend(loops.into_iter().map(frontend_of));
    let sets = topology::categorize(&facets);
    let (external, internal) = route::load_balancer(input.plan.external, &sets, !endpoints.is_empty());
    let cluster = input.cluster.clone();
    let backend = Backend { cluster, weight: Weight::default(), priority: 0, endpoints };
    Target { external, internal, backends: Arc::new([backend]) }
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

fn frontend(input: Input<'_>, port: &PlannedPort, addr: FrontendAddr, target: &Target) -> Frontend {
    let Input { plan, facts, .. } = input;
    Frontend {
        addr,
        kind: FrontendKind::LoadBalancer,
        service: ServicePort {
            namespace: plan.key().namespace.clone(),
            name: plan.key().name.clone(),
            port_name: port.name.clone(),
            protocol: port.protocol,
        },
        source: FrontendSource::Service,
        affinity: plan.affinity,
        source_ranges: plan.ranges.of(addr.ip, &facts.addresses),
        proxied_by: None,
        client_sources: ClientSources::default(),
        app_protocol: None,
        algorithm: plan.algorithm.unwrap_or_else(|| policy::default_algorithm(port.protocol)),
        external: target.external.clone(),
        internal: target.internal.clone(),
        backends: target.backends.clone(),
    }
}
