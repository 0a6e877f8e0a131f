//! Announcement of a pool's addresses: combines several advertisements into the single `announce` of an AddressPool.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::draft::PoolDraft;
use super::selectors::{self, Joined};
use crate::api::address_pool::{MAX_INTERFACES, PoolAnnouncement};

/// Protocol of an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AdvertisementKind {
    L2,
    Bgp,
}

/// A request to announce addresses of pools.
#[derive(Debug)]
pub(super) struct Advertisement {
    pub(super) mode: AdvertisementKind,
    /// Pools by name and by label; all pools if both are empty.
    pub(super) pools: Vec<String>,
    pub(super) pool_labels: Vec<LabelSelector>,
    /// Alternative selectors of Nodes; all Nodes if empty.
    pub(super) nodes: Vec<LabelSelector>,
    /// Network interfaces; all if empty.
    pub(super) interfaces: BTreeSet<String>,
}

impl Advertisement {
    fn applies_to(&self, pool: &str, labels: &BTreeMap<String, String>) -> bool {
        let all = self.pools.is_empty() && self.pool_labels.is_empty();
        all || self.pools.iter().any(|name| name == pool)
            || self.pool_labels.iter().any(|selector| selectors::matches(selector, labels))
    }
}

/// Sets the announcement of the pool, whose name in its source is `name`.
pub(super) fn announce(pool: &mut PoolDraft<'_>, name: &str, advertisements: &[Advertisement]) {
    let labels = pool.source.texts("labels");
    let ours: Vec<_> = advertisements.iter().filter(|it| it.applies_to(name, &labels)).collect();
    if ours.is_empty() && !advertisements.is_empty() {
        return pool.left(
            "metadata.name",
            "no advertisement is for this pool, so its addresses are announced nowhere; Sheave would announce them: set \
             announce.nodeSelector of the AddressPool to a label that no Node has, if that is meant",
        );
    }
    let modes: BTreeSet<AdvertisementKind> = ours.iter().map(|it| it.mode).collect();
    if modes.len() > 1 {
        pool.left(
            "metadata.name",
            "it is announced by BGP and in layer 2; a gateway announces in one of both ways",
        );
    }
    let interfaces: BTreeSet<&BTreeSet<String>> = ours.iter().map(|it| &it.interfaces).collect();
    if interfaces.len() > 1 {
        return pool.left(
            "metadata.name",
            "several advertisements announce it, on different interfaces; an AddressPool has one list of interfaces for all \
             gateways: write announce of the AddressPool yourself",
        );
    }
    let alternatives: Vec<LabelSelector> = ours.iter().flat_map(|it| nodes_of(it)).collect();
    let node_selector = match selectors::join(&alternatives) {
        Joined::Everything => None,
        Joined::One(selector) => Some(selector),
        Joined::Several(_) => {
            pool.left(
                "metadata.name",
                "advertisements announce it from Nodes of several labels, and an AddressPool has one selector: give these Nodes \
                 one label, and write it to announce.nodeSelector",
            );
            None
        }
    };
    let mut interfaces: Vec<String> = interfaces.into_iter().flatten().cloned().collect();
    if interfaces.len() > MAX_INTERFACES {
        let message = format!(
            "it is announced on {} interfaces, and an AddressPool names {MAX_INTERFACES} at most: restrict them by announce.interfaces in \
             the configuration of the gateways",
            interfaces.len()
        );
        pool.left("metadata.name", message);
        interfaces.clear();
    }
    if node_selector.is_some() || !interfaces.is_empty() {
        pool.spec.announce = Some(PoolAnnouncement { node_selector, interfaces });
    }
}

/// The selectors of Nodes. An advertisement without one applies to all Nodes.
fn nodes_of(advertisement: &Advertisement) -> Vec<LabelSelector> {
    if advertisement.nodes.is_empty() { vec![LabelSelector::default()] } else { advertisement.nodes.clone() }
}
