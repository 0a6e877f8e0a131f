//! MultiClusterServices: their requests, and the clusters that serve them.
//!
//! A MultiClusterService is planned like a Service: the template with its name provides ports, affinity and policies, and its own
//! metadata, annotations and status replace the template's. Ordinary Services whose slices name clusters (the MCS API of
//! sig-multicluster) use the same rules between clusters.

mod clusters;
mod ingress;
mod members;
mod template;
mod work_endpoints;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::FrontendKind;

pub(super) use self::template::{is_left_alone, template, whose};

use self::clusters::Clusters;
use self::template::RequestedTypes;
use super::annotations::failover;
use super::class::FrontendKinds;
use super::eligibility::TrafficPolicy;
use super::frontends::FrontendInput;
use super::options::{Options, Role};
use super::plan::{ClusterMember, MultiClusterPlan, Plan, Planned, service_field};
use super::read_service::ServiceFields;
use super::status::{MultiClusterStatus, ResolvedRefs};
use super::{annotations, class, read_service};
use crate::api::karmada::MultiClusterService;
use crate::api::problem::reason;
use crate::api::problem::report::Report;
use crate::api::store::{KarmadaObjects, ServiceKey};

/// Time at which the next cluster that is not Ready will be held off.
pub(super) fn next_hold_off(fleet: &KarmadaObjects, hold: Duration, now: Timestamp) -> Option<Timestamp> {
    let ends = fleet.clusters.values().filter_map(|cluster| clusters::held_until(cluster, hold));
    ends.filter(|end| *end > now).min()
}

/// Whether it has our class but another installation decides about it, or it is unknown which one does.
pub(super) fn is_suspended(key: &ServiceKey, fleet: &KarmadaObjects, options: &Options) -> bool {
    let managed = matches!(options.role, Role::Controller { .. });
    let ours = |service: &Arc<MultiClusterService>| whose(service, template(fleet, key), options).is_ok();
    managed && !options.fleet.authority.own && fleet.services.get(key).is_some_and(ours)
}

fn is_leaving(service: &MultiClusterService) -> bool {
    service.metadata.deletion_timestamp.is_some()
}

/// Plans a MultiClusterService.
pub(super) fn plan(
    key: &ServiceKey,
    fleet: &KarmadaObjects,
    options: &Options,
    now: Option<Timestamp>,
) -> Planned {
    let Some(service) = fleet.services.get(key) else { return Planned::Foreign };
    let template = template(fleet, key);
    // Unlike a Service it is gone at once: gateways first stop accepting, then its status is cleared, and then it is released.
    if is_leaving(service) || whose(service, template, options).is_err() {
        return Planned::Foreign;
    }
    match ours(key, service, (fleet, options, now)) {
        Planned::Ours(mut plan) if !options.fleet.authority.own => {
            plan.suspended = true;
            plan.requests.published.clone_from(&plan.requests.status.addresses);
            Planned::Ours(plan)
        }
        // The installation that decides about it reports the reason.
        Planned::Refused(_) if !options.fleet.authority.own => Planned::Foreign,
        planned => planned,
    }
}

/// Plans a MultiClusterService of our class.
fn ours(
    key: &ServiceKey,
    service: &MultiClusterService,
    (fleet, options, now): (&KarmadaObjects, &Options, Option<Timestamp>),
) -> Planned {
    let template = template(fleet, key);
    let mut report = Report::about(key.object());
    match template::requested_types(&service.spec.types, &mut report) {
        RequestedTypes::LoadBalancer => {}
        RequestedTypes::Elsewhere => return Planned::Foreign,
        RequestedTypes::Nowhere => return Planned::Refused(report.into_problems()),
    }
    let Some(template) = template else {
        let message = format!("there is no Service {key} on the Karmada API server; nothing is served");
        report.add(reason::SERVICE_NOT_FOUND, "metadata.name", None, message);
        return Planned::Refused(report.into_problems());
    };
    match served(key, service, template, (fleet, options, now), &mut report) {
        Some(plan) => Planned::Ours(Box::new(with_problems(plan, report))),
        None => Planned::Refused(report.into_problems()),
    }
}

/// State of the clusters of a plan.
pub(super) fn status(
    input: FrontendInput<'_>,
    fleet: &MultiClusterPlan,
    options: &Options,
) -> MultiClusterStatus {
    let mut status = fleet.status.clone();
    // A gateway publishes no conditions.
    if options.role != Role::Gateway {
        status.clusters = members::count_endpoints(input, fleet);
    }
    status
}

fn with_problems(mut plan: Plan, report: Report) -> Plan {
    plan.problems.extend(report.into_problems());
    plan
}

/// The plan; `None` if the Service cannot be served, with the reason in the report.
fn served(
    key: &ServiceKey,
    service: &MultiClusterService,
    template: &Service,
    (fleet, options, now): (&KarmadaObjects, &Options, Option<Timestamp>),
    report: &mut Report,
) -> Option<Plan> {
    let Some(spec) = &template.spec else {
        let field = service_field(key, "spec.ports".to_owned());
        report.add(reason::NOT_SERVED, field, None, "the Service has no ports; nothing is served");
        return None;
    };
    if let Some((field, message)) =
        class::skipped(template, spec, spec.type_.as_deref().unwrap_or("ClusterIP"))
    {
        report.add(reason::NOT_SERVED, service_field(key, field), None, message);
        return None;
    }
    let exposed = template::exposed_ports(&service.spec.ports, spec, report);
    if exposed.indexes.as_ref().is_some_and(BTreeSet::is_empty) {
        let message = "the Service has none of the ports; nothing is served";
        report.add(reason::NOT_SERVED, "spec.ports", None, message);
        return None;
    }
    let effective = template::effective(service, template, options);
    let clusters = Clusters::read(key, service, &effective, fleet, (options, now), report);
    let sources = work_endpoints::collect(key, fleet, &clusters);
    let found = members::build(key, &effective, (&clusters, sources), report);
    let slices = || found.members.iter().flat_map(|it| it.slices.iter().map(|listed| &listed.slice));
    let asked = ServiceFields {
        key,
        service: &effective,
        kinds: FrontendKinds::from([FrontendKind::LoadBalancer]),
        exposed: exposed.indexes.as_ref(),
    };
    let mut own = Report::about(key.object());
    annotations::check(&effective, &mut own);
    let mut plan = read_service::read(asked, slices(), options, own);
    template::rename_fields(&mut plan, service, template);
    let (failover, spread_problems) = failover::read(key, &effective, found.spread, options);
    plan.problems.extend(found.problems);
    plan.problems.extend(template::renamed(spread_problems, service));
    across(template, &mut plan, &found.members, &clusters, report);
    let status = MultiClusterStatus {
        clusters: found.standing,
        resolved: ResolvedRefs {
            template: true,
            unknown_clusters: clusters.unknown.clone(),
            unmatched_ports: exposed.unmatched,
        },
        nothing_collected: found.nothing_collected,
        export_services: options.fleet.export_services,
    };
    plan.fleet = Some(MultiClusterPlan { members: found.members, failover, status, left: found.left });
    Some(plan)
}

/// Adjusts and reports requests of the Service that are impossible across clusters.
fn across(
    template: &Service,
    plan: &mut Plan,
    members: &[ClusterMember],
    clusters: &Clusters<'_>,
    report: &mut Report,
) {
    if plan.policies.external != TrafficPolicy::Local {
        return;
    }
    let field = "Service.spec.externalTrafficPolicy";
    let own = &*clusters.options.cluster;
    let others: Vec<&str> = members.iter().filter(|it| !it.own).map(|it| &*it.cluster).collect();
    if !members.iter().any(|member| member.own) && !clusters.is_among(own) {
        // The policy makes sense in the member clusters, for which the Service is written. Dropping all traffic here would not
        // implement it.
        plan.policies.external = TrafficPolicy::Cluster;
        let message = format!(
            "Local keeps clients from outside on the gateway's node, and its cluster, {own:?}, is none of those that \
             serve; as with Cluster they get the endpoints of all (see cluster in the configuration)"
        );
        report.add(reason::NOT_ACROSS_CLUSTERS, field, None, message);
    } else if !others.is_empty() {
        let message = format!(
            "Local keeps clients from outside on the gateway's node; endpoints of {} get nothing from them",
            others.join(", ")
        );
        report.add(reason::NOT_ACROSS_CLUSTERS, field, None, message);
    }
    let port = template.spec.as_ref().and_then(|spec| spec.health_check_node_port).unwrap_or_default();
    if port != 0 {
        let message = format!("{port} is the port of one cluster's nodes; gateways do not answer on it");
        report.add(reason::NOT_ACROSS_CLUSTERS, "Service.spec.healthCheckNodePort", None, message);
    }
}

/// The clusters of an ordinary Service; `None` if its slices name none, so that all are in the gateway's own cluster.
pub(super) fn of_service<'a>(
    key: &ServiceKey,
    service: &Service,
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    options: &Options,
    report: &mut Report,
) -> Option<MultiClusterPlan> {
    let found = members::labelled_members(service, slices, options, report)?;
    let (failover, problems) = failover::read(key, service, found.spread, options);
    report.extend(problems);
    let status = MultiClusterStatus::default();
    Some(MultiClusterPlan { members: found.members, failover, status, left: Vec::new() })
}
