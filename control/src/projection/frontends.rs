//! The inner step of the projection: turns the plan, addresses and slices of one Service into its frontends and status. Pure,
//! apart from sharing names.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::addresses::AllocatedAddresses;
use super::conflicts::{ClaimPriority, Claims, ServiceClaims};
use super::eligibility::{ClusterScope, Routes, TrafficPolicy};
use super::endpoints::interner::NameInterner;
use super::endpoints::merged::MergedEndpoints;
use super::endpoints::observer::EndpointLoop;
use super::endpoints::{PortEndpoints, merged};
use super::health_checks::{HealthCheck, LocalReady};
use super::nodes::{ClusterContext, PortReservation};
use super::plan::{ClusterMember, Plan, Slices, service_ref};
use super::ports::PlannedPort;
use super::requests::Requests;
use super::service_addresses::ServiceAddresses;
use super::status::{Ingress, LoadBalancerStatus, PortStatus};
use super::{eligibility, endpoints};
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::net::Family;

use sheave_model::{
    Algorithm, Backend, EndpointAddr, Frontend, FrontendAddr, FrontendKind, LogSample, Protocol, ServicePort,
};

/// A frontend that the Service requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedFrontend {
    pub(super) kind: FrontendKind,
    pub(super) addr: FrontendAddr,
    /// Index into the plan's ports.
    pub(super) port: usize,
}

/// Reason why a Service is not served on a requested frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The Service already has this frontend there.
    Twice(PlannedFrontend),
    /// The address and port are reserved.
    Reserved(PortReservation),
}

impl Plan {
    /// The priority of the Service's claim to a load balancer address with this port.
    fn claim_priority(&self, addr: FrontendAddr) -> ClaimPriority {
        let Requests { published, status, node_families, .. } = &self.requests;
        if published.contains(&addr.ip) {
            return if status.has(addr) { ClaimPriority::Published } else { ClaimPriority::Given };
        }
        let family = Family::of(addr.ip);
        let others = published.iter().filter(|ip| node_families.has(family) && Family::of(**ip) == family);
        let mut others = others.map(|ip| FrontendAddr { ip: *ip, ..addr }).peekable();
        if others.peek().is_some() && others.all(|other| status.has(other)) {
            ClaimPriority::PublishedAtOtherNodes
        } else {
            ClaimPriority::Given
        }
    }

    /// The frontends that the Service claims with these load balancer addresses.
    pub(super) fn claims(&self, addresses: &[IpAddr], context: &ClusterContext) -> ServiceClaims {
        let claim = |PlannedFrontend { kind, addr, .. }: PlannedFrontend| match kind {
            FrontendKind::ExternalIp => (addr, ClaimPriority::Named),
            FrontendKind::LoadBalancer => (addr, self.claim_priority(addr)),
            FrontendKind::NodePort | FrontendKind::ClusterIp => (addr, ClaimPriority::Given),
        };
        let addrs = self.exposures(addresses, context, |_, _| ()).into_iter().map(claim).collect();
        ServiceClaims { addrs, ..ServiceClaims::default() }
    }

    /// The frontends that the Service requests with these load balancer addresses, without duplicate or reserved pairs of address
    /// and port. Those are passed to `left_out`, with the reason.
    pub(super) fn exposures(
        &self,
        load_balancer: &[IpAddr],
        context: &ClusterContext,
        mut left_out: impl FnMut(PlannedFrontend, Obstacle),
    ) -> Vec<PlannedFrontend> {
        let mut exposures: Vec<PlannedFrontend> = Vec::with_capacity(load_balancer.len() * self.ports.len());
        let mut seen: BTreeMap<FrontendAddr, usize> = BTreeMap::new();
        let mut add = |kind, ip, number: u16, port: usize| {
            let addr = FrontendAddr { ip, port: number, protocol: self.ports[port].protocol };
            let exposure = PlannedFrontend { kind, addr, port };
            if let Some(reservation) = context.reserves(addr) {
                left_out(exposure, Obstacle::Reserved(reservation));
                return;
            }
            match seen.entry(addr) {
                Entry::Occupied(first) => left_out(exposure, Obstacle::Twice(exposures[*first.get()])),
                Entry::Vacant(place) => {
                    place.insert(exposures.len());
                    exposures.push(exposure);
                }
            }
        };
        let on_port = [
            (FrontendKind::LoadBalancer, load_balancer),
            (FrontendKind::ExternalIp, &self.addresses.external),
            (FrontendKind::ClusterIp, &self.addresses.cluster),
        ];
        for (kind, ips) in on_port {
            for (index, port) in self.ports.iter().enumerate() {
                ips.iter().for_each(|ip| add(kind, *ip, port.port, index));
            }
        }
        if self.kinds.contains(&FrontendKind::NodePort) {
            let on_node = context
                .node_port_addresses
                .iter()
                .filter(|ip| self.families.wanted.contains(&Family::of(**ip)));
            for ip in on_node {
                for (index, port) in self.ports.iter().enumerate() {
                    port.node_port
                        .into_iter()
                        .for_each(|number| add(FrontendKind::NodePort, *ip, number, index));
                }
            }
        }
        exposures
    }
}

/// Inputs for the projection of a Service.
#[derive(Clone, Copy)]
pub(super) struct FrontendInput<'a> {
    pub(super) plan: &'a Plan,
    pub(super) allocated: &'a AllocatedAddresses,
    pub(super) slices: Option<&'a Slices>,
    pub(super) context: &'a ClusterContext,
    pub(super) claims: &'a Claims,
    pub(super) services: &'a ServiceAddresses,
    pub(super) cluster: &'a Arc<str>,
}

impl<'a> FrontendInput<'a> {
    /// Why traffic to an endpoint returns, if it does or may.
    pub(super) fn loops(self, protocol: Protocol) -> impl Fn(EndpointAddr) -> Option<EndpointLoop> + use<'a> {
        loops(self.claims, self.services, self.context, protocol)
    }
}

/// Why traffic to an endpoint over this protocol returns, if it does or may.
pub(super) fn loops<'a>(
    claims: &'a Claims,
    services: &'a ServiceAddresses,
    context: &'a ClusterContext,
    protocol: Protocol,
) -> impl Fn(EndpointAddr) -> Option<EndpointLoop> + use<'a> {
    move |EndpointAddr { ip, port, .. }| {
        let addr = FrontendAddr { ip, port, protocol };
        if claims.is_frontend(addr) {
            return Some(EndpointLoop::OwnFrontend);
        }
        services.have(addr, &context.of_all_nodes).then_some(EndpointLoop::OfService)
    }
}

/// Result of the projection of a Service.
#[derive(Debug, Default)]
pub(super) struct ServiceOutput {
    pub(super) frontends: Vec<Frontend>,
    pub(super) problems: Vec<Problem>,
    /// Its endpoints, including those that were left out as loops, as the frontends that they would be.
    pub(super) reached: Vec<FrontendAddr>,
    /// Status; `None` unless it is a load balancer of ours.
    pub(super) status: Option<LoadBalancerStatus>,
    pub(super) health_check: Option<HealthCheck>,
}

/// Shared parts of the frontends of one port and family.
pub(super) struct PortTarget {
    pub(super) routes: Routes,
    pub(super) backends: Arc<[Backend]>,
}

/// Projects a Service.
pub(super) fn build(input: FrontendInput<'_>, names: &mut NameInterner) -> ServiceOutput {
    let mut output = ServiceOutput::default();
    let plan = input.plan;
    let members = plan.members(input.slices, input.cluster);
    members.iter().for_each(|member| endpoints::unreadable(member, &mut output.problems));
    let won = owned_frontends(input, &mut output.problems);
    let mut local_ready = LocalReady::default();
    for (index, port) in plan.ports.iter().enumerate() {
        for family in Family::ALL {
            let here = won.iter().filter(|it| it.port == index && Family::of(it.addr.ip) == family);
            let counted = plan.health_check_port.is_some() && plan.families.wanted.contains(&family);
            if !counted && here.clone().next().is_none() {
                continue;
            }
            let target = port_target(input, &members, (port, family), names, &mut output);
            if counted {
                local_ready.count(target.backends.iter().flat_map(|backend| &backend.endpoints));
            }
            output.frontends.extend(here.map(|exposure| build_frontend(input, *exposure, &target)));
        }
    }
    output.status = plan.is_load_balancer().then(|| load_balancer_status(plan, input.allocated, &won));
    output.health_check =
        plan.health_check_port.map(|port| local_ready.answer(plan.key(), &plan.families, port));
    output
}

/// The frontends that the Service owns. Others are reported.
pub(super) fn owned_frontends(input: FrontendInput<'_>, problems: &mut Vec<Problem>) -> Vec<PlannedFrontend> {
    let plan = input.plan;
    let mut report = Report::about(service_ref(plan.key()));
    let mut won = plan.exposures(&input.allocated.addresses, input.context, |exposure, obstacle| {
        let PlannedFrontend { kind, addr, port } = exposure;
        let message = match obstacle {
            // Another kind of the same port at the same place leads to the same endpoints.
            Obstacle::Twice(first) if first.port == port => return,
            Obstacle::Twice(first) => format!(
                "{addr} ({kind}) is already the {} frontend of {}; it is not served for this port",
                first.kind,
                plan.port_field(&plan.ports[first.port])
            ),
            Obstacle::Reserved(PortReservation::Node) => format!(
                "{addr} is an address of the node itself, and this port of it is reserved for the node (reservedPorts in the \
                 configuration, and the ports of Sheave); it is not served"
            ),
            Obstacle::Reserved(PortReservation::Heartbeats) => format!(
                "{addr} is where gateways hear one another, on every address (announce.heartbeat.port in the configuration); \
                 it is not served"
            ),
        };
        let port = &plan.ports[port];
        let field = plan.port_field(port);
        report.add(reason::ADDRESS_IN_USE, field, Some(port.problem_port()), message);
    });
    won.retain(|&PlannedFrontend { addr, port, .. }| {
        let owner = input.claims.owner(addr).filter(|owner| *owner != plan.key());
        if let Some(owner) = owner {
            let port = &plan.ports[port];
            let owner = plan.name_of_other(owner, port);
            let message = format!("{addr} already belongs to {owner}; it is not served for this one");
            let field = plan.port_field(port);
            report.add(reason::ADDRESS_IN_USE, field, Some(port.problem_port()), message);
        }
        owner.is_none()
    });
    report_node_ports(input, &won, &mut report);
    let first = problems.len();
    problems.extend(report.into_problems());
    if plan.gateway.is_some() {
        for problem in problems.iter_mut().skip(first) {
            let is_it = |port: &&PlannedPort| problem.port == Some(port.problem_port());
            if let Some(port) = plan.ports.iter().find(is_it) {
                problem.object = plan.port_object(port);
            }
        }
    }
    won
}

/// Reports frontends whose port is another Service's node port: kube-proxy has a rule for it that comes before the proxy's sockets.
/// Where Sheave serves node ports itself there is none.
fn report_node_ports(input: FrontendInput<'_>, won: &[PlannedFrontend], report: &mut Report) {
    let plan = input.plan;
    if plan.kinds.contains(&FrontendKind::NodePort) {
        return;
    }
    for &PlannedFrontend { addr, port, .. } in won {
        let is_own = |it: &PlannedPort| it.node_port == Some(addr.port) && it.protocol == addr.protocol;
        let Some(other) = input.services.other_with_node_port(plan.key(), (addr.port, addr.protocol)) else {
            continue;
        };
        if plan.ports.iter().any(is_own) {
            continue;
        }
        let what_happens = if input.context.of_all_nodes.contains(&addr.ip) {
            "kube-proxy answers node ports there, so clients may reach that one"
        } else {
            "where kube-proxy answers node ports at every address of a node, clients reach that one"
        };
        let port = &plan.ports[port];
        let other = plan.name_of_other(other, port);
        let message = format!("the port of {addr} is a node port of {other}; {what_happens}");
        report.add(reason::NODE_PORT_CONFLICT, plan.port_field(port), Some(port.problem_port()), message);
    }
}

pub(super) fn port_target(
    input: FrontendInput<'_>,
    members: &[ClusterMember],
    (port, family): (&PlannedPort, Family),
    names: &mut NameInterner,
    output: &mut ServiceOutput,
) -> PortTarget {
    let plan = input.plan;
    let frontend_of =
        |addr: EndpointAddr| FrontendAddr { ip: addr.ip, port: addr.port, protocol: port.protocol };
    let loop_at = input.loops(port.protocol);
    let mut merged = MergedEndpoints::default();
    for (index, member) in members.iter().enumerate() {
        let serving =
            endpoints::collect(member, family, port, input.context, &loop_at, names, &mut output.problems);
        report_loops(plan, port, &serving.loops, &mut output.problems);
        let endpoints = serving.endpoints.iter().map(|endpoint| endpoint.addr);
        output.reached.extend(serving.loops.iter().map(|(addr, _)| *addr).chain(endpoints).map(frontend_of));
        if plan.fleet.is_none() || !serving.is_empty() {
            merged.add(index, serving);
        }
    }
    let sets = eligibility::categorize(&merged.traits);
    let open = merged.traits.iter().any(|traits| traits.scope != ClusterScope::Closed);
    let routes = Routes::new(&sets, &merged.candidates, open);
    let backends: Arc<[Backend]> = merged
        .parts
        .into_iter()
        .filter_map(|(index, serving)| Some(backend(members.get(index)?, serving)))
        .collect();
    if plan.fleet.is_some() {
        merged::report_overlaps(plan.key(), port, &backends, &mut output.problems);
    }
    PortTarget { routes, backends }
}

fn backend(member: &ClusterMember, serving: PortEndpoints) -> Backend {
    let served = u32::try_from(serving.endpoints.len()).unwrap_or(u32::MAX);
    Backend {
        cluster: member.cluster.clone(),
        weight: member.weight,
        priority: member.priority,
        capacity: serving.capacity.max(served),
        closed: member.scope == ClusterScope::Closed,
        endpoints: serving.endpoints,
        lingering: serving.lingering,
    }
}

fn report_loops(
    plan: &Plan,
    port: &PlannedPort,
    loops: &[(EndpointAddr, EndpointLoop)],
    problems: &mut Vec<Problem>,
) {
    let mut report = Report::about(service_ref(plan.key()));
    for (addr, found) in loops {
        let message = format!("endpoint {addr} {}; it is left out, to not send in circles", found.text());
        report.add(reason::ENDPOINT_LOOP, "", Some(port.problem_port()), message);
    }
    problems.extend(report.into_problems());
}

pub(super) fn build_frontend(
    input: FrontendInput<'_>,
    exposure: PlannedFrontend,
    target: &PortTarget,
) -> Frontend {
    let FrontendInput { plan, context, .. } = input;
    let PlannedFrontend { kind, addr, port } = exposure;
    let port = &plan.ports[port];
    let (external, internal) = target.routes.of(kind, plan.policies);
    // Node ports, external IPs and the cluster address are open to all, as kube-proxy's "firewall" chain applies only to load
    // balancer addresses.
    let source_ranges = match kind {
        FrontendKind::LoadBalancer => plan.ranges.of(addr.ip, &context.addresses),
        FrontendKind::ExternalIp | FrontendKind::NodePort | FrontendKind::ClusterIp => Arc::default(),
    };
    Frontend {
        addr,
        kind,
        service: ServicePort {
            source: plan.key().source,
            namespace: plan.key().namespace.clone(),
            name: plan.key().name.clone(),
            port_name: port.name.clone(),
            protocol: port.protocol,
            settings_of: plan.settings_of.clone(),
        },
        affinity: plan.affinity,
        source_ranges,
        proxied_by: plan.client_address.proxied_by(Family::of(addr.ip), addr.protocol),
        client_sources: plan.client_address.sources(kind, addr.protocol, plan.policies.external),
        app_protocol: port.app_protocol.clone(),
        algorithm: plan.algorithm.unwrap_or_else(|| default_algorithm(port.protocol)),
        algorithm_named: plan.algorithm.is_some(),
        path: plan.path,
        node_local: eligibility::deciding(kind, plan.policies).0 == TrafficPolicy::Local,
        external,
        internal,
        limits: plan.limits,
        timeouts: plan.timeouts,
        logged: if addr.protocol == Protocol::Tcp { plan.logged } else { LogSample::NONE },
        health: Arc::clone(&plan.health),
        failover: plan.fleet.as_ref().map(|fleet| fleet.failover),
        backends: target.backends.clone(),
        split: None,
        server_names: None,
    }
}

/// The default algorithm. TCP connections are long and uneven, so the endpoint with the least load wins. UDP has no end to count,
/// so the client's hash decides.
pub(super) fn default_algorithm(protocol: Protocol) -> Algorithm {
    match protocol {
        Protocol::Tcp => Algorithm::LeastConnections,
        Protocol::Udp => Algorithm::Maglev,
    }
}

/// The status of a Service with these load balancer addresses and frontends.
pub(super) fn load_balancer_status(
    plan: &Plan,
    allocated: &AllocatedAddresses,
    frontends: &[PlannedFrontend],
) -> LoadBalancerStatus {
    // A Gateway has up to a thousand listeners, and a Service up to the addresses of all gateway nodes.
    let served: HashSet<ServedPort> =
        frontends.iter().map(|it| (it.addr.ip, it.addr.port, it.addr.protocol.name())).collect();
    let ingress = allocated.addresses.iter().map(|&ip| Ingress {
        ip,
        hostname: plan.requests.hostnames.get(&ip).cloned(),
        ports: port_statuses(plan, ip, &served),
        whole: false,
    });
    LoadBalancerStatus {
        service: plan.key().clone(),
        ingress: ingress.collect(),
        node_families: allocated.node_families,
    }
}

/// An address, with a port and protocol that is served there.
type ServedPort = (IpAddr, u16, &'static str);

fn port_statuses(plan: &Plan, ip: IpAddr, served: &HashSet<ServedPort>) -> Vec<PortStatus> {
    let status = plan.listed_ports.iter().map(|listed| {
        let (port, protocol) = (listed.port.port, listed.port.protocol);
        let lost = (!served.contains(&(ip, port, protocol))).then_some(reason::ADDRESS_IN_USE);
        PortStatus { port, protocol, error: listed.refused.or(lost) }
    });
    status.collect()
}
