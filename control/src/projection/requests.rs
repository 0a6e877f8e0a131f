//! Load balancer addresses that a Service has or requests: from its status, annotations and `loadBalancerIP`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServiceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use sheave_model::FrontendSource;

use super::allocator::NodeFamilies;
use super::annotations;
use super::annotations::{ADDRESS_POOL, ADDRESSES, RENUMBER, addresses, usable_address};
use super::families::Families;
use super::options::Options;
use super::published::Published;
use crate::api::names;
use crate::api::problem::report::Report;
use crate::net;

const ADDRESS_FIELD: &str = "spec.loadBalancerIP";

/// Addresses that a Service has or requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Addresses in its status that fit the Service. It keeps them.
    pub(super) published: Vec<IpAddr>,
    /// Everything that its status publishes, including ports.
    pub(super) status: Published,
    /// Families in which these are addresses of gateway nodes, according to the status.
    pub(super) node_families: NodeFamilies,
    /// Whether another installation has taken the object and publishes these addresses, so that they need not be kept for
    /// clients.
    pub(super) by_neighbour: bool,
    /// Addresses that it requests by value.
    pub(super) addresses: Vec<IpAddr>,
    /// The field with `addresses`.
    pub(super) addresses_field: String,
    /// Hostnames of addresses in its status.
    pub(super) hostnames: BTreeMap<IpAddr, String>,
    /// Name of the pool that it requests.
    pub(super) pool: Option<String>,
    /// Whether to replace an address that no pool offers to it any longer.
    pub(super) renumber: bool,
}

/// Whether it has another installation's finalizer, and not that of this class.
fn is_neighbours(service: &Service, class: &str) -> bool {
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|it| names::is_finalizer(it)) && !finalizers.contains(&names::finalizer(class))
}

/// Reads the requests. Unusable values are reported and left out.
pub(super) fn read(
    (source, service): (FrontendSource, &Service),
    families: &Families,
    options: &Options,
    report: &mut Report,
) -> Requests {
    let pool = annotations::value(service, ADDRESS_POOL).map(|name| name.trim().to_owned());
    let annotated = annotations::value(service, ADDRESSES).is_some();
    let mut requests = Requests {
        addresses: requested(service, families, report),
        addresses_field: if annotated { annotations::field(ADDRESSES) } else { ADDRESS_FIELD.to_owned() },
        pool: pool.filter(|name| !name.is_empty()),
        node_families: node_families(service.status.as_ref()),
        by_neighbour: is_neighbours(service, &options.load_balancer_class),
        status: Published::read(source, service.status.as_ref()),
        renumber: annotations::flag(service, RENUMBER, report, "it counts as false"),
        ..Requests::default()
    };
    read_status(service, families, &mut requests, report);
    requests
}

/// Families of gateway nodes' addresses, from the condition that the controller writes together with the addresses.
pub(super) fn node_families(status: Option<&ServiceStatus>) -> NodeFamilies {
    let conditions = status.and_then(|status| status.conditions.as_deref());
    node_families_of(conditions.unwrap_or_default())
}

/// Families of gateway nodes' addresses, from the conditions of a status.
pub(super) fn node_families_of(conditions: &[Condition]) -> NodeFamilies {
    let said = conditions.iter().find(|it| it.type_ == names::FROM_GATEWAY_NODES && it.status == "True");
    said.map(|it| NodeFamilies::named(&it.reason)).unwrap_or_default()
}

/// Reads the addresses in the status. `ipMode` is ignored: addresses are served in either mode.
fn read_status(service: &Service, families: &Families, requests: &mut Requests, report: &mut Report) {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    for (index, ingress) in ingress.iter().enumerate() {
        let field = |name| format!("status.loadBalancer.ingress[{index}].{name}");
        let hostname = ingress.hostname.as_deref().filter(|name| !name.is_empty());
        match (ingress.ip.as_deref().filter(|text| !text.is_empty()), hostname) {
            (Some(text), hostname) => {
                let ip = add(&mut requests.published, text, || field("ip"), families, report);
                match hostname {
                    // Karmada rejects every later change of an object with such a status (karmada validatingmcs.go).
                    Some(name) if !net::is_host_name(name) => {
                        let message = format!("{name:?} is no DNS name; it is not published again");
                        report.invalid(field("hostname"), message);
                    }
                    name => requests.hostnames.extend(ip.zip(name.map(str::to_owned))),
                }
            }
            (None, Some(hostname)) => {
                let message = format!(
                    "{hostname:?} has no address beside it, so nothing is served for it, and it would not be published"
                );
                report.invalid(field("hostname"), message);
            }
            (None, None) => {}
        }
    }
}

/// Addresses requested by value. The annotation takes precedence over the older field.
fn requested(service: &Service, families: &Families, report: &mut Report) -> Vec<IpAddr> {
    let annotation = annotations::value(service, ADDRESSES);
    let mut addresses = annotation.map(|texts| addresses(texts, families, report)).unwrap_or_default();
    let older = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref()).unwrap_or_default();
    if older.is_empty() {
        return addresses;
    }
    if annotation.is_none() {
        add(&mut addresses, older, || ADDRESS_FIELD.to_owned(), families, report);
    } else if !net::parse_ip(older).is_ok_and(|ip| addresses.contains(&ip)) {
        report.invalid(
            ADDRESS_FIELD,
            format!("{older:?} is ignored: the annotation {ADDRESSES} says otherwise"),
        );
    }
    addresses
}

/// Adds the address unless it is present. Returns it if it is usable.
fn add(
    addresses: &mut Vec<IpAddr>,
    text: &str,
    field: impl Fn() -> String,
    families: &Families,
    report: &mut Report,
) -> Option<IpAddr> {
    match usable_address(text, families) {
        Ok(ip) => {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
            Some(ip)
        }
        Err(refused) => {
            report.invalid(field(), format!("{text:?} {refused}; it is ignored"));
            None
        }
    }
}
