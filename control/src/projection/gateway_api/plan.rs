//! Plan of a Gateway: its addresses, its listeners as ports, and the split of each over the backends of its route. A pure function of
//! the objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sheave_model::FrontendKind;

use super::backend_refs::ResolvedRef;
use super::listener_plan::{ListenerPlanning, planned_port};
use super::reports;
use super::resolution::Resolution;
use super::split;
use crate::api::gateway_api::{Gateway, GatewayAddress, ListenerSet};
use crate::api::kinds::object_key;
use crate::api::objects::Objects;
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::api::service_key::ServiceKey;
use crate::net;
use crate::net::Family;
use crate::projection::annotations;
use crate::projection::annotations::gateway_api::{self, AnnotatedKind, IP_FAMILIES};
use crate::projection::class::FrontendKinds;
use crate::projection::options::{Options, Role};
use crate::projection::plan::{GatewayPlan, Plan, Planned, Rank};
use crate::projection::ports::ListedPort;
use crate::projection::published::Published;
use crate::projection::read_service::{ServiceFields, read};
use crate::projection::requests::{self, Requests};

/// Whether this installation implements the Gateway: the controller of its class decides.
pub(in crate::projection) fn is_ours(gateway: &Gateway, objects: &Objects, options: &Options) -> bool {
    let class = objects.gateway_api.classes.get(gateway.spec.gateway_class_name.as_str());
    let controller = options.gateway_controller.as_deref();
    class.is_some_and(|class| controller == Some(class.spec.controller_name.as_str()))
}

/// Plans a Gateway. Listeners stay as in `before`, a plan with the same options, if nothing of theirs has changed.
pub(in crate::projection) fn plan(
    key: &ServiceKey,
    objects: &Objects,
    options: &Options,
    before: Option<&GatewayPlan>,
) -> Planned {
    let Some(gateway) = objects.gateway_api.gateways.get(key) else { return Planned::Foreign };
    if gateway.metadata.deletion_timestamp.is_some() || !is_ours(gateway, objects, options) {
        return Planned::Foreign;
    }
    let resolution = Resolution::new(key, gateway, objects);
    let mut problems = Vec::new();
    check_annotations(key, &resolution, &mut problems);
    let mut plan = gateway_plan(key, gateway, options, &mut problems);
    plan.requests.status = Published::of_gateway(gateway, resolution.sets.iter().copied());
    let unusable = request_addresses(key, gateway, &mut plan, &mut problems);
    let asks_in_vain = plan.requests.addresses.is_empty() && !unusable.is_empty();
    if options.role == Role::Standalone && (asks_in_vain || !plan.requests.addresses.is_empty()) {
        // No controller writes the status, so it would keep what the spec no longer names for ever.
        let Requests { published, addresses, .. } = &mut plan.requests;
        published.retain(|ip| addresses.contains(ip));
    }
    if asks_in_vain {
        // It keeps what it has, but an address that it does not ask for is no answer to one that it cannot have.
        let Plan { requests: Requests { published, .. }, families, .. } = &mut plan;
        families.wanted.retain(|family| published.iter().any(|ip| Family::of(*ip) == *family));
    }
    let outcome = resolution.outcome(unusable);
    let mut listeners = Vec::new();
    if resolution.is_accepted {
        let planning = ListenerPlanning { key, resolution: &resolution, objects, options };
        for first in resolution.sockets() {
            let port = planned_port(&resolution.merged[first]);
            let planned = planning.socket(first, before);
            problems.extend(planned.all_problems().cloned());
            listeners.push(planned);
            plan.listed_ports.push(ListedPort { port: port.problem_port(), refused: None });
            plan.ports.push(port);
        }
    }
    reports::report(key, &outcome, &resolution, &mut problems);
    problems.sort_unstable();
    problems.dedup();
    plan.suspended = !resolution.is_accepted;
    plan.problems = problems;
    plan.gateway = Some(Box::new(GatewayPlan { outcome: Arc::new(outcome), listeners }));
    Planned::Ours(Box::new(plan))
}

/// The Gateway without its listeners: addresses, families and labels.
fn gateway_plan(key: &ServiceKey, gateway: &Gateway, options: &Options, problems: &mut Vec<Problem>) -> Plan {
    let infrastructure = gateway.spec.infrastructure.clone().unwrap_or_default();
    let mut labels = gateway.metadata.labels.clone().unwrap_or_default();
    labels.extend(infrastructure.labels);
    let mut annotations: BTreeMap<String, String> = BTreeMap::new();
    let own =
        gateway.metadata.annotations.iter().flatten().map(|(name, value)| (name.clone(), value.clone()));
    let about_addresses = |name: &String| gateway_api::is_about_addresses(name);
    annotations.extend(own.chain(infrastructure.annotations).filter(|(name, _)| about_addresses(name)));
    let service = Service {
        metadata: ObjectMeta { annotations: Some(annotations), ..gateway.metadata.clone() },
        ..Service::default()
    };
    let kinds = FrontendKinds::from([FrontendKind::LoadBalancer]);
    let mut report = Report::about(key.object());
    let wanted = families(&service, &mut report);
    problems.extend(report.into_problems());
    let asked = ServiceFields { key, service: &service, kinds, exposed: None };
    let mut plan = read(asked, std::iter::empty(), options, Report::about(key.object()));
    // Those about a Service without ports are not about a Gateway.
    problems
        .extend(std::mem::take(&mut plan.problems).into_iter().filter(|it| it.reason != reason::NOT_SERVED));
    plan.rank = Rank::new(key, &gateway.metadata);
    plan.labels = labels;
    plan.families.given = false;
    plan.families.required = Vec::new();
    plan.families.wanted = wanted;
    plan
}

/// Families that get an address if a pool has them.
fn families(service: &Service, report: &mut Report) -> Vec<Family> {
    let listed = annotations::read(service, IP_FAMILIES, report, |text| {
        let families: Option<Vec<Family>> = text.split(',').map(|name| Family::named(name.trim())).collect();
        families.filter(|families| !families.is_empty()).ok_or_else(|| {
            format!("{text:?} is not IPv4, IPv6 or IPv4,IPv6; the Gateway gets the families that its AddressPool has")
        })
    });
    let mut families = Vec::new();
    for family in listed.unwrap_or_else(|| Family::ALL.to_vec()) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}

/// Reads the addresses that the Gateway has and requests. Returns what it cannot request, with the reason.
fn request_addresses(
    key: &ServiceKey,
    gateway: &Gateway,
    plan: &mut Plan,
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let requests = &mut plan.requests;
    let conditions = gateway.status.as_ref().map(|status| status.conditions.as_slice());
    requests.node_families = requests::node_families_of(conditions.unwrap_or_default());
    requests.published.clone_from(&requests.status.addresses);
    requests.addresses_field = "spec.addresses".to_owned();
    let mut unusable = Vec::new();
    let mut report = Report::about(key.object());
    // One of another type refuses the Gateway as a whole.
    let is_ip = |address: &GatewayAddress| {
        address.type_.as_deref().is_none_or(|name| name == GatewayAddress::IP_ADDRESS)
    };
    for (index, address) in gateway.spec.addresses.iter().enumerate().filter(|(_, it)| is_ip(it)) {
        let Some(text) = address.value.as_deref().filter(|text| !text.is_empty()) else { continue };
        match net::parse_ip(text) {
            Ok(ip) if !requests.addresses.contains(&ip) => requests.addresses.push(ip),
            Ok(_) => {}
            Err(why) => {
                report.invalid(
                    format!("spec.addresses[{index}].value"),
                    format!("{text:?} {why}; it is ignored"),
                );
                unusable.push(format!("spec.addresses[{index}] {text:?} {why}"));
            }
        }
    }
    let is_by_value = !requests.addresses.is_empty() || !unusable.is_empty();
    let without = gateway.spec.addresses.iter().position(|it| it.value.as_deref().is_none_or(str::is_empty));
    if let Some(index) = without.filter(|_| is_by_value) {
        let message = "an entry without a value requests nothing beside entries with one; it is ignored";
        report.invalid(format!("spec.addresses[{index}]"), message);
    }
    problems.extend(report.into_problems());
    unusable
}

fn check_annotations(key: &ServiceKey, resolution: &Resolution<'_>, problems: &mut Vec<Problem>) {
    let mut check = |kind, object, metadata: &ObjectMeta| {
        let mut report = Report::about(object);
        gateway_api::check(kind, metadata, &mut report);
        problems.extend(report.into_problems());
    };
    check(AnnotatedKind::Gateway, key.object(), &resolution.gateway.metadata);
    for set in &resolution.sets {
        check(AnnotatedKind::ListenerSet, ListenerSet::object(&object_key(&set.metadata)), &set.metadata);
    }
    for (route, refs) in resolution.refs() {
        let imports: Vec<_> = refs.iter().filter_map(ResolvedRef::service_import).collect();
        let kind = if imports.is_empty() { AnnotatedKind::Route } else { AnnotatedKind::RouteOfImport };
        check(kind, route.key.object(), route.route.metadata());
        for (key, import) in imports {
            check(AnnotatedKind::ServiceImport, split::import_object(key), &import.metadata);
        }
    }
}
