//! kube-vip: the ConfigMap of its cloud provider.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

use super::draft::{PoolDraft, left, may_be_named};
use super::{Findings, NAMESPACE_NAME, selectors};
use crate::sources::manifests::RawObject;

/// Name of the ConfigMap that the cloud provider reads.
const CONFIG_MAP: &str = "kubevip";
/// Stands for all namespaces without a pool of their own.
const GLOBAL: &str = "global";

/// Translates the objects of kube-vip.
pub(super) fn translate<'a>(objects: &'a [RawObject], findings: &mut Findings<'a>) {
    let is_ours =
        |it: &&RawObject| it.kind() == "ConfigMap" && it.group().is_empty() && it.name() == CONFIG_MAP;
    for config in objects.iter().filter(is_ours) {
        read_config(config, findings);
    }
}

fn read_config<'a>(object: &'a RawObject, findings: &mut Findings<'a>) {
    let config = Config { object };
    for namespace in config.namespaces() {
        findings.pools.push(config.pool(namespace));
    }
    if config.text("search-order") == Some("desc") {
        findings.left.push(left(object, "data.search-order", "desc: addresses are given from the lowest on"));
    }
}

/// The ConfigMap: its keys end with the name of a namespace, or with `global`.
struct Config<'a> {
    object: &'a RawObject,
}

impl<'a> Config<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        let text = self.object.at(&["data"])?.get(key)?.as_str()?.trim();
        Some(text).filter(|text| !text.is_empty())
    }

    /// The key for the namespace, or else the global one, with its value.
    fn key_of(&self, field: &str, namespace: &str) -> Option<(String, &'a str)> {
        let mut keys = [namespace, GLOBAL].into_iter().map(|of| format!("{field}-{of}"));
        keys.find_map(|key| self.text(&key).map(|value| (key, value)))
    }

    /// Namespaces with addresses, including `global`.
    fn namespaces(&self) -> BTreeSet<&'a str> {
        let data = self.object.at(&["data"]).and_then(Value::as_object);
        let keys = data.into_iter().flat_map(Map::keys);
        keys.filter_map(|key| key.strip_prefix("cidr-").or_else(|| key.strip_prefix("range-"))).collect()
    }

    /// Whether kube-vip never gives this namespace a global address: any CIDR takes precedence over ranges.
    fn is_apart(&self, namespace: &str) -> bool {
        let own = |field: &str| self.text(&format!("{field}-{namespace}")).is_some();
        own("cidr") || (own("range") && self.text("cidr-global").is_none())
    }

    fn selector(&self, namespace: &str) -> Option<LabelSelector> {
        if namespace != GLOBAL {
            return Some(selectors::one_of(NAMESPACE_NAME, [namespace.to_owned()]));
        }
        let others = self.namespaces().into_iter().filter(|it| *it != GLOBAL && self.is_apart(it));
        let others: Vec<String> = others.map(str::to_owned).collect();
        (!others.is_empty()).then(|| selectors::none_of(NAMESPACE_NAME, others))
    }

    fn pool(&self, namespace: &str) -> PoolDraft<'a> {
        let mut draft = PoolDraft::new(self.object, &format!("kube-vip-{namespace}"));
        draft.spec.namespace_selector = self.selector(namespace);
        self.add_addresses(namespace, &mut draft);
        if let Some((key, interface)) = self.key_of("interface", namespace)
            && may_be_named(interface, |why| draft.left(&format!("data.{key}"), why))
        {
            draft.spec.announce.get_or_insert_default().interfaces = vec![interface.to_owned()];
        }
        if self.key_of("allow-share", namespace).is_some_and(|(_, value)| value == "true") {
            let message = "Services share an address if they ask for the same one: give them the same annotation sheave.dev/addresses";
            draft.left(&format!("data.allow-share-{namespace}"), message);
        }
        draft
    }

    fn add_addresses(&self, namespace: &str, draft: &mut PoolDraft<'_>) {
        let skips_ends = self.text("skip-end-ips-in-cidr") == Some("true");
        let (cidr_key, range_key) = (format!("cidr-{namespace}"), format!("range-{namespace}"));
        for cidr in self.text(&cidr_key).into_iter().flat_map(|cidrs| cidrs.split(',')).map(str::trim) {
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
        let Some(ranges) = self.text(&range_key) else { return };
        // A CIDR takes precedence, even a global one.
        if self.key_of("cidr", namespace).is_some() {
            let message = format!(
                "{ranges:?} is left out: kube-vip does not use it either where a cidr- key is in effect"
            );
            return draft.left(&format!("data.{range_key}"), message);
        }
        for range in ranges.split(',') {
            draft.add(&format!("data.{range_key}"), range);
        }
    }
}

/// An IPv4 CIDR without its first and last address, as kube-vip uses it. CIDRs of one or two addresses stay whole.
fn inside(text: &str) -> String {
    match text.parse::<IpNet>() {
        Ok(IpNet::V4(cidr)) if cidr.prefix_len() < 31 => {
            let (first, last) = (u32::from(cidr.network()) + 1, u32::from(cidr.broadcast()) - 1);
            format!("{}-{}", Ipv4Addr::from(first), Ipv4Addr::from(last))
        }
        _ => text.to_owned(),
    }
}
