//! Class and exposed ports of a MultiClusterService, and the Service that it is planned as: the template with its name, with the
//! metadata, annotations and status of the MultiClusterService.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use sheave_model::FrontendKind;

use crate::api::karmada::{ExposurePort, MultiClusterService};
use crate::api::names;
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, reason};
use crate::api::store::{KarmadaObjects, ServiceKey};
use crate::projection::annotations;
use crate::projection::annotations::CLASS;
use crate::projection::options::Options;
use crate::projection::plan::Plan;

/// Exposed ports.
#[derive(Debug, Default)]
pub(super) struct ExposedPorts {
    /// Indexes into the Service's ports; `None` means all.
    pub(super) indexes: Option<BTreeSet<usize>>,
    /// Exposed ports that the Service does not have.
    pub(super) unmatched: Vec<String>,
}

/// Matches the exposed ports with the Service's, by name and number if a name is given, else by number for every protocol.
pub(super) fn exposed_ports(
    wanted: &[ExposurePort],
    spec: &ServiceSpec,
    report: &mut Report,
) -> ExposedPorts {
    if wanted.is_empty() {
        return ExposedPorts::default();
    }
    let ports = spec.ports.as_deref().unwrap_or_default();
    let (mut indexes, mut unmatched) = (BTreeSet::new(), Vec::new());
    for (index, want) in wanted.iter().enumerate() {
        let named = |name: Option<&str>| want.name.is_empty() || name.unwrap_or_default() == want.name;
        let matching =
            ports.iter().enumerate().filter(|(_, it)| it.port == want.port && named(it.name.as_deref()));
        let mut any = false;
        indexes.extend(matching.map(|(at, _)| at).inspect(|_| any = true));
        if any {
            continue;
        }
        let same_name =
            ports.iter().find(|it| !want.name.is_empty() && it.name.as_deref() == Some(&*want.name));
        let message = match same_name {
            Some(port) => format!(
                "the Service's port {:?} is {}, not {}; it is not exposed",
                want.name, port.port, want.port
            ),
            None if want.name.is_empty() => {
                format!("the Service has no port {}; nothing is exposed for it", want.port)
            }
            None => {
                format!("the Service has no port {:?} {}; nothing is exposed for it", want.name, want.port)
            }
        };
        report.add(reason::PORT_NOT_FOUND, format!("spec.ports[{index}]"), None, message);
        unmatched.push(match want.name.as_str() {
            "" => want.port.to_string(),
            name => format!("{name}:{}", want.port),
        });
    }
    ExposedPorts { indexes: Some(indexes), unmatched }
}

/// Meaning of `spec.types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum RequestedTypes {
    /// Exposed on our addresses, and possibly elsewhere.
    LoadBalancer,
    /// Exposed only in other clusters, which is up to Karmada.
    Elsewhere,
    /// No known type. The report has the Problem.
    Nowhere,
}

/// Reads `spec.types`.
pub(super) fn requested_types(types: &[String], report: &mut Report) -> RequestedTypes {
    let has = |name: &str| types.iter().any(|it| it == name);
    let known = |name: &String| matches!(name.as_str(), "LoadBalancer" | "CrossCluster");
    for (index, other) in types.iter().enumerate().filter(|(_, name)| !known(name)) {
        let message = format!("{other:?} is not LoadBalancer or CrossCluster; it is ignored");
        report.invalid(format!("spec.types[{index}]"), message);
    }
    match (has("LoadBalancer"), has("CrossCluster")) {
        (true, true) => {
            let message = "LoadBalancer and CrossCluster in one object, which the admission of Karmada denies since v1.9; \
                           LoadBalancer is served";
            report.invalid("spec.types", message);
            RequestedTypes::LoadBalancer
        }
        (true, false) => RequestedTypes::LoadBalancer,
        (false, true) => RequestedTypes::Elsewhere,
        (false, false) => {
            let message = "neither LoadBalancer nor CrossCluster is asked for; it is not served";
            report.add(reason::NOT_SERVED, "spec.types", None, message);
            RequestedTypes::Nowhere
        }
    }
}

/// The Service that a MultiClusterService exposes. A Service that is being deleted counts as gone.
pub(in crate::projection) fn template<'a>(
    fleet: &'a KarmadaObjects,
    key: &ServiceKey,
) -> Option<&'a Service> {
    fleet.templates.get(key).map(|it| &**it).filter(|it| it.metadata.deletion_timestamp.is_none())
}

/// Whether it is ours; the error states why not. Its API has no field for a class, so its annotation decides, and then the
/// annotation and field of the Service. While its Service is replaced, it stays with the installation that has taken it.
pub(in crate::projection) fn whose(
    service: &MultiClusterService,
    template: Option<&Service>,
    options: &Options,
) -> Result<(), String> {
    if !options.frontends.contains(&FrontendKind::LoadBalancer) {
        return Err("this gateway makes no frontends of kind LoadBalancer (frontends in the configuration)"
            .to_owned());
    }
    match class(service, template) {
        Some(class) if class == options.load_balancer_class => Ok(()),
        None if template.is_none() && is_taken_here(service, options) => Ok(()),
        None if options.fleet.handle_unclassified => unclassified(service, options),
        Some(class) => Err(format!(
            "its class is {class:?}; this gateway serves class {:?}",
            options.load_balancer_class
        )),
        None => {
            Err("nothing names its class, and karmada.handleUnclassified in the configuration is off"
                .to_owned())
        }
    }
}

fn class<'a>(service: &'a MultiClusterService, template: Option<&'a Service>) -> Option<&'a str> {
    let own = service.metadata.annotations.as_ref().and_then(|all| all.get(CLASS)).map(String::as_str);
    let annotated = || annotations::value(template?, CLASS);
    let field = || template?.spec.as_ref()?.load_balancer_class.as_deref();
    own.or_else(annotated).or_else(field).map(str::trim).filter(|class| !class.is_empty())
}

/// Whether its status is left to other installations: none has taken it yet, and another one may take it, or it is unknown which
/// one may.
pub(in crate::projection) fn is_left_alone(
    service: &MultiClusterService,
    template: Option<&Service>,
    options: &Options,
) -> bool {
    options.fleet.handle_unclassified
        && !options.fleet.authority.untaken
        && class(service, template).is_none()
        && first_taker(service).is_none()
}

/// Finalizer of the installation that took it first.
fn first_taker(service: &MultiClusterService) -> Option<&String> {
    service.metadata.finalizers.iter().flatten().find(|finalizer| names::is_finalizer(finalizer))
}

/// Whether this installation took it first.
fn is_taken_here(service: &MultiClusterService, options: &Options) -> bool {
    first_taker(service).is_some_and(|first| *first == names::finalizer(&options.load_balancer_class))
}

/// Decides about an object without a class. It belongs to the installation whose finalizer came first, as ordered by the API
/// server; without a finalizer, to the installation that may take it.
fn unclassified(service: &MultiClusterService, options: &Options) -> Result<(), String> {
    match first_taker(service) {
        Some(_) if is_taken_here(service, options) => Ok(()),
        Some(first) => Err(format!(
            "nothing names its class, and another installation has taken it (finalizer {first}); to move it here, set the \
             annotation {CLASS} to {:?}",
            options.load_balancer_class
        )),
        None if options.fleet.authority.untaken => Ok(()),
        None => Err("nothing names its class, and another installation may take it".to_owned()),
    }
}

/// The Service that it is planned as.
pub(super) fn effective(service: &MultiClusterService, template: &Service, options: &Options) -> Service {
    let mut effective = template.clone();
    effective.metadata = service.metadata.clone();
    let mut annotated = template.metadata.annotations.clone().unwrap_or_default();
    let own = service.metadata.annotations.iter().flatten().filter(|(name, _)| annotations::is_ours(name));
    annotated.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    effective.metadata.annotations = Some(annotated);
    effective.status.clone_from(&service.status);
    let spec = effective.spec.get_or_insert_default();
    spec.type_ = Some("LoadBalancer".to_owned());
    spec.load_balancer_class = Some(options.load_balancer_class.clone());
    // These belong to the member clusters.
    spec.external_ips = None;
    spec.health_check_node_port = None;
    spec.ports.iter_mut().flatten().for_each(|port| port.node_port = None);
    effective
}

/// Qualifies each field as one of the MultiClusterService or of its Service.
pub(super) fn rename_fields(plan: &mut Plan, service: &MultiClusterService, template: &Service) {
    plan.problems = renamed(std::mem::take(&mut plan.problems), service);
    let asked = plan.requests.addresses_field.as_str();
    let own = annotated(asked).is_none_or(|name| has_annotation(service, name));
    let by_template = annotated(asked).is_some_and(|name| annotations::value(template, name).is_some());
    if asked.starts_with("spec.") || (!own && by_template) {
        plan.requests.addresses_field = format!("Service.{asked}");
    }
}

/// Like [`rename_fields`], only for Problems.
pub(super) fn renamed(mut problems: Vec<Problem>, service: &MultiClusterService) -> Vec<Problem> {
    for problem in &mut problems {
        let of_template = problem.field.starts_with("spec.")
            || annotated(&problem.field).is_some_and(|name| !has_annotation(service, name));
        if of_template {
            problem.field.insert_str(0, "Service.");
        }
    }
    problems
}

/// Name of the annotation in a field path.
fn annotated(field: &str) -> Option<&str> {
    field.strip_prefix("metadata.annotations[")?.strip_suffix(']')
}

fn has_annotation(service: &MultiClusterService, name: &str) -> bool {
    service.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(name))
}
