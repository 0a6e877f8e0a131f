//! Why clients of a Service get what they get: the facts behind its frontends, for people to read.
//!
//! Pure, and no second copy of any rule: plans, rules and the pass over the slices are the projection's own, asked again
//! for one Service. It must not know affinity records, balancers or how an explanation is shown.

mod decision;
mod inside;
mod record;
mod unserved;
mod verdict;

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Frontend, FrontendSource};

pub use self::decision::Decision;
use self::decision::Side;
pub use self::inside::Inside;
use self::record::Record;
pub use self::verdict::{EndpointFact, EndpointFactState, NotCounted, Verdict};
use super::members::{Gathered, Member};
use super::multi_cluster::{self, ClusterState, Drain};
use super::plan::{self, Plan, Planned, Slices};
use super::ports::PlannedPort;
use super::topology::{Fit, Rule, Scope};
use super::{Options, Projector, class, endpoints, route};
use crate::api::problem::Problem;
use crate::api::store::{Objects, ServiceKey};
use crate::net::Family;

/// What becomes of a Service.
#[derive(Debug)]
#[must_use]
pub enum Explanation<'a> {
    /// There is no such Service.
    Unknown,
    /// It is not ours to serve.
    Foreign(Foreign),
    /// It asks for us, but cannot be served.
    Refused(Vec<Problem>),
    /// It is served, as far as it has addresses and ports.
    Served(Box<Served<'a>>),
}

/// Why a Service is not ours. Prints as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(String);

/// A Service that is ours, as the last projection left it.
#[derive(Debug)]
pub struct Served<'a> {
    projector: &'a Projector,
    plan: Box<Plan>,
    service: &'a Service,
    members: Vec<Member>,
    frontends: &'a [Arc<Frontend>],
}

/// A port as the Service has it, served or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPort {
    /// Empty for an unnamed port.
    pub name: String,
    /// As in the Service; not always a port number.
    pub port: i32,
    /// As in the Service; not only those that we forward.
    pub protocol: String,
}

/// Why the clients of one frontend get what they get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// What decides for clients outside the cluster.
    pub external: Decision,
    /// What decides for clients inside the cluster.
    pub internal: Decision,
    /// Every address of the frontend's family that the Service's slices have, by address and port; those that are none
    /// come last.
    pub endpoints: Vec<EndpointFact>,
    /// Slices of other families, which serve other frontends if any, by name.
    pub other_slices: Vec<String>,
}

impl Projector {
    /// Explains a Service or a MultiClusterService. `objects` are those that were projected last.
    pub fn explain<'a>(&'a self, objects: &'a Objects, key: &ServiceKey) -> Explanation<'a> {
        if key.source == FrontendSource::MultiClusterService {
            return self.explain_fleet(objects, key);
        }
        let Some(service) = objects.services.get(key) else { return Explanation::Unknown };
        let slices = objects.slices.get(key);
        match plan::plan(key, service, slices, &self.options) {
            Planned::Foreign => Explanation::Foreign(Foreign::new(service, &self.options)),
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
            // Without its Service it is refused, so what is left is not ours.
            (Planned::Foreign | Planned::Ours(_), _) => {
                let why = multi_cluster::whose(service, template, &self.options).err();
                let why = why.unwrap_or_else(|| {
                    if service.metadata.deletion_timestamp.is_some() {
                        "the MultiClusterService is being deleted".to_owned()
                    } else {
                        "spec.types asks for CrossCluster alone, which is Karmada's own business".to_owned()
                    }
                });
                Explanation::Foreign(Foreign(why))
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
        Explanation::Served(Box::new(Served { projector: self, plan, service, members, frontends }))
    }

    /// The Node that this gateway runs on; empty if it has none.
    pub fn node(&self) -> &str {
        &self.facts.node
    }
}

impl Served<'_> {
    /// Its frontends, in no order.
    pub fn frontends(&self) -> &[Arc<Frontend>] {
        self.frontends
    }

    /// Its ports as the object has them.
    pub fn ports(&self) -> Vec<ListedPort> {
        let ports = self.service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
        let text = |text: &Option<String>, default: &str| text.clone().unwrap_or_else(|| default.to_owned());
        let listed = ports.iter().map(|port| ListedPort {
            name: text(&port.name, ""),
            port: port.port,
            protocol: text(&port.protocol, "TCP"),
        });
        listed.collect()
    }

    /// The number of the Service port that a frontend is for: not always the frontend's own.
    pub fn port_of(&self, frontend: &Frontend) -> Option<u16> {
        self.planned_port(frontend).map(|port| port.port)
    }

    /// Why the clients of one of its frontends get what they get. `None` if it is none of its own.
    pub fn why(&self, frontend: &Frontend) -> Option<Why> {
        let port = self.planned_port(frontend)?;
        let (facts, family) = (&self.projector.facts, Family::of(frontend.addr.ip));
        let is_own = |addr| self.projector.claims.is_endpoint(addr, port.protocol);
        let mut record = Record::new(facts, port, family);
        let mut gathered = Gathered::default();
        for (index, member) in self.members.iter().enumerate() {
            record.enter(member, self.closed(member));
            let serving = endpoints::witness(member, family, port, facts, is_own, &mut record);
            if self.plan.fleet.is_none() || !serving.is_empty() {
                gathered.add(index, serving);
            }
        }
        let left = || self.plan.fleet.iter().flat_map(|fleet| &fleet.left);
        let is_family = |slice: &EndpointSlice| Family::named(&slice.address_type) == Some(family);
        left().filter(|left| is_family(&left.slice)).for_each(|left| record.leave(left));
        let (external, internal) = route::deciding(frontend.kind, self.plan.policies);
        let rules = [external, internal].map(|policy| Rule::decide(policy, &gathered.facets));
        let fits: Vec<[Fit; 2]> =
            gathered.facets.iter().map(|facet| rules.map(|rule| rule.judge(facet))).collect();
        let decide = |side, rule| Decision::new(frontend, side, rule, &gathered, facts);
        let [external, internal] = rules;
        let slices = self.members.iter().flat_map(|member| &member.slices).map(|listed| &listed.slice);
        let other = slices.chain(left().map(|left| &left.slice)).filter(|slice| !is_family(slice));
        Some(Why {
            external: decide(Side::Outside, external),
            internal: decide(Side::Inside, internal),
            endpoints: record.finish(&fits, [external.fallback, internal.fallback]),
            other_slices: other.map(|slice| slice.metadata.name.clone().unwrap_or_default()).collect(),
        })
    }

    /// Why a cluster gets nothing new, if so.
    fn closed(&self, member: &Member) -> Option<String> {
        if member.scope != Scope::Closed {
            return None;
        }
        let known = self.plan.fleet.iter().flat_map(|fleet| &fleet.status.clusters);
        let state = known.into_iter().find(|it| it.name == member.cluster).map(|it| it.state.to_string());
        Some(state.unwrap_or_else(|| ClusterState::Draining(Drain::Asked).to_string()))
    }

    fn planned_port(&self, frontend: &Frontend) -> Option<&PlannedPort> {
        let service = &frontend.service;
        let own = frontend.source == self.plan.key().source
            && service.namespace == self.plan.key().namespace
            && service.name == self.plan.key().name;
        let is = |port: &&PlannedPort| port.name == service.port_name && port.protocol == service.protocol;
        self.plan.ports.iter().find(is).filter(|_| own)
    }
}

impl Foreign {
    fn new(service: &Service, options: &Options) -> Self {
        let nothing = ServiceSpec::default();
        let spec = service.spec.as_ref().unwrap_or(&nothing);
        let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
        if let Some((field, message)) = class::skipped(service, spec, type_) {
            return Self(format!("{field}: {message}"));
        }
        let class = spec.load_balancer_class.as_ref();
        let class = class.map_or_else(
            || "without a loadBalancerClass".to_owned(),
            |class| format!("with loadBalancerClass {class:?}"),
        );
        let kinds: Vec<String> = options.frontends.iter().map(ToString::to_string).collect();
        let unclassified = if options.handle_unclassified { " or without any" } else { "" };
        Self(format!(
            "the Service is of type {type_} {class}; this gateway makes frontends of kind {} (frontends in the \
             configuration), and load balancers for loadBalancerClass {:?}{unclassified} only",
            kinds.join(", "),
            options.load_balancer_class
        ))
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
