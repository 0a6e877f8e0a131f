//! MetalLB: IPAddressPools, the AddressPools and ConfigMap of its older versions, and their announcements.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::announcement::{self, Advertisement, AdvertisementKind};
use super::draft::{PoolDraft, left, may_be_named, texts};
use super::frr;
use super::selectors::{self, Joined};
use super::{Findings, NAMESPACE_NAME};
use crate::sources::manifests::RawObject;

const GROUP: &str = "metallb.io";

/// Translates the objects of MetalLB.
pub(super) fn translate<'a>(objects: &'a [RawObject], findings: &mut Findings<'a>) {
    let ours = || objects.iter().filter(|it| it.group() == GROUP);
    let advertisements: Vec<Advertisement> = ours().filter_map(|it| advertisement(it, findings)).collect();
    for pool in ours().filter(|it| matches!(it.kind(), "IPAddressPool" | "AddressPool")) {
        let mut draft = read_pool(pool);
        if pool.kind() == "IPAddressPool" {
            announcement::announce(&mut draft, pool.name(), &advertisements);
        } else {
            read_older(&mut draft, findings);
        }
        findings.pools.push(draft);
    }
    for object in ours() {
        match object.kind() {
            "BGPPeer" => frr::metallb_peer(object, findings),
            "BFDProfile" => frr::bfd_profile(object, findings),
            "Community" => findings.left.push(left(
                object,
                "spec.communities",
                "names of communities; write their numbers in a route-map of FRR, as deploy/examples/bgp-frr/frr.conf shows",
            )),
            _ => {}
        }
    }
    for config in objects.iter().filter(|it| it.kind() == "ConfigMap" && it.group().is_empty()) {
        let text = config.at(&["data", "config"]).and_then(Value::as_str).unwrap_or_default();
        if text.contains("address-pools:") {
            let message = "the configuration of MetalLB before 0.13 is not read; write IPAddressPools of it, as MetalLB's release notes \
                           of 0.13 say, and migrate these";
            findings.left.push(left(config, "data.config", message));
        }
    }
    findings.modes.extend(advertisements.iter().map(|it| it.mode));
}

fn read_pool(pool: &RawObject) -> PoolDraft<'_> {
    let mut draft = PoolDraft::new(pool, pool.name());
    for (index, entry) in texts(pool.at(&["spec", "addresses"])).iter().enumerate() {
        draft.add(&format!("spec.addresses[{index}]"), entry);
    }
    let flag = |name: &str| pool.at(&["spec", name]).and_then(Value::as_bool);
    draft.spec.auto_assign = flag("autoAssign").unwrap_or(true);
    draft.spec.avoid_buggy_ips = flag("avoidBuggyIPs").unwrap_or(false);
    if let Some(priority) = pool.at(&["spec", "serviceAllocation", "priority"]) {
        // In both projects, pools with a lower priority come first and those with 0 last.
        match priority.as_u64().and_then(|it| u32::try_from(it).ok()) {
            Some(priority) => draft.spec.priority = priority,
            None => draft.left(
                "spec.serviceAllocation.priority",
                format!("{priority} is not from 0 to {}; the AddressPool comes last", u32::MAX),
            ),
        }
    }
    let mut namespaces = Vec::new();
    let names = texts(pool.at(&["spec", "serviceAllocation", "namespaces"]));
    if !names.is_empty() {
        namespaces.push(selectors::one_of(NAMESPACE_NAME, names));
    }
    draft.spec.namespace_selector = joined(&mut draft, "namespaceSelectors", namespaces);
    draft.spec.service_selector = joined(&mut draft, "serviceSelectors", Vec::new());
    draft
}

/// Joins the alternatives of `spec.serviceAllocation.FIELD` and `all` into one selector.
fn joined(draft: &mut PoolDraft<'_>, field: &str, mut all: Vec<LabelSelector>) -> Option<LabelSelector> {
    let path = format!("spec.serviceAllocation.{field}");
    match selectors::read_list(draft.source.at(&["spec", "serviceAllocation", field])) {
        Some(selectors) => all.extend(selectors),
        None => draft.left(&path, "is not a list of label selectors"),
    }
    match selectors::join(&all) {
        Joined::Everything => None,
        Joined::One(selector) => Some(selector),
        Joined::Several(first) => {
            draft.left(
                &path,
                "an AddressPool has one selector, and none admits exactly what these alternatives do; only the first is taken: \
                 write another AddressPool with the same addresses for each of the others",
            );
            Some(first)
        }
    }
}

/// Reads the fields that only `metallb.io/v1beta1` AddressPools had: their announcements.
fn read_older<'a>(draft: &mut PoolDraft<'a>, findings: &mut Findings<'a>) {
    let bgp = draft.source.at(&["spec", "protocol"]).and_then(Value::as_str) == Some("bgp");
    findings.modes.insert(if bgp { AdvertisementKind::Bgp } else { AdvertisementKind::L2 });
    if draft.source.at(&["spec", "bgpAdvertisements"]).is_some() {
        draft.left("spec.bgpAdvertisements", frr::ATTRIBUTES);
    }
}

fn advertisement(object: &RawObject, findings: &mut Findings<'_>) -> Option<Advertisement> {
    let mode = match object.kind() {
        "L2Advertisement" => AdvertisementKind::L2,
        "BGPAdvertisement" => AdvertisementKind::Bgp,
        _ => return None,
    };
    let mut selectors_of = |field: &str| {
        selectors::read_list(object.at(&["spec", field])).unwrap_or_else(|| {
            findings.left.push(left(object, &format!("spec.{field}"), "is not a list of label selectors"));
            Vec::new()
        })
    };
    let (nodes, pool_labels) = (selectors_of("nodeSelectors"), selectors_of("ipAddressPoolSelectors"));
    let attributes = ["aggregationLength", "aggregationLengthV6", "localPref", "communities"];
    for field in attributes {
        let value = object.at(&["spec", field]);
        let is_default = match field {
            "aggregationLength" => value == Some(&32.into()),
            "aggregationLengthV6" => value == Some(&128.into()),
            _ => value.and_then(Value::as_array).is_some_and(Vec::is_empty),
        };
        if let (Some(value), false) = (value, is_default) {
            let message = format!("{value}: {}", frr::ATTRIBUTES);
            findings.left.push(left(object, &format!("spec.{field}"), message));
        }
    }
    if !texts(object.at(&["spec", "peers"])).is_empty() {
        let message =
            "FRR announces all addresses to each of its peers; restrict that by a route-map of the neighbor";
        findings.left.push(left(object, "spec.peers", message));
    }
    let interfaces =
        texts(object.at(&["spec", "interfaces"])).into_iter().enumerate().filter(|(index, name)| {
            may_be_named(name, |why| {
                findings.left.push(left(object, &format!("spec.interfaces[{index}]"), why));
            })
        });
    let interfaces = interfaces.map(|(_, name)| name).collect();
    Some(Advertisement {
        mode,
        pools: texts(object.at(&["spec", "ipAddressPools"])),
        pool_labels,
        nodes,
        interfaces,
    })
}
