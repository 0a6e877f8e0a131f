//! Addresses of a cluster's own Service, which replace its endpoints if its Pods are unreachable. They become a slice, so that
//! all later steps treat them like endpoints.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::clusters::Clusters;
use super::work_endpoints::{ClusterEndpoints, attributed_hostnames, work_ref};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::store::ServiceKey;
use crate::net;
use crate::net::Family;
use crate::projection::plan::{ListedSlice, SliceOrigin};

/// A Service status, with its object and field.
struct ReportedStatus<'a> {
    status: Cow<'a, Value>,
    /// If set, only entries with this hostname count.
    attributed: Option<&'a str>,
    object: ObjectRef,
    field: String,
    /// The Service as it is in the cluster.
    service: Option<&'a Service>,
}

/// The addresses of one cluster's Service as slices.
pub(super) fn slices(
    key: &ServiceKey,
    cluster: &str,
    part: Option<&ClusterEndpoints<'_>>,
    template: &Service,
    clusters: &Clusters<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<ListedSlice> {
    let from_work = part.and_then(|part| reported_by_work(key, part));
    let said = from_work.or_else(|| reported_by_binding(key, cluster, part, clusters));
    let mut found = said.map(|said| {
        let addresses = addresses(&said, clusters, problems);
        (said, addresses)
    });
    if found.as_ref().is_none_or(|(_, addresses)| addresses.is_empty()) {
        let said = reported_by_template(key, cluster, part, clusters);
        found = said.map(|said| {
            let addresses = addresses(&said, clusters, problems);
            (said, addresses)
        });
    }
    let Some((said, addresses)) = found else { return Vec::new() };
    let ports = ports(template, said.service);
    let of_family = |family: Family| {
        let ips: Vec<_> = addresses.iter().filter(|ip| Family::of(**ip) == family).collect();
        (!ips.is_empty()).then(|| {
            let endpoint = |ip: &&IpAddr| Endpoint { addresses: vec![ip.to_string()], ..Endpoint::default() };
            let slice = EndpointSlice {
                metadata: ObjectMeta {
                    namespace: Some(key.namespace.to_string()),
                    // The name appears where slices are named.
                    name: Some(format!("{}-status-of-{cluster}", key.name)),
                    ..ObjectMeta::default()
                },
                address_type: family.to_string(),
                endpoints: Some(ips.iter().map(endpoint).collect()),
                ports: Some(ports.clone()),
            };
            let origin = SliceOrigin::Within(said.object.clone(), said.field.clone());
            ListedSlice { slice: Arc::new(slice), origin }
        })
    };
    Family::ALL.into_iter().filter_map(of_family).collect()
}

/// The status of the Service in the Work that carries it.
fn reported_by_work<'a>(key: &ServiceKey, part: &ClusterEndpoints<'a>) -> Option<ReportedStatus<'a>> {
    part.services.iter().find_map(|(name, work, service)| {
        let of_service = |id: &crate::api::karmada::ManifestIdentifier| {
            id.kind == "Service" && id.namespace == *key.namespace && id.name == *key.name
        };
        let mut statuses = work.manifest_statuses().iter().enumerate();
        let (index, said) = statuses.find(|(_, it)| of_service(&it.identifier) && it.status.is_some())?;
        Some(ReportedStatus {
            status: Cow::Borrowed(said.status.as_ref()?),
            attributed: None,
            object: work_ref(name),
            field: format!("status.manifestStatuses[{index}].status"),
            service: Some(service),
        })
    })
}

/// The status in the ResourceBinding.
fn reported_by_binding<'a>(
    key: &ServiceKey,
    cluster: &str,
    part: Option<&ClusterEndpoints<'a>>,
    clusters: &Clusters<'a>,
) -> Option<ReportedStatus<'a>> {
    let binding = clusters.binding?;
    let mut statuses = binding.status.aggregated_status.iter().enumerate();
    let (index, said) = statuses.find(|(_, it)| it.cluster_name == cluster && it.status.is_some())?;
    let name = binding.metadata.name.as_deref().unwrap_or_default();
    Some(ReportedStatus {
        status: Cow::Borrowed(said.status.as_ref()?),
        attributed: None,
        object: ObjectRef { kind: "ResourceBinding", namespace: key.namespace.clone(), name: name.into() },
        field: format!("status.aggregatedStatus[{index}].status"),
        service: part.and_then(|part| part.services.first()).map(|(_, _, service)| *service),
    })
}

/// The status that Karmada aggregated into the template. Up to v1.13 it stored the cluster's name as hostname of an address
/// without one (karmada pkg/resourceinterpreter/default/native/aggregatestatus.go); other entries cannot be attributed to a
/// cluster.
fn reported_by_template<'a>(
    key: &ServiceKey,
    cluster: &'a str,
    part: Option<&ClusterEndpoints<'a>>,
    clusters: &Clusters<'a>,
) -> Option<ReportedStatus<'a>> {
    let template = clusters.fleet.templates.get(key)?;
    attributed_hostnames(template).any(|name| name == cluster).then_some(())?;
    Some(ReportedStatus {
        status: Cow::Owned(serde_json::to_value(template.status.as_ref()?).ok()?),
        attributed: Some(cluster),
        object: ObjectRef { kind: "Service", namespace: key.namespace.clone(), name: key.name.clone() },
        field: "status".to_owned(),
        service: part.and_then(|part| part.services.first()).map(|(_, _, service)| *service),
    })
}

fn addresses(said: &ReportedStatus<'_>, clusters: &Clusters<'_>, problems: &mut Vec<Problem>) -> Vec<IpAddr> {
    let mut report = Report::about(said.object.clone());
    let addresses = read_addresses(said, clusters, &mut report);
    problems.extend(report.into_problems());
    addresses
}

fn read_addresses(said: &ReportedStatus<'_>, clusters: &Clusters<'_>, report: &mut Report) -> Vec<IpAddr> {
    let field = &said.field;
    let mut addresses = Vec::new();
    let status = said.status.get("loadBalancer").cloned().unwrap_or_default();
    let status: LoadBalancerStatus = match serde_json::from_value(status) {
        Ok(status) => status,
        Err(_) if said.status.get("loadBalancer").is_none_or(Value::is_null) => return addresses,
        Err(why) => {
            report.invalid(format!("{field}.loadBalancer"), format!("cannot be read: {why}; it is not used"));
            return addresses;
        }
    };
    for (index, ingress) in status.ingress.iter().flatten().enumerate() {
        let field = |name| format!("{field}.loadBalancer.ingress[{index}].{name}");
        let hostname = ingress.hostname.as_deref().filter(|name| !name.is_empty());
        if said.attributed.is_some() && hostname != said.attributed {
            continue;
        }
        match (ingress.ip.as_deref().filter(|text| !text.is_empty()), hostname) {
            (Some(text), _) => match net::parse_ip(text) {
                Ok(ip) if addresses.contains(&ip) => {}
                Ok(ip) => addresses.push(ip),
                Err(why) => report.invalid(field("ip"), format!("{text:?} {why}; it is not used")),
            },
            // Up to v1.13 Karmada stored the cluster's name there.
            (None, Some(name)) if clusters.is_name(name) => {}
            (None, Some(name)) => {
                let message =
                    format!("{name:?} is a name, which is not resolved; it is not used as an endpoint");
                report.invalid(field("hostname"), message);
            }
            (None, None) => {}
        }
    }
    addresses
}

/// Ports at which the addresses serve. An OverridePolicy may have changed them for the cluster.
fn ports(template: &Service, there: Option<&Service>) -> Vec<EndpointPort> {
    let of = |service: &Service| -> Vec<ServicePort> {
        service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default()
    };
    let there = there.map(of);
    let protocol = |port: &ServicePort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let name = |port: &ServicePort| port.name.clone().unwrap_or_default();
    let listed = of(template).into_iter().filter_map(|port| {
        let same = |other: &&ServicePort| name(other) == name(&port) && protocol(other) == protocol(&port);
        let number = match &there {
            Some(there) => there.iter().find(same)?.port,
            None => port.port,
        };
        Some(EndpointPort {
            name: Some(name(&port)),
            port: Some(number),
            protocol: Some(protocol(&port)),
            ..EndpointPort::default()
        })
    });
    listed.collect()
}
