//! Split of a listener's traffic over the backends of its route. Each backend and the listener itself is planned like a Service of
//! one port, so that every rule about Services holds for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ClientIPConfig, Service, ServicePort, ServiceSpec, SessionAffinityConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sheave_model::{Failover, FrontendKind, Spread};

use super::backend_refs::{Backend, ResolvedRef};
use crate::api::objects::Objects;
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::routes::AnyRoute;
use crate::api::service_key::ServiceKey;
use crate::projection::annotations::gateway_api::{self, AFFINITY, Merged, SOURCE_RANGES};
use crate::projection::annotations::{self};
use crate::projection::class::FrontendKinds;
use crate::projection::multi_cluster;
use crate::projection::options::Options;
use crate::projection::plan::{BackendPool, MultiClusterPlan, PartPlan, Plan};
use crate::projection::read_service::{ServiceFields, read};
use crate::projection::status::MultiClusterStatus;
use crate::time;

/// The part of a resolved reference.
pub(super) fn part(
    resolved: &ResolvedRef,
    route: &AnyRoute,
    objects: &Objects,
    options: &Options,
    problems: &mut Vec<Problem>,
) -> PartPlan {
    let target = match &resolved.target {
        Ok(backend) => Ok(BackendPool { plan: Box::new(pool(backend, route, objects, options, problems)) }),
        Err(invalid) => Err(invalid.reason),
    };
    PartPlan { name: Arc::clone(&resolved.name), weight: resolved.weight, target }
}

fn pool(
    backend: &Backend,
    route: &AnyRoute,
    objects: &Objects,
    options: &Options,
    problems: &mut Vec<Problem>,
) -> Plan {
    let (key, metadata, spec, port) = match backend {
        Backend::Service { key, service, port } => {
            let spec = service.spec.as_ref();
            let affinity = spec.and_then(|spec| spec.session_affinity.clone());
            let config = spec.and_then(|spec| spec.session_affinity_config.clone());
            (key, &service.metadata, (affinity, config), port)
        }
        Backend::Import { key, import, port } => {
            let spec = &import.spec;
            (
                key,
                &import.metadata,
                (spec.session_affinity.clone(), spec.session_affinity_config.clone()),
                port,
            )
        }
    };
    let is_import = matches!(backend, Backend::Import { .. });
    let mut merged = Merged::default();
    merged.add_endpoints(route.key().object(), route.metadata(), is_import);
    merged.add_endpoints(backend_object(backend), metadata, is_import);
    let mut own = Report::about(route.key().object());
    let (session_affinity, session_affinity_config) = affinity(route, &mut own).unwrap_or(spec);
    problems.extend(own.into_problems());
    let service = Service {
        metadata: named(key, &merged.annotations),
        spec: Some(ServiceSpec {
            ports: Some(vec![ServicePort { node_port: None, ..port.clone() }]),
            session_affinity,
            session_affinity_config,
            ..ServiceSpec::default()
        }),
        status: None,
    };
    let mut plan = read_as_service(key, &service, options, &merged, problems);
    // What a route or ServiceImport finds out about an endpoint is not the Service's, which has clients of its own.
    let judge = gateway_api::has_judgement(route.metadata()).then(|| route.key().object());
    let judge = judge.or_else(|| is_import.then(|| import_object(key)));
    plan.settings_of = judge.map(|object| object.to_string().into());
    if is_import {
        plan.fleet = Some(fleet(key, &service, objects, options, &merged, problems));
    }
    plan
}

/// The clusters that export a ServiceImport, with the rules between them. Only they serve it, never the Service with the same name.
fn fleet(
    key: &ServiceKey,
    service: &Service,
    objects: &Objects,
    options: &Options,
    merged: &Merged<'_>,
    problems: &mut Vec<Problem>,
) -> MultiClusterPlan {
    let mut report = Report::about(import_object(key));
    let slices = objects.gateway_api.import_slices.get(key).into_iter().flat_map(BTreeMap::values);
    let found = multi_cluster::of_service(key, service, slices, options, &mut report);
    let mut found_problems = report.into_problems();
    merged.attribute(&mut found_problems);
    problems.extend(found_problems);
    found.unwrap_or_else(|| MultiClusterPlan {
        members: Vec::new(),
        failover: Failover { spread: Spread::Endpoints, overprovisioning: options.fleet.overprovisioning },
        status: MultiClusterStatus::default(),
        left: Vec::new(),
    })
}

/// The listener as a Service of its one port, with the annotations about its socket and about connections of its route.
pub(super) fn listener(
    key: &ServiceKey,
    port: ServicePort,
    merged: &Merged<'_>,
    options: &Options,
    problems: &mut Vec<Problem>,
) -> Plan {
    let ranges = merged.annotations.get(SOURCE_RANGES).map(|ranges| {
        ranges.split(',').map(|range| range.trim().to_owned()).filter(|range| !range.is_empty()).collect()
    });
    let service = Service {
        metadata: named(key, &merged.annotations),
        spec: Some(ServiceSpec {
            ports: Some(vec![port]),
            load_balancer_source_ranges: ranges.map(|ranges: Vec<String>| {
                // A list without any range admits nobody, as an unreadable one does.
                if ranges.is_empty() { vec![String::new()] } else { ranges }
            }),
            ..ServiceSpec::default()
        }),
        status: None,
    };
    read_as_service(key, &service, options, merged, problems)
}

fn read_as_service(
    key: &ServiceKey,
    service: &Service,
    options: &Options,
    merged: &Merged<'_>,
    problems: &mut Vec<Problem>,
) -> Plan {
    let kinds = FrontendKinds::from([FrontendKind::LoadBalancer]);
    let fields = ServiceFields { key, service, kinds, exposed: None };
    let mut plan = read(fields, std::iter::empty(), options, Report::about(key.object()));
    let mut found = std::mem::take(&mut plan.problems);
    for problem in &mut found {
        if problem.field.starts_with("spec.loadBalancerSourceRanges") {
            problem.field = annotations::field(SOURCE_RANGES);
        }
    }
    merged.attribute(&mut found);
    problems.extend(found);
    plan
}

fn named(key: &ServiceKey, annotations: &BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(key.namespace.to_string()),
        name: Some(key.name.to_string()),
        annotations: Some(annotations.clone()),
        ..ObjectMeta::default()
    }
}

fn backend_object(backend: &Backend) -> ObjectRef {
    match backend {
        Backend::Service { key, .. } => key.object(),
        Backend::Import { key, .. } => import_object(key),
    }
}

pub(super) fn import_object(key: &ServiceKey) -> ObjectRef {
    ObjectRef { kind: "ServiceImport", ..key.object() }
}

/// Affinity as in a Service's spec.
type SpecAffinity = (Option<String>, Option<SessionAffinityConfig>);

/// The affinity that the annotation of a route requests; `None` without a valid one.
fn affinity(route: &AnyRoute, report: &mut Report) -> Option<SpecAffinity> {
    let text = route.metadata().annotations.as_ref()?.get(AFFINITY)?.trim();
    let (name, timeout) = text.split_once('=').map_or((text, None), |(name, timeout)| (name, Some(timeout)));
    let seconds = timeout.map(|timeout| {
        let parsed = time::parse_duration(timeout.trim()).ok()?;
        i32::try_from(parsed.as_secs()).ok().filter(|seconds| (1..=86_400).contains(seconds))
    });
    match (name.trim(), seconds) {
        ("none", None) => Some((Some("None".to_owned()), None)),
        ("ClientIP", None) => Some((Some("ClientIP".to_owned()), None)),
        ("ClientIP", Some(Some(seconds))) => {
            let client_ip = Some(ClientIPConfig { timeout_seconds: Some(seconds) });
            Some((Some("ClientIP".to_owned()), Some(SessionAffinityConfig { client_ip })))
        }
        _ => {
            let message = format!(
                "{text:?} is not none, ClientIP, or ClientIP with a timeout from 1s to 24h such as ClientIP=1h; the affinity of \
                 each backend holds"
            );
            report.invalid(annotations::field(AFFINITY), message);
            None
        }
    }
}
