//! Backends of a route: whether each backendRef may be used and exists, and what it refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use sheave_model::{Protocol, RefusedPart};

use crate::api::gateway_api::{BackendReference, RouteKey};
use crate::api::objects::{GatewayApiObjects, Objects};
use crate::api::routes::AnyRoute;
use crate::api::service_import::{GROUP as IMPORT_GROUP, ServiceImport};
use crate::api::service_key::ServiceKey;

/// Largest weight of a backendRef.
const MOST_WEIGHT: i32 = 1_000_000;
/// Largest number of backendRefs; manifests can have more.
const MOST_BACKENDS: usize = 16;

/// A backendRef of a route.
#[derive(Clone, Debug)]
pub(super) struct ResolvedRef {
    /// Name of the part: what the reference says. Repeated references get a number, so that names differ.
    pub(super) name: Arc<str>,
    pub(super) weight: u32,
    pub(super) target: Result<Backend, InvalidRef>,
}

/// Target of a valid backendRef. The key of a ServiceImport has the source of a Service.
#[derive(Clone, Debug)]
pub(super) enum Backend {
    Service { key: ServiceKey, service: Arc<Service>, port: ServicePort },
    Import { key: ServiceKey, import: Arc<ServiceImport>, port: ServicePort },
}

impl ResolvedRef {
    /// Whether it refers to a ServiceImport.
    pub(super) fn is_import(&self) -> bool {
        self.service_import().is_some()
    }

    /// The ServiceImport that it refers to.
    pub(super) fn service_import(&self) -> Option<(&ServiceKey, &ServiceImport)> {
        match &self.target {
            Ok(Backend::Import { key, import, .. }) => Some((key, import)),
            _ => None,
        }
    }

    /// Whether both resolve to the same version of the same object.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same_target = match (&self.target, &other.target) {
            (
                Ok(Backend::Service { service, port, .. }),
                Ok(Backend::Service { service: of, port: at, .. }),
            ) => Arc::ptr_eq(service, of) && port == at,
            (Ok(Backend::Import { import, port, .. }), Ok(Backend::Import { import: of, port: at, .. })) => {
                Arc::ptr_eq(import, of) && port == at
            }
            (Err(one), Err(other)) => one.reason == other.reason,
            _ => false,
        };
        (&self.name, self.weight) == (&other.name, other.weight) && same_target
    }
}

/// Why a backendRef cannot be used.
#[derive(Clone, Debug)]
pub(super) struct InvalidRef {
    pub(super) reason: RefusedPart,
    /// Field of the route.
    pub(super) field: String,
    /// Mistake, as a clause about the field.
    pub(super) message: String,
}

/// Resolves the backendRefs of a route, in the order of the spec.
pub(super) fn resolve(key: &RouteKey, route: &AnyRoute, objects: &Objects) -> Vec<ResolvedRef> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let refs = route.spec().rules.first().map(|rule| rule.backend_refs.as_slice()).unwrap_or_default();
    let resolve = |(index, reference): (usize, &BackendReference)| {
        let name = name(reference, &key.namespace);
        let times = names.entry(name.clone()).or_default();
        *times += 1;
        let name = if *times == 1 { name } else { format!("{name} ({times})") };
        let weight = reference.weight.unwrap_or(1).clamp(0, MOST_WEIGHT);
        let target = target(key, reference, objects).map_err(|(reason, message)| InvalidRef {
            reason,
            field: format!("spec.rules[0].backendRefs[{index}]"),
            message,
        });
        ResolvedRef { name: name.into(), weight: weight.unsigned_abs(), target }
    };
    refs.iter().take(MOST_BACKENDS).enumerate().map(resolve).collect()
}

/// The reference as text, such as `Service shop/web:80`.
fn name(reference: &BackendReference, own: &str) -> String {
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let namespace = reference.namespace_in(own);
    let port = reference.port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{kind} {namespace}/{}{port}", reference.name)
}

/// The target of a reference. Permission comes before existence: whether an object exists is nobody's business without a grant.
fn target(
    route: &RouteKey,
    reference: &BackendReference,
    objects: &Objects,
) -> Result<Backend, (RefusedPart, String)> {
    let (group, kind) =
        (reference.group.as_deref().unwrap_or_default(), reference.kind.as_deref().unwrap_or("Service"));
    let is_import = match (group, kind) {
        ("", "Service") => false,
        (IMPORT_GROUP, "ServiceImport") => true,
        _ => {
            let message = format!(
                "is of kind {kind:?} in the group {group:?}; only Services of the core group and ServiceImports are served"
            );
            return Err((RefusedPart::InvalidKind, message));
        }
    };
    let namespace = reference.namespace_in(&route.namespace);
    if *namespace != *route.namespace && !is_granted(route, (group, kind), reference, objects) {
        let message = "is in another namespace, and no ReferenceGrant there permits it".to_owned();
        return Err((RefusedPart::RefNotPermitted, message));
    }
    let key = ServiceKey::new(namespace, &reference.name);
    if is_import {
        import(key, route, reference, &objects.gateway_api)
    } else {
        service(key, route, reference, objects)
    }
}

/// Whether a ReferenceGrant in the backend's namespace permits the reference. Entries of a list are alternatives.
fn is_granted(
    route: &RouteKey,
    (group, kind): (&str, &str),
    reference: &BackendReference,
    objects: &Objects,
) -> bool {
    let namespace = reference.namespace_in(&route.namespace);
    let first = (Arc::from(namespace), Arc::default());
    let grants = objects.gateway_api.grants.range(first..);
    let mut grants = grants.take_while(|((at, _), _)| **at == *namespace).map(|(_, grant)| grant);
    grants.any(|grant| {
        let from = grant.spec.from.iter().any(|from| {
            from.group == crate::api::gateway_api::GROUP
                && from.kind == route.kind.name()
                && *from.namespace == *route.namespace
        });
        let to = grant.spec.to.iter().any(|to| {
            // The empty name stands for every object, as an absent one does.
            let named = to.name.as_deref().is_none_or(|name| name.is_empty() || name == reference.name);
            to.group == group && to.kind == kind && named
        });
        grant.metadata.deletion_timestamp.is_none() && from && to
    })
}

fn protocol(route: &RouteKey) -> Protocol {
    match route.kind {
        crate::api::gateway_api::RouteKind::Udp => Protocol::Udp,
        _ => Protocol::Tcp,
    }
}

fn service(
    key: ServiceKey,
    route: &RouteKey,
    reference: &BackendReference,
    objects: &Objects,
) -> Result<Backend, (RefusedPart, String)> {
    let missing = || (RefusedPart::BackendNotFound, "names a Service that does not exist".to_owned());
    let service = objects.services.get(&key).ok_or_else(missing)?;
    let spec = service.spec.as_ref().ok_or_else(missing)?;
    if spec.type_.as_deref() == Some("ExternalName") {
        let message = "names a Service of type ExternalName, which could lead anywhere (CVE-2021-25740)";
        return Err((RefusedPart::InvalidKind, message.to_owned()));
    }
    let Some(number) = reference.port else {
        return Err((RefusedPart::BackendNotFound, "names no port of the Service".to_owned()));
    };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let port =
        matching(ports, Some(number), protocol(route)).map_err(|refused| not_there(refused, number))?;
    Ok(Backend::Service { key, port: port.clone(), service: Arc::clone(service) })
}

fn import(
    key: ServiceKey,
    route: &RouteKey,
    reference: &BackendReference,
    objects: &GatewayApiObjects,
) -> Result<Backend, (RefusedPart, String)> {
    let name = (Arc::clone(&key.namespace), Arc::clone(&key.name));
    let Some(import) = objects.imports.get(&name) else {
        return Err((RefusedPart::BackendNotFound, "names a ServiceImport that does not exist".to_owned()));
    };
    let ports = import.spec.ports.iter().map(|port| ServicePort {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        port: port.port,
        app_protocol: port.app_protocol.clone(),
        ..ServicePort::default()
    });
    let ports: Vec<ServicePort> = ports.collect();
    let port = matching(&ports, reference.port, protocol(route)).map_err(|refused| match reference.port {
        Some(number) => not_there(refused, number),
        None => {
            (refused, "names no port, and the ServiceImport has not exactly one of the protocol".to_owned())
        }
    })?;
    Ok(Backend::Import { key, port: port.clone(), import: Arc::clone(import) })
}

/// The port with this number and protocol, or the only port of the protocol if no number is given.
fn matching(
    ports: &[ServicePort],
    number: Option<i32>,
    protocol: Protocol,
) -> Result<&ServicePort, RefusedPart> {
    let is_of = |port: &&ServicePort| match port.protocol.as_deref() {
        None | Some("") => protocol == Protocol::Tcp,
        Some(name) => name == protocol.name(),
    };
    let mut fitting =
        ports.iter().filter(is_of).filter(|port| number.is_none_or(|number| port.port == number));
    let first = fitting.next();
    match (first, number) {
        (Some(port), Some(_)) => Ok(port),
        (Some(port), None) if fitting.next().is_none() => Ok(port),
        (None, Some(number)) if ports.iter().any(|port| port.port == number) => {
            Err(RefusedPart::UnsupportedProtocol)
        }
        _ => Err(RefusedPart::BackendNotFound),
    }
}

fn not_there(refused: RefusedPart, number: i32) -> (RefusedPart, String) {
    let message = match refused {
        RefusedPart::UnsupportedProtocol => {
            format!("names port {number}, which exists only for another protocol than the route's")
        }
        _ => format!("names port {number}, which does not exist"),
    };
    (refused, message)
}
