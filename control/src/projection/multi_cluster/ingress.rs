//! Where Pods of another cluster cannot be reached: its own Service's addresses stand for its endpoints. They are written down
//! as a slice, so that everything after treats them like endpoints.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::super::annotations::{self, CLUSTER_ENDPOINTS};
use super::super::members::{Listed, Origin};
use super::clusters::Clusters;
use super::sources::{Part, work_ref};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::store::ServiceKey;
use crate::net::{self, Family};

/// What stands for the endpoints of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Its Pods.
    Pods,
    /// The addresses of its Service.
    Ingress,
    /// Its Pods where slices of them are known, else the addresses of its Service.
    Auto,
}

/// Reads the annotation.
pub(super) fn mode(service: &Service, report: &mut Report) -> Mode {
    let mode = annotations::read(service, CLUSTER_ENDPOINTS, report, |asked| match asked.trim() {
        "auto" => Ok(Mode::Auto),
        "pods" => Ok(Mode::Pods),
        "ingress" => Ok(Mode::Ingress),
        other => Err(format!("{other:?} is not pods, ingress or auto; auto is used")),
    });
    mode.unwrap_or(Mode::Auto)
}

/// A status, and the object and field that it is in.
struct Said<'a> {
    status: Cow<'a, Value>,
    /// Of its entries only those with this hostname count.
    attributed: Option<&'a str>,
    object: ObjectRef,
    field: String,
    /// The Service as it is in the cluster.
    service: Option<&'a Service>,
}

/// The addresses of one cluster's Service, as slices.
pub(super) fn slices(
    key: &ServiceKey,
    cluster: &str,
    part: Option<&Part<'_>>,
    template: &Service,
    clusters: &Clusters<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<Listed> {
    let from_work = part.and_then(|part| said_by_work(key, part));
    let said = from_work.or_else(|| said_by_binding(key, cluster, part, clusters));
    let mut found = said.map(|said| {
        let addresses = addresses(&said, clusters, problems);
        (said, addresses)
    });
    if found.as_ref().is_none_or(|(_, addresses)| addresses.is_empty()) {
        let said = said_by_template(key, cluster, part, clusters);
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
                    // Shown where slices are named.
                    name: Some(format!("{}-status-of-{cluster}", key.name)),
                    ..ObjectMeta::default()
                },
                address_type: family.to_string(),
                endpoints: Some(ips.iter().map(endpoint).collect()),
                ports: Some(ports.clone()),
            };
            let origin = Origin::Within(said.object.clone(), said.field.clone());
            Listed { slice: Arc::new(slice), origin }
        })
    };
    Family::ALL.into_iter().filter_map(of_family).collect()
}

/// What a Work says of the Service that it carries.
fn said_by_work<'a>(key: &ServiceKey, part: &Part<'a>) -> Option<Said<'a>> {
    part.services.iter().find_map(|(name, work, service)| {
        let of_service = |id: &crate::api::karmada::ManifestIdentifier| {
            id.kind == "Service" && id.namespace == *key.namespace && id.name == *key.name
        };
        let mut statuses = work.manifest_statuses().iter().enumerate();
        let (index, said) = statuses.find(|(_, it)| of_service(&it.identifier) && it.status.is_some())?;
        Some(Said {
            status: Cow::Borrowed(said.status.as_ref()?),
            attributed: None,
            object: work_ref(name),
            field: format!("status.manifestStatuses[{index}].status"),
            service: Some(service),
        })
    })
}

/// What the ResourceBinding collected.
fn said_by_binding<'a>(
    key: &ServiceKey,
    cluster: &str,
    part: Option<&Part<'a>>,
    clusters: &Clusters<'a>,
) -> Option<Said<'a>> {
    let binding = clusters.binding?;
    let mut statuses = binding.status.aggregated_status.iter().enumerate();
    let (index, said) = statuses.find(|(_, it)| it.cluster_name == cluster && it.status.is_some())?;
    let name = binding.metadata.name.as_deref().unwrap_or_default();
    Some(Said {
        status: Cow::Borrowed(said.status.as_ref()?),
        attributed: None,
        object: ObjectRef { kind: "ResourceBinding", namespace: key.namespace.clone(), name: name.into() },
        field: format!("status.aggregatedStatus[{index}].status"),
        service: part.and_then(|part| part.services.first()).map(|(_, _, service)| *service),
    })
}

/// What Karmada aggregated into the template. Up to v1.13 it named the cluster of an address without a hostname there
/// (karmada pkg/resourceinterpreter/default/native/aggregatestatus.go); other entries do not tell whose they are.
fn said_by_template<'a>(
    key: &ServiceKey,
    cluster: &'a str,
    part: Option<&Part<'a>>,
    clusters: &Clusters<'a>,
) -> Option<Said<'a>> {
    let template = clusters.fleet.templates.get(key)?;
    attributed(template).any(|name| name == cluster).then_some(())?;
    Some(Said {
        status: Cow::Owned(serde_json::to_value(template.status.as_ref()?).ok()?),
        attributed: Some(cluster),
        object: ObjectRef { kind: "Service", namespace: key.namespace.clone(), name: key.name.clone() },
        field: "status".to_owned(),
        service: part.and_then(|part| part.services.first()).map(|(_, _, service)| *service),
    })
}

/// The hostnames beside addresses in a template's status; some may be names of clusters.
pub(super) fn attributed(template: &Service) -> impl Iterator<Item = &str> {
    let status = template.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    let entries = ingress.iter().filter(|it| it.ip.as_deref().is_some_and(|ip| !ip.is_empty()));
    entries.filter_map(|it| it.hostname.as_deref())
}

fn addresses(said: &Said<'_>, clusters: &Clusters<'_>, problems: &mut Vec<Problem>) -> Vec<IpAddr> {
    let mut report = Report::about(said.object.clone());
    let addresses = read_addresses(said, clusters, &mut report);
    problems.extend(report.into_problems());
    addresses
}

fn read_addresses(said: &Said<'_>, clusters: &Clusters<'_>, report: &mut Report) -> Vec<IpAddr> {
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
            // Up to v1.13 Karmada wrote the cluster's name there.
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

/// On which numbers the addresses serve the ports: an OverridePolicy may have changed them for the cluster.
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
