//! Explanation of what clients of a Service get and why, for users.
//!
//! Pure, and without a second copy of any rule: it applies the projection's own plans, rules and slice pass to one Service.
//! Affinity records, balancers and the rendered text are outside of this module.

mod decision;
mod gateway_api;
mod not_ours;
mod record;
mod view;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Frontend, FrontendSource};

pub use self::decision::ClientSide;
pub use self::gateway_api::{ParentExplanation, PartExplanation, routes_to};
pub use self::not_ours::NotOursReason;
use self::record::EndpointRecorder;
pub use self::view::{
    EndpointSummary, ExplainView, ExplainedCondition, ExplainedEndpoint, ExplainedParent, ExplainedPart,
    FrontendExplanation, SpecPort,
};
use super::eligibility::{ClusterScope, Eligibility, EligibilityRule};
use super::endpoints::merged::MergedEndpoints;
use super::plan::{ClusterMember, Plan, Planned, Slices};
use super::ports::PlannedPort;
use super::status::{ClusterState, DrainReason};
use super::{Projector, eligibility, endpoints, multi_cluster, nodes, reconcile};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::store::{Objects, ServiceKey};
use crate::net::Family;

/// Result for a Service.
#[derive(Debug)]
#[must_use]
pub enum Explanation<'a> {
    /// The Service does not exist.
    Unknown,
    /// The Service is not ours.
    Foreign(NotOursReason),
    /// The Service is for this installation but cannot be served.
    Refused(Vec<Problem>),
    /// The Service is served, as far as it has addresses and ports.
    Served(Box<ServedService<'a>>),
}

/// A Service of ours, as of the last projection.
#[derive(Debug)]
pub struct ServedService<'a> {
    projector: &'a Projector,
    plan: Box<Plan>,
    service: &'a Service,
    members: Vec<ClusterMember>,
    frontends: &'a [Arc<Frontend>],
}

impl Projector {
    /// Explains a Service or a MultiClusterService. `objects` must be those of the last projection.
    pub fn explain<'a>(&'a self, objects: &'a Objects, key: &ServiceKey) -> Explanation<'a> {
        if key.source == FrontendSource::MultiClusterService {
            return self.explain_fleet(objects, key);
        }
        let Some(service) = objects.services.get(key) else { return Explanation::Unknown };
        let slices = objects.slices.get(key);
        match reconcile::plan_service(key, service, slices, &self.options) {
            Planned::Foreign => Explanation::Foreign(NotOursReason::new(service, &self.options)),
            Planned::Refused(problems) => Explanation::Refused(problems),
            Planned::Ours(plan) => self.served(plan, service, slices),
        }
    }

    fn explain_fleet<'a>(&'a self, objects: &'a Objects, key: &ServiceKey) -> Explanation<'a> {
        let fleet = &objects.fleet;
        let Some(service) = fleet.services.get(key) else { return Explanation::Unknown };
        let template = multi_cluster::template(fleet, key);
        match (multi_cluster::plan(key, fleet, &self.options, self.now), template) {
            (Planned::Refused(problems), _) => Explanation::Refused(problems),
            (Planned::Ours(plan), Some(template)) => self.served(plan, template, None),
            // Without its Service, a MultiClusterService of ours is `Refused`, so this one is not ours.
            (Planned::Foreign | Planned::Ours(_), _) => {
                let why = multi_cluster::whose(service, template, &self.options).err();
                let why = why.unwrap_or_else(|| {
                    if service.metadata.deletion_timestamp.is_some() {
                        "the MultiClusterService is being deleted".to_owned()
                    } else {
                        "spec.types asks for CrossCluster alone, which is Karmada's own business".to_owned()
                    }
                });
                Explanation::Foreign(NotOursReason::because(why))
            }
        }
    }

    fn served<'a>(
        &'a self,
        plan: Box<Plan>,
        service: &'a Service,
        slices: Option<&Slices>,
    ) -> Explanation<'a> {
        let frontends = self.services.get(plan.key()).map(|known| known.frontends.as_slice());
        let frontends = frontends.unwrap_or_default();
        let members = plan.members(slices, &self.cluster).into_owned();
        Explanation::Served(Box::new(ServedService { projector: self, plan, service, members, frontends }))
    }

    /// Name of the Node that this gateway runs on; empty if it has none.
    pub fn node(&self) -> &str {
        &self.context.node
    }
}

impl ServedService<'_> {
    /// Its frontends, in no particular order.
    pub fn frontends(&self) -> &[Arc<Frontend>] {
        self.frontends
    }

    /// Its ports, as in the object.
    pub fn ports(&self) -> Vec<SpecPort> {
        let ports = self.service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
        let text = |text: &Option<String>, default: &str| text.clone().unwrap_or_else(|| default.to_owned());
        let listed = ports.iter().map(|port| SpecPort {
            name: text(&port.name, ""),
            port: port.port,
            protocol: text(&port.protocol, "TCP"),
        });
        listed.collect()
    }

    /// Number of the Service port of a frontend, which may differ from the frontend's own port.
    pub fn port_of(&self, frontend: &Frontend) -> Option<u16> {
        self.planned_port(frontend).map(|port| port.port)
    }

    /// Explains what clients get on one of its frontends; `None` if the frontend is not its own.
    pub fn explain(&self, frontend: &Frontend, side: ClientSide) -> Option<FrontendExplanation> {
        let port = self.planned_port(frontend)?;
        Some(explain_endpoints(self.projector, &self.plan, &self.members, (frontend, port), side))
    }

    fn planned_port(&self, frontend: &Frontend) -> Option<&PlannedPort> {
        let service = &frontend.service;
        let own = frontend.service.source == self.plan.key().source
            && service.namespace == self.plan.key().namespace
            && service.name == self.plan.key().name;
        let is = |port: &&PlannedPort| port.name == service.port_name && port.protocol == service.protocol;
        self.plan.ports.iter().find(is).filter(|_| own)
    }
}

/// Explains what clients get on a frontend with this plan and port.
fn explain_endpoints(
    projector: &Projector,
    plan: &Plan,
    members: &[ClusterMember],
    (frontend, port): (&Frontend, &PlannedPort),
    side: ClientSide,
) -> FrontendExplanation {
    let (context, family) = (&projector.context, Family::of(frontend.addr.ip));
    let loop_at = projector.loops(port.protocol);
    let mut recorder = EndpointRecorder::new(context, port, family);
    let mut merged = MergedEndpoints::default();
    for (index, member) in members.iter().enumerate() {
        recorder.enter(member, closed(plan, member));
        let serving = endpoints::observe(member, family, port, context, &loop_at, &mut recorder);
        if plan.fleet.is_none() || !serving.is_empty() {
            merged.add(index, serving);
        }
    }
    let left = || plan.fleet.iter().flat_map(|fleet| &fleet.left);
    let is_family = |slice: &EndpointSlice| Family::named(&slice.address_type) == Some(family);
    left().filter(|left| is_family(&left.slice)).for_each(|left| recorder.leave(left));
    let (external, internal) = eligibility::deciding(frontend.kind, plan.policies);
    let policy = match side {
        ClientSide::Outside => external,
        ClientSide::Inside => internal,
    };
    let rule = EligibilityRule::decide(policy, &merged.traits);
    let fits: Vec<Eligibility> = merged.traits.iter().map(|traits| rule.judge(traits)).collect();
    let slices = members.iter().flat_map(|member| &member.slices).map(|listed| &listed.slice);
    let other = slices.chain(left().map(|left| &left.slice)).filter(|slice| !is_family(slice));
    FrontendExplanation {
        reasons: decision::reasons(frontend, side, rule, &merged, context),
        endpoints: recorder.finish(&fits, rule.fallback),
        other_slices: other.map(|slice| slice.metadata.name.clone().unwrap_or_default()).collect(),
    }
}

/// Why a cluster gets no new connections, if it gets none.
fn closed(plan: &Plan, member: &ClusterMember) -> Option<String> {
    if member.scope != ClusterScope::Closed {
        return None;
    }
    let known = plan.fleet.iter().flat_map(|fleet| &fleet.status.clusters);
    let state = known.into_iter().find(|it| it.name == member.cluster).map(|it| it.state.to_string());
    Some(state.unwrap_or_else(|| ClusterState::Draining(DrainReason::Asked).to_string()))
}

/// Reason why an address counts as inside the cluster. Displays as the end of the sentence `address ... is`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InternalReason {
    /// The address belongs to a Node.
    Node(Arc<str>),
    /// The address is in a pod network of this Node.
    Pods(Arc<str>, IpNet),
    /// A CIDR in the configuration contains the address.
    Configured(IpNet),
}

impl fmt::Display for InternalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "an address of Node {node}"),
            Self::Pods(node, cidr) => write!(f, "in pod CIDR {cidr} of Node {node}"),
            Self::Configured(cidr) => write!(f, "in {cidr} of internalCIDRs in the configuration"),
        }
    }
}

impl Projector {
    /// Why a client's address counts as inside the cluster; `None` if it does not.
    pub fn inside(&self, objects: &Objects, client: IpAddr) -> Option<InternalReason> {
        let client = client.to_canonical();
        let pods = objects.nodes.iter().find_map(|(name, node)| {
            let object = ObjectRef { kind: "Node", namespace: "".into(), name: name.clone() };
            // Problems of the Node were already reported by the projection.
            let mut report = Report::about(object);
            if nodes::addresses(node, &mut report).iter().any(|(_, ip)| *ip == client) {
                return Some(InternalReason::Node(name.clone()));
            }
            let mut cidrs = Vec::new();
            nodes::pod_cidrs(node, &mut cidrs, &mut report);
            let cidr = cidrs.into_iter().find(|cidr| cidr.contains(&client));
            cidr.map(|cidr| InternalReason::Pods(name.clone(), cidr))
        });
        let configured = || {
            let cidr = self.options.internal_cidrs.iter().find(|cidr| cidr.contains(&client));
            cidr.map(|cidr| InternalReason::Configured(*cidr))
        };
        pods.or_else(configured)
    }
}
