//! Cilium: pools of LB-IPAM, and their announcements.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::announcement::{self, Advertisement, AdvertisementKind};
use super::draft::{PoolDraft, left, texts};
use super::{Findings, NAMESPACE_NAME, frr, selectors, services};
use crate::projection::ADDRESS_POOL;
use crate::sources::manifests::RawObject;

const GROUP: &str = "cilium.io";
/// Keys of a serviceSelector that stand for metadata of the Service.
const NAMESPACE_KEY: &str = "io.kubernetes.service.namespace";
const NAME_KEY: &str = "io.kubernetes.service.name";

const NOT_SERVICES: &str = "Sheave announces addresses of Services alone; leave this to Cilium";

/// Translates the objects of Cilium.
pub(super) fn translate<'a>(objects: &'a [RawObject], findings: &mut Findings<'a>) {
    let ours = || objects.iter().filter(|it| it.group() == GROUP);
    let services: Vec<&RawObject> = objects.iter().filter(|it| services::is_load_balancer(it)).collect();
    let mut advertisements = Vec::new();
    for object in ours() {
        match object.kind() {
            "CiliumL2AnnouncementPolicy" => {
                advertisements.extend(l2_policy(object, &services, findings));
            }
            "CiliumBGPClusterConfig" | "CiliumBGPPeeringPolicy" => {
                findings.modes.insert(AdvertisementKind::Bgp);
                frr::cilium_cluster(object, findings);
                virtual_routers(object, &services, findings);
            }
            "CiliumBGPAdvertisement" => bgp_advertisement(object, &services, findings),
            "CiliumBGPPeerConfig" | "CiliumBGPNodeConfigOverride" => {
                let message = "write timers, passwords and BFD of the sessions to frr.conf";
                findings.left.push(left(object, "spec", message));
            }
            _ => {}
        }
    }
    for pool in ours().filter(|it| it.kind() == "CiliumLoadBalancerIPPool") {
        let mut draft = read_pool(pool);
        announcement::announce(&mut draft, pool.name(), &advertisements);
        findings.pools.push(draft);
    }
    findings.modes.extend(advertisements.iter().map(|it| it.mode));
}

fn read_pool(pool: &RawObject) -> PoolDraft<'_> {
    let mut draft = PoolDraft::new(pool, pool.name());
    let without_ends = pool.at(&["spec", "allowFirstLastIPs"]).and_then(Value::as_str) == Some("No");
    for list in ["blocks", "cidrs"] {
        let blocks = pool.at(&["spec", list]).and_then(Value::as_array);
        for (index, block) in blocks.into_iter().flatten().enumerate() {
            let text = |field: &str| block.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
            let field = format!("spec.{list}[{index}]");
            let entry = match (text("cidr"), text("start"), text("stop")) {
                (Some(cidr), ..) if without_ends => inside(cidr),
                (Some(cidr), ..) => cidr.to_owned(),
                (None, Some(start), Some(stop)) => format!("{start}-{stop}"),
                (None, Some(start), None) => start.to_owned(),
                (None, None, _) => {
                    draft.left(&field, "has neither a cidr nor a start; it is left out");
                    continue;
                }
            };
            draft.add(&field, &entry);
        }
    }
    if pool.at(&["spec", "disabled"]) == Some(&true.into()) {
        draft.spec.auto_assign = false;
        draft.left("spec.disabled", "an AddressPool cannot be closed: with autoAssign: false only Services that name it get its addresses");
    }
    if let Some(value) = pool.at(&["spec", "serviceSelector"]) {
        match selectors::read(value) {
            Some(selector) => select(&mut draft, selector),
            None => draft.left("spec.serviceSelector", "is not a label selector"),
        }
    }
    draft
}

/// A CIDR without its first and last address. Cilium keeps CIDRs of one or two addresses whole. Text that is not a CIDR stays as
/// it is and is rejected later.
fn inside(text: &str) -> String {
    let Ok(cidr) = text.trim().parse::<IpNet>() else { return text.to_owned() };
    if cidr.prefix_len() + 1 >= cidr.max_prefix_len() {
        return text.to_owned();
    }
    match (cidr.network(), cidr.broadcast()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let (first, last) = (u32::from(first) + 1, u32::from(last) - 1);
            format!("{}-{}", std::net::Ipv4Addr::from(first), std::net::Ipv4Addr::from(last))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let (first, last) = (u128::from(first) + 1, u128::from(last) - 1);
            format!("{}-{}", std::net::Ipv6Addr::from(first), std::net::Ipv6Addr::from(last))
        }
        _ => text.to_owned(),
    }
}

fn selects_by_name(selector: &LabelSelector) -> bool {
    let mut expressions = selector.match_expressions.iter().flatten();
    selector.match_labels.as_ref().is_some_and(|labels| labels.contains_key(NAME_KEY))
        || expressions.any(|it| it.key == NAME_KEY)
}

/// Reports selectors by name. The advice contains the pool's name, so this runs once all names are final.
pub(super) fn report_names(pools: &mut [PoolDraft<'_>]) {
    for pool in pools.iter_mut().filter(|it| it.source.group() == GROUP) {
        let selector = pool.source.at(&["spec", "serviceSelector"]).and_then(selectors::read);
        if selector.is_some_and(|selector| selects_by_name(&selector)) {
            let message = format!(
                "{NAME_KEY}: an AddressPool selects no Service by name; with autoAssign: false, give the Service the annotation \
                 {ADDRESS_POOL}: {}",
                pool.name
            );
            pool.left("spec.serviceSelector", message);
        }
    }
}

/// Splits a serviceSelector into the parts about the Service's labels and about its namespace.
fn select(draft: &mut PoolDraft<'_>, selector: LabelSelector) {
    if selects_by_name(&selector) {
        draft.spec.auto_assign = false;
    }
    let LabelSelector { match_labels, match_expressions } = selector;
    let labels = match_labels.unwrap_or_default();
    let expressions = match_expressions.unwrap_or_default();
    let (mut of_namespace, mut of_service) = (LabelSelector::default(), LabelSelector::default());
    for (key, value) in labels.into_iter().filter(|(key, _)| key != NAME_KEY) {
        if key == NAMESPACE_KEY {
            of_namespace.match_labels.get_or_insert_default().insert(NAMESPACE_NAME.to_owned(), value);
        } else {
            of_service.match_labels.get_or_insert_default().insert(key, value);
        }
    }
    for mut expression in expressions.into_iter().filter(|it| it.key != NAME_KEY) {
        if expression.key == NAMESPACE_KEY {
            expression.key = NAMESPACE_NAME.to_owned();
            of_namespace.match_expressions.get_or_insert_default().push(expression);
        } else {
            of_service.match_expressions.get_or_insert_default().push(expression);
        }
    }
    draft.spec.namespace_selector = Some(of_namespace).filter(|it| *it != LabelSelector::default());
    draft.spec.service_selector = Some(of_service).filter(|it| *it != LabelSelector::default());
}

fn l2_policy(
    object: &RawObject,
    services: &[&RawObject],
    findings: &mut Findings<'_>,
) -> Option<Advertisement> {
    if object.at(&["spec", "loadBalancerIPs"]) != Some(&true.into()) {
        findings.left.push(left(
            object,
            "spec.loadBalancerIPs",
            "it announces no addresses of load balancers, so nothing is made of it",
        ));
        return None;
    }
    selects_some(object, "spec.serviceSelector", object.at(&["spec", "serviceSelector"]), services, findings);
    let node = object.at(&["spec", "nodeSelector"]).and_then(selectors::read);
    let mut interfaces = BTreeSet::new();
    for (index, pattern) in texts(object.at(&["spec", "interfaces"])).into_iter().enumerate() {
        if let Some(name) = only_interface(&pattern) {
            interfaces.insert(name.to_owned());
        } else {
            let message = format!(
                "{pattern:?} is a regular expression that several interfaces may match, and an AddressPool has names of interfaces: \
                 write them to announce.interfaces"
            );
            findings.left.push(left(object, &format!("spec.interfaces[{index}]"), message));
        }
    }
    Some(Advertisement {
        mode: AdvertisementKind::L2,
        pools: Vec::new(),
        pool_labels: Vec::new(),
        nodes: node.into_iter().collect(),
        interfaces,
    })
}

/// The only name that a pattern matches. Without both anchors it matches longer names, too.
fn only_interface(pattern: &str) -> Option<&str> {
    let name = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let is_plain = name.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '-' | '_'));
    (is_plain && (1..16).contains(&name.len())).then_some(name)
}

/// Reports what sessions of older versions have beyond the lines for FRR: which Services they announce.
fn virtual_routers(object: &RawObject, services: &[&RawObject], findings: &mut Findings<'_>) {
    let routers = object.at(&["spec", "virtualRouters"]).and_then(Value::as_array);
    for (index, router) in routers.into_iter().flatten().enumerate() {
        let field = format!("spec.virtualRouters[{index}]");
        let selector = router.get("serviceSelector").filter(|value| !value.is_null());
        if selector.is_none() {
            let message =
                "there is none, so no Service is announced; Sheave announces the addresses of all Services";
            findings.left.push(left(object, &format!("{field}.serviceSelector"), message));
        }
        selects_some(object, &format!("{field}.serviceSelector"), selector, services, findings);
        if router.get("exportPodCIDR") == Some(&true.into()) {
            findings.left.push(left(object, &format!("{field}.exportPodCIDR"), NOT_SERVICES));
        }
    }
}

fn bgp_advertisement(object: &RawObject, services: &[&RawObject], findings: &mut Findings<'_>) {
    let advertised = object.at(&["spec", "advertisements"]).and_then(Value::as_array);
    for (index, advertised) in advertised.into_iter().flatten().enumerate() {
        let field = format!("spec.advertisements[{index}]");
        if advertised.get("advertisementType").and_then(Value::as_str) != Some("Service") {
            findings.left.push(left(object, &field, NOT_SERVICES));
            continue;
        }
        let service = advertised.get("service");
        let attributes = ["aggregationLengthIPv4", "aggregationLengthIPv6"]
            .iter()
            .any(|name| service.is_some_and(|service| service.get(name).is_some()));
        if attributes || advertised.get("attributes").is_some() {
            findings.left.push(left(object, &field, frr::ATTRIBUTES));
        }
        selects_some(object, &format!("{field}.selector"), advertised.get("selector"), services, findings);
    }
}

/// Reports a selector that does not select all known load balancers.
fn selects_some(
    object: &RawObject,
    field: &str,
    selector: Option<&Value>,
    services: &[&RawObject],
    findings: &mut Findings<'_>,
) {
    let Some(selector) = selector.and_then(selectors::read) else { return };
    let labels_of = |service: &RawObject| -> BTreeMap<String, String> {
        let mut labels = service.texts("labels");
        labels.insert(NAMESPACE_KEY.to_owned(), service.namespace().to_owned());
        labels.insert(NAME_KEY.to_owned(), service.name().to_owned());
        labels
    };
    let mut all = services.iter().map(|service| selectors::matches(&selector, &labels_of(service)));
    if selector != LabelSelector::default() && (services.is_empty() || !all.all(|matches| matches)) {
        let message = "Sheave announces the addresses of all Services; what is not to be announced needs an AddressPool of its own, with an \
                       announce.nodeSelector";
        findings.left.push(left(object, field, message));
    }
}
