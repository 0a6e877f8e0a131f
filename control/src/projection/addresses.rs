//! Load balancer addresses of a Service, depending on the role. Standalone: those in its status, else from AddressPools, else the
//! node's own. A gateway with a controller: those in the status. The controller: from AddressPools, where an address in the
//! status counts as allocated earlier and is kept while a pool has it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use sheave_model::FrontendSource;

use super::allocator::{
    AddressSummary, Allocator, Assignment, Demand, NodeFamilies, Request, Reservation, Shortfall, Uncovered,
    UsableNodes,
};
use super::annotations::{ADDRESS_POOL, RENUMBER};
use super::eligibility::TrafficPolicy;
use super::nodes::ClusterContext;
use super::options::Role;
use super::plan::{Plan, service_ref};
use super::requests::Requests;
use super::{annotations, nodes};
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::api::store::Objects;
use crate::net::Family;

/// Current addresses of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AllocatedAddresses {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) problems: Vec<Problem>,
    /// Families in which these are addresses of gateway nodes.
    pub(super) node_families: NodeFamilies,
    /// Addresses that it waits for, because a pool was exhausted or another namespace has one.
    pub(super) demand: Demand,
}

/// Releases what the Service may not keep, and holds the addresses in its status. Except at the start, when all Services are
/// projected, a status may still contain an address that was released and belongs to another Service now. `reserved` has those of
/// its status and of writes that may change it. Called before any [`allocate`] of a pass.
pub(super) fn prepare(
    plan: &Plan,
    known: RequestContext<'_>,
    role: &Role,
    (reserved, starting): (Vec<IpAddr>, bool),
    allocator: &mut Allocator,
) {
    if !plan.is_load_balancer() {
        allocator.release(plan.key());
        return allocator.reserve(plan.key(), reserved);
    }
    match role {
        Role::Gateway => {}
        Role::Controller { .. } => {
            let request = request(plan, known, role);
            let Requests { published, node_families, .. } = &plan.requests;
            if allocator.held(plan.key()).is_empty() {
                let had = allocator.reserved(plan.key());
                let own = published.iter().copied();
                let own = own.filter(|ip| is_own(*ip, had, *node_families, starting, allocator)).collect();
                allocator.hold_again(plan.key(), own, *node_families);
            }
            // Addresses released in this pass stay reserved until the status no longer contains them.
            allocator.reserve(plan.key(), reserved);
            allocator.prune(&request);
        }
        Role::Standalone if plan.requests.published.is_empty() => {
            allocator.prune(&request(plan, known, role));
        }
        Role::Standalone => {
            // In addition to the addresses in its status, it may have one of a missing family from a pool.
            let (missing, published) = (missing(plan), &plan.requests.published);
            let held = allocator.held(plan.key()).iter().copied();
            let given: Vec<IpAddr> = held.filter(|ip| missing.contains(&Family::of(*ip))).collect();
            if !given.is_empty() {
                allocator.hold(plan.key(), given);
                allocator.prune(&Request { addresses: &[], ..request(plan, known, role) });
            }
            let given = allocator.held(plan.key()).iter().filter(|ip| missing.contains(&Family::of(**ip)));
            let kept = published.iter().chain(given).copied().collect();
            allocator.hold(plan.key(), kept);
        }
    }
}

/// Holds the addresses of a Service that another installation decides about: those in its status, and until that differs from
/// `before`, also addresses that were allocated and possibly written but are not visible yet.
pub(super) fn hold_suspended(plan: &Plan, before: Option<&Vec<IpAddr>>, allocator: &mut Allocator) {
    let Requests { published, node_families, .. } = &plan.requests;
    let mut kept = published.clone();
    if before.is_none_or(|before| before == published) {
        kept.extend(allocator.held(plan.key()).iter().filter(|ip| !published.contains(ip)));
    }
    allocator.hold_again(plan.key(), kept, *node_families);
    allocator.reserve(plan.key(), Vec::new());
}

/// Whether an address in a Service's status belongs to it: it `had` the address, or no Service has it. At the start every status
/// is trusted, and addresses of gateway nodes belong to many Services.
pub(super) fn is_own(
    ip: IpAddr,
    had: &[IpAddr],
    node_families: NodeFamilies,
    starting: bool,
    allocator: &Allocator,
) -> bool {
    starting || had.contains(&ip) || node_families.has(Family::of(ip)) || !allocator.is_used(ip)
}

/// Families that the Service requests explicitly and that have no address in its status.
fn missing(plan: &Plan) -> Vec<Family> {
    let asked = |family: &Family| plan.families.given || plan.families.required.contains(family);
    let lacks = |family: &Family| !plan.requests.published.iter().any(|ip| Family::of(*ip) == *family);
    plan.families.wanted.iter().copied().filter(|family| asked(family) && lacks(family)).collect()
}

/// Allocates the addresses.
pub(super) fn allocate(
    plan: &Plan,
    known: RequestContext<'_>,
    role: &Role,
    context: &ClusterContext,
    allocator: &mut Allocator,
) -> AllocatedAddresses {
    if !plan.is_load_balancer() {
        return AllocatedAddresses::default();
    }
    if plan.suspended {
        let addresses = allocator.held(plan.key()).to_vec();
        return AllocatedAddresses { addresses, ..AllocatedAddresses::default() };
    }
    let published = &plan.requests.published;
    let (settled, own) = match role {
        Role::Gateway => (true, false),
        Role::Standalone => (!published.is_empty() && missing(plan).is_empty(), published.is_empty()),
        Role::Controller { .. } => (false, false),
    };
    if settled {
        let mut addresses = published.clone();
        if *role == Role::Gateway {
            addresses.extend(plan.own_node_addresses(context, known).filter(|ip| !published.contains(ip)));
        }
        return AllocatedAddresses { addresses, ..AllocatedAddresses::default() };
    }
    // Standalone, addresses in the status stay; another family comes only from a pool.
    let keeps = *role == Role::Standalone && !published.is_empty();
    let by_value = if keeps { &[] } else { plan.requests.addresses.as_slice() };
    let request = Request { addresses: by_value, ..request(plan, known, role) };
    let mut assignment = allocator.assign(&request);
    if keeps {
        // Addresses in the status do not depend on pools here.
        assignment.reservations.clear();
        assignment.demand.addresses.clear();
    }
    let Assignment { addresses, shortfalls, .. } = &mut assignment;
    shortfalls.retain(|shortfall| match shortfall {
        Shortfall::NoPool(family) if own => context.own(*family).map(|own| addresses.push(own)).is_none(),
        _ => true,
    });
    let problems = problems(plan, role, context, &assignment);
    AllocatedAddresses {
        addresses: assignment.addresses,
        problems,
        node_families: allocator.node_families(plan.key()),
        demand: assignment.demand,
    }
}

impl Plan {
    /// Addresses of a gateway's own node at which it serves a Service with `fromGatewayNodes`, whether published or not. The
    /// controller publishes them only while it considers the gateway ready. When a Pod is replaced or a kubelet is unavailable, a
    /// healthy gateway must not close ports at which clients still arrive.
    fn own_node_addresses(
        &self,
        context: &ClusterContext,
        known: RequestContext<'_>,
    ) -> impl Iterator<Item = IpAddr> {
        let serves = match known.nodes {
            UsableNodes::Only(nodes) => nodes.contains(context.node.as_str()),
            UsableNodes::All | UsableNodes::Unknown => true,
        };
        let own = context.gateway_nodes.iter().map(|node| node.ip);
        own.filter(move |ip| {
            let family = Family::of(*ip);
            serves && self.requests.node_families.has(family) && self.families.wanted.contains(&family)
        })
    }
}

/// Inputs of an allocation besides the Service.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestContext<'a> {
    /// The Service's Namespace.
    pub(super) namespace: Option<&'a Namespace>,
    /// Gateway nodes that can serve the Service.
    pub(super) nodes: UsableNodes<'a>,
}

impl<'a> RequestContext<'a> {
    pub(super) fn new(
        plan: &Plan,
        local: Option<&'a BTreeSet<Arc<str>>>,
        context: &ClusterContext,
        objects: &'a Objects,
    ) -> Self {
        let namespace = objects.namespaces.get(&plan.key().namespace).map(|namespace| &**namespace);
        let nodes = match local {
            _ if !context.gateways_known => UsableNodes::Unknown,
            Some(local) => UsableNodes::Only(local),
            None => UsableNodes::All,
        };
        Self { namespace, nodes }
    }
}

/// Nodes that can serve external clients of a Service, if not all gateway nodes can: with the policy `Local` those with an
/// endpoint.
pub(super) fn local_nodes(plan: &Plan, role: &Role, objects: &Objects) -> Option<BTreeSet<Arc<str>>> {
    let matters = match role {
        Role::Controller { .. } => true,
        Role::Gateway => plan.requests.node_families.name().is_some(),
        Role::Standalone => false,
    };
    (matters && plan.policies.external == TrafficPolicy::Local).then(|| {
        if let Some(fleet) = &plan.fleet {
            let own = fleet.members.iter().filter(|member| member.own);
            let slices = own.flat_map(|member| member.slices.iter().map(|listed| &listed.slice));
            return nodes::nodes_with_local(slices);
        }
        let slices = objects.slices.get(plan.key());
        nodes::nodes_with_local(slices.into_iter().flat_map(BTreeMap::values))
    })
}

fn request<'a>(plan: &'a Plan, known: RequestContext<'a>, role: &Role) -> Request<'a> {
    let RequestContext { namespace, nodes } = known;
    Request {
        key: plan.key(),
        labels: &plan.labels,
        namespace,
        families: &plan.families.wanted,
        pool: plan.requests.pool.as_deref(),
        addresses: &plan.requests.addresses,
        uncovered: match role {
            // Standalone, only the manifests count: equal manifests result in equal tables.
            Role::Standalone => Uncovered::Dropped,
            _ if plan.requests.by_neighbour => Uncovered::Dropped,
            _ if plan.requests.renumber => Uncovered::Replaced,
            _ => Uncovered::Kept,
        },
        nodes,
    }
}

fn problems(plan: &Plan, role: &Role, context: &ClusterContext, assignment: &Assignment) -> Vec<Problem> {
    let Assignment { addresses, shortfalls, reservations, demand: _ } = assignment;
    let mut report = Report::about(service_ref(plan.key()));
    let matters = |family: &Family| addresses.is_empty() || plan.families.required.contains(family);
    for shortfall in shortfalls {
        let (field, advice) = match shortfall {
            Shortfall::UnknownPool(_) | Shortfall::NotAdmitted(_) => {
                (annotations::field(ADDRESS_POOL), "no address is given".into())
            }
            Shortfall::Refused { addresses, .. } => {
                (plan.requests.addresses_field.clone(), format!("{} not served", addresses.they()))
            }
            Shortfall::Exhausted { family, .. } if matters(family) => {
                (String::new(), "the Service waits until one is free".into())
            }
            Shortfall::FamilyMissing { family, .. } if matters(family) => {
                (annotations::field(ADDRESS_POOL), "no address is given".into())
            }
            Shortfall::NoGatewayNode { family, .. } if matters(family) => {
                (String::new(), "the Service waits until one is".into())
            }
            Shortfall::NoPool(family) if matters(family) => {
                (String::new(), advice(*family, plan, role, context))
            }
            _ => continue,
        };
        report.add(reason::NO_ADDRESS, field, None, named(plan, &format!("{shortfall}; {advice}")));
    }
    for (reservation, addresses) in reservations {
        report.extend(vec![reserved(plan, reservation, addresses)]);
    }
    if shortfalls.is_empty() {
        for family in &plan.families.required {
            if !addresses.iter().any(|ip| Family::of(*ip) == *family) {
                let message =
                    format!("none of the requested addresses is {family}, which ipFamilies asks for");
                report.add(reason::NO_ADDRESS, plan.requests.addresses_field.as_str(), None, message);
            }
        }
    }
    report.into_problems()
}

/// The Problem of an address that is kept for the Service's clients. Withdrawing an address disconnects all clients, so a change
/// of the pools does not cause it.
fn reserved(plan: &Plan, reservation: &Reservation, addresses: &AddressSummary) -> Problem {
    let field = match reservation {
        Reservation::NoAccess(_) | Reservation::OfOtherPool { .. } => annotations::field(ADDRESS_POOL),
        _ if plan.requests.addresses.is_empty() => String::new(),
        _ => plan.requests.addresses_field.clone(),
    };
    let until = match reservation {
        Reservation::NotInPool | Reservation::NotAdmitted(_) if plan.requests.renumber => {
            ", until another address is free".to_owned()
        }
        Reservation::OfOtherPool { .. } => ", until another address is free".to_owned(),
        Reservation::NotInPool | Reservation::NotAdmitted(_) => {
            format!(
                ", until an AddressPool gives {0} again or the annotation {RENUMBER}: \"true\" replaces {0}",
                addresses.it()
            )
        }
        Reservation::NoPools => ", until there is one".to_owned(),
        Reservation::NamespaceUnknown(_) => ", until it is".to_owned(),
        Reservation::NoGateway => ", until one is".to_owned(),
        _ => String::new(),
    };
    let message =
        format!("{reservation}; {addresses} {} kept for the clients of the Service{until}", addresses.are());
    let mut report = Report::about(service_ref(plan.key()));
    report.add(reason::NO_ADDRESS, field, None, named(plan, &message));
    report.into_problems().remove(0)
}

/// Adapts the message of a shortfall, which says "the Service", to a MultiClusterService.
fn named(plan: &Plan, message: &str) -> String {
    match plan.key().source {
        FrontendSource::Service => message.to_owned(),
        FrontendSource::MultiClusterService => message.replace("the Service", "the MultiClusterService"),
        FrontendSource::Gateway => message.replace("the Service", "the Gateway"),
    }
}

fn advice(family: Family, plan: &Plan, role: &Role, context: &ClusterContext) -> String {
    if *role != Role::Standalone {
        return format!("add an AddressPool with {family} addresses that lets the Service in");
    }
    if !plan.requests.published.is_empty() {
        return format!(
            "only addresses of the other family are published: add one to status.loadBalancer.ingress, or an AddressPool with \
             {family} addresses"
        );
    }
    format!(
        "Node {:?} is unknown or has none of its own: add status.loadBalancer.ingress to the Service, an AddressPool \
         with {family} addresses, or status.addresses to the Node",
        context.node
    )
}
