//! kube-vip: the ConfigMap of its cloud provider.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::IpNet;
use serde_json::Value;

use super::draft::{PoolDraft, left};
use super::{Findings, NAMESPACE_NAME, selectors};
use crate::sources::manifests::RawObject;

/// By which the cloud provider finds it.
const CONFIG_MAP: &str = "kubevip";
/// Stands for every namespace that has no pool of its own.
const GLOBAL: &str = "global";

/// Translates what is kube-vip's.
pub(super) fn translate<'a>(objects: &'a [RawObject], findings: &mut Findings<'a>) {
    let is_ours =
        |it: &&RawObject| it.kind() == "ConfigMap" && it.group().is_empty() && it.name() == CONFIG_MAP;
    for config in objects.iter().filter(is_ours) {
        read_config(config, findings);
    }
}

fn read_config<'a>(config: &'a RawObject, findings: &mut Findings<'a>) {
    let data = config.at(&["data"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::trim).filter(|it| !it.is_empty());
    let skips_ends = text("skip-end-ips-in-cidr") == Some("true");
    let namespaces: BTreeSet<&str> = data
        .keys()
        .filter_map(|key| key.strip_prefix("cidr-").or_else(|| key.strip_prefix("range-")))
        .collect();
    for namespace in namespaces {
        let mut draft = PoolDraft::new(config, &format!("kube-vip-{namespace}"));
        if namespace != GLOBAL {
            draft.spec.namespace_selector = Some(selectors::one_of(NAMESPACE_NAME, [namespace.to_owned()]));
        }
        let (cidr_key, range_key) = (format!("cidr-{namespace}"), format!("range-{namespace}"));
        for cidr in text(&cidr_key).into_iter().flat_map(|cidrs| cidrs.split(',')).map(str::trim) {
            if cidr.starts_with("0.0.0.0/") || cidr.starts_with("::/") {
                draft.left(
                    &format!("data.{cidr_key}"),
                    format!("{cidr:?} stands for DHCP: Sheave gives addresses of AddressPools alone"),
                );
            } else {
                draft.add(
                    &format!("data.{cidr_key}"),
                    &if skips_ends { inside(cidr) } else { cidr.to_owned() },
                );
            }
        }
        if let Some(ranges) = text(&range_key) {
            // A CIDR comes first, be it one for all namespaces.
            if text(&cidr_key).or_else(|| text("cidr-global")).is_some() {
                let message = format!(
                    "{ranges:?} is left out: kube-vip does not use it either where a cidr- key is in effect"
                );
                draft.left(&format!("data.{range_key}"), message);
            } else {
                for range in ranges.split(',') {
                    draft.add(&format!("data.{range_key}"), range);
                }
            }
        }
        if let Some(interface) = text(&format!("interface-{namespace}")).or_else(|| text("interface-global"))
        {
            draft.spec.announce.get_or_insert_default().interfaces = vec![interface.to_owned()];
        }
        if text(&format!("allow-share-{namespace}")).or_else(|| text("allow-share-global")) == Some("true") {
            let message = "Services share an address if they ask for the same one: give them the same annotation sheave.dev/addresses";
            draft.left(&format!("data.allow-share-{namespace}"), message);
        }
        findings.pools.push(draft);
    }
    if text("search-order") == Some("desc") {
        findings.left.push(left(config, "data.search-order", "desc: addresses are given from the lowest on"));
    }
}

/// An IPv4 CIDR without its ends, as kube-vip has it; those of one or two addresses stay whole.
fn inside(text: &str) -> String {
    match text.parse::<IpNet>() {
        Ok(IpNet::V4(cidr)) if cidr.prefix_len() < 31 => {
            let (first, last) = (u32::from(cidr.network()) + 1, u32::from(cidr.broadcast()) - 1);
            format!("{}-{}", Ipv4Addr::from(first), Ipv4Addr::from(last))
        }
        _ => text.to_owned(),
    }
}
