//! The migrated AddressPools contain exactly the addresses of the original pools.

mod ingress_nginx;
mod support;
mod to_gateway;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::sources::manifests::RawManifests;

/// First address of the test range.
const BASE: u32 = 0x0a00_0000;

const OPTIONS: MigrationOptions<'static> = MigrationOptions {
    load_balancer_class: "sheave.dev/l4",
    gateway_controller: "sheave.dev/gateway",
    services: ServiceTarget::Services,
};

/// Part of a pool, as a user may write it.
#[derive(Clone, Debug)]
enum Block {
    /// First address and prefix length.
    Cidr(u32, u8),
    Range(u32, u32),
}

fn ip(number: u32) -> String {
    Ipv4Addr::from(BASE + number).to_string()
}

impl Block {
    fn text(&self) -> String {
        match self {
            Self::Cidr(first, bits) => format!("{}/{bits}", ip(*first)),
            Self::Range(first, last) => format!("{}-{}", ip(*first), ip(*last)),
        }
    }

    fn numbers(&self, without_ends: bool) -> BTreeSet<u32> {
        match *self {
            Self::Cidr(first, bits) => {
                let size = 1_u32 << (32 - bits);
                let first = first / size * size;
                let ends = u32::from(without_ends && bits < 31);
                (first + ends..first + size - ends).collect()
            }
            Self::Range(first, last) => (first..=last).collect(),
        }
    }
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        (0_u32..4096, 24_u8..=32).prop_map(|(first, bits)| Block::Cidr(first, bits)),
        (0_u32..4096, 0_u32..300).prop_map(|(first, more)| Block::Range(first, first + more)),
    ]
}

/// Addresses of the AddressPools of a migration.
fn given(manifests: &[Value]) -> BTreeSet<u32> {
    let number = |text: &str| u32::from(text.trim().parse::<Ipv4Addr>().unwrap()) - BASE;
    let mut all = BTreeSet::new();
    for manifest in manifests.iter().filter(|it| it["kind"] == "AddressPool") {
        for entry in manifest["spec"]["addresses"].as_array().unwrap() {
            let entry = entry.as_str().unwrap();
            if let Some((first, bits)) = entry.split_once('/') {
                all.extend(Block::Cidr(number(first), bits.parse().unwrap()).numbers(false));
            } else {
                let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
                all.extend(number(first)..=number(last));
            }
        }
    }
    all
}

fn migrated(text: &str) -> BTreeSet<u32> {
    let read = RawManifests::parse("x.yaml", text);
    assert!(read.problems.is_empty(), "{:?}", read.problems);
    let migration = migrate(&read.objects, &OPTIONS);
    given(&migration.objects.into_iter().map(|it| it.manifest).collect::<Vec<_>>())
}

fn union(blocks: &[Block], without_ends: bool) -> BTreeSet<u32> {
    blocks.iter().flat_map(|block| block.numbers(without_ends)).collect()
}

proptest! {
    #[test]
    fn metallbs_addresses_are_ours(blocks in vec(block(), 1..6)) {
        let list: Vec<String> = blocks.iter().map(Block::text).collect();
        let text = format!(
            "{{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {{name: a}}, spec: {{addresses: [{}]}}}}",
            list.join(", ")
        );
        prop_assert_eq!(migrated(&text), union(&blocks, false));
    }

    #[test]
    fn ciliums_addresses_are_ours(blocks in vec(block(), 1..6), without_ends: bool) {
        let block = |block: &Block| match block {
            Block::Cidr(..) => format!("{{cidr: {}}}", block.text()),
            Block::Range(first, last) if first == last => format!("{{start: {}}}", ip(*first)),
            Block::Range(first, last) => format!("{{start: {}, stop: {}}}", ip(*first), ip(*last)),
        };
        let list: Vec<String> = blocks.iter().map(block).collect();
        let text = format!(
            "{{apiVersion: cilium.io/v2, kind: CiliumLoadBalancerIPPool, metadata: {{name: a}}, spec: {{allowFirstLastIPs: {:?}, \
             blocks: [{}]}}}}",
            if without_ends { "No" } else { "Yes" },
            list.join(", ")
        );
        prop_assert_eq!(migrated(&text), union(&blocks, without_ends));
    }

    #[test]
    fn kube_vips_addresses_are_ours(blocks in vec(block(), 1..6), without_ends: bool) {
        // For each namespace only CIDRs are used if there are any.
        let cidrs: Vec<Block> = blocks.iter().filter(|it| matches!(it, Block::Cidr(..))).cloned().collect();
        let ranges: Vec<Block> = blocks.iter().filter(|it| matches!(it, Block::Range(..))).cloned().collect();
        let list = |blocks: &[Block]| blocks.iter().map(Block::text).collect::<Vec<_>>().join(",");
        let text = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: kubevip}}, data: {{cidr-shop: {:?}, range-shop: {:?}, \
             skip-end-ips-in-cidr: {:?}}}}}",
            list(&cidrs), list(&ranges), without_ends.to_string()
        );
        let used = if cidrs.is_empty() { &ranges } else { &cidrs };
        prop_assert_eq!(migrated(&text), union(used, without_ends));
    }

    #[test]
    fn whatever_is_read_nothing_panics(text in "(apiVersion|kind|spec|data|metadata|[a-z:{}, \n-]){0,60}", field in "[a-z]{1,8}") {
        let kinds = ["metallb.io/v1beta1, kind: IPAddressPool", "cilium.io/v2, kind: CiliumLoadBalancerIPPool", "v1, kind: Service"];
        for kind in kinds {
            let spec = format!("{{type: LoadBalancer, {field}: {text:?}, addresses: [{text:?}, 1], blocks: {text:?}}}");
            let object = format!("{{apiVersion: {kind}, metadata: {{name: {text:?}}}, spec: {spec}}}");
            let read = RawManifests::parse("x.yaml", &object);
            for services in [ServiceTarget::Services, ServiceTarget::GatewayApi] {
                let _migration = migrate(&read.objects, &MigrationOptions { services, ..OPTIONS });
            }
        }
        let _read = RawManifests::parse("x.yaml", &text);
    }
}
