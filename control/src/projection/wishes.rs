//! Where a Service says which addresses it has or wants: its status, annotations and `loadBalancerIP`.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;

use super::families::Families;
use crate::ip::{self, Family};
use crate::report::Report;

const ADDRESSES: &str = "sheave.dev/addresses";
const ADDRESSES_FIELD: &str = "metadata.annotations[sheave.dev/addresses]";
const ADDRESS_FIELD: &str = "spec.loadBalancerIP";
/// Names the pool to allocate from.
pub(super) const POOL: &str = "sheave.dev/address-pool";

/// Addresses that a Service has or asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// Addresses that its status already publishes: these are kept.
    pub(super) published: Vec<IpAddr>,
    /// Addresses that it asks for by value.
    pub(super) addresses: Vec<IpAddr>,
    /// The field that holds `addresses`.
    pub(super) addresses_field: &'static str,
    /// The pool that it asks for by name.
    pub(super) pool: Option<String>,
}

/// Reads them; values that cannot be used are reported and left out.
pub(super) fn read(service: &Service, families: &Families, report: &mut Report) -> Wishes {
    let annotations = service.metadata.annotations.as_ref();
    let pool = annotations.and_then(|all| all.get(POOL)).map(|name| name.trim().to_owned());
    Wishes {
        published: published(service, families, report),
        addresses: requested(service, families, report),
        addresses_field: if annotated(service).is_some() { ADDRESSES_FIELD } else { ADDRESS_FIELD },
        pool: pool.filter(|name| !name.is_empty()),
    }
}

/// `ipMode` does not matter: what the status says is ours to serve in either mode.
fn published(service: &Service, families: &Families, report: &mut Report) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    let mut addresses = Vec::with_capacity(ingress.len());
    for (index, ingress) in ingress.iter().enumerate() {
        if let Some(text) = ingress.ip.as_deref().filter(|text| !text.is_empty()) {
            let field = || format!("status.loadBalancer.ingress[{index}].ip");
            add(&mut addresses, text, field, families, report);
        }
    }
    addresses
}

/// The annotation wins over the older field.
fn requested(service: &Service, families: &Families, report: &mut Report) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let annotation = annotated(service);
    let texts = annotation.unwrap_or_default();
    for text in texts.split(',').filter(|text| !text.trim().is_empty()) {
        add(&mut addresses, text, || ADDRESSES_FIELD.to_owned(), families, report);
    }
    let older = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref()).unwrap_or_default();
    if older.is_empty() {
        return addresses;
    }
    if annotation.is_none() {
        add(&mut addresses, older, || ADDRESS_FIELD.to_owned(), families, report);
    } else if !ip::parse(older).is_ok_and(|ip| addresses.contains(&ip)) {
        report.invalid(
            ADDRESS_FIELD,
            format!("{older:?} is ignored: the annotation {ADDRESSES} says otherwise"),
        );
    }
    addresses
}

fn annotated(service: &Service) -> Option<&str> {
    service.metadata.annotations.as_ref()?.get(ADDRESSES).map(String::as_str)
}

fn add(
    addresses: &mut Vec<IpAddr>,
    text: &str,
    field: impl Fn() -> String,
    families: &Families,
    report: &mut Report,
) {
    match ip::parse(text) {
        Ok(ip) if families.given && !families.wanted.contains(&Family::of(ip)) => {
            report.invalid(field(), format!("{text:?} is not of the Service's ipFamilies; it is ignored"));
        }
        Ok(ip) if addresses.contains(&ip) => {}
        Ok(ip) => addresses.push(ip),
        Err(why) => report.invalid(field(), format!("{text:?} {why}; it is ignored")),
    }
}
