//! Addresses of Services: which ones each requests or keeps, which Services share one, and whether a pool contains them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::super::ServiceTarget;
use super::super::draft::{PoolDraft, left, reference, texts};
use super::super::gateway_api::GatewayDraft;
use super::super::is_address_pool;
use super::{ClassChange, ServiceDraft};
use crate::api::address_pool::{PER_SERVICE, Sharing};
use crate::net;
use crate::projection::{ADDRESSES, AddressRange};
use crate::sources::manifests::RawObject;

/// Field with the current addresses of a Service.
const PUBLISHED: &str = "status.loadBalancer.ingress";

/// Addresses of the AddressPools, both migrated and existing ones.
#[derive(Debug)]
pub(super) struct PoolAddresses {
    ranges: Vec<AddressRange>,
    /// Addresses of the Nodes that were read, if a pool has those of gateway nodes.
    of_nodes: Option<BTreeSet<IpAddr>>,
}

impl PoolAddresses {
    pub(super) fn read(objects: &[RawObject], pools: &[PoolDraft<'_>]) -> Self {
        let there = || objects.iter().filter(|it| is_address_pool(it));
        let entries = there().flat_map(|it| texts(it.at(&["spec", "addresses"])));
        let made = pools.iter().flat_map(|it| it.spec.addresses.iter().cloned());
        let ranges = entries.chain(made).filter_map(|entry| AddressRange::read(&entry, false).ok()).collect();
        let from_nodes = pools.iter().any(|it| it.spec.from_gateway_nodes)
            || there().any(|it| it.at(&["spec", "fromGatewayNodes"]) == Some(&true.into()));
        let nodes = || objects.iter().filter(|it| it.kind() == "Node" && it.group().is_empty());
        Self { ranges, of_nodes: from_nodes.then(|| nodes().flat_map(addresses_of).collect()) }
    }

    /// Whether a pool may contain it. Without Nodes in the input, any address may be a node's.
    fn has(&self, ip: IpAddr) -> bool {
        let of_nodes = self.of_nodes.as_ref();
        self.ranges.iter().any(|range| range.spans(ip))
            || of_nodes.is_some_and(|nodes| nodes.is_empty() || nodes.contains(&ip))
    }

    /// Whether a pool has it as the address of a Node alone.
    fn is_of_node(&self, ip: IpAddr) -> bool {
        let of_nodes = self.of_nodes.as_ref();
        of_nodes.is_some_and(|nodes| nodes.contains(&ip)) && !self.ranges.iter().any(|range| range.spans(ip))
    }
}

fn addresses_of(node: &RawObject) -> Vec<IpAddr> {
    let all = node.at(&["status", "addresses"]).and_then(Value::as_array);
    let all = all.into_iter().flatten();
    all.filter_map(|entry| net::parse_ip(entry.get("address")?.as_str()?).ok()).collect()
}

pub(super) fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl ServiceDraft<'_> {
    /// The addresses that it requests by value. A Gateway requests those that its Service has: it has no status yet that would keep
    /// them.
    pub(super) fn requested(&self) -> Vec<IpAddr> {
        if self.target == ServiceTarget::GatewayApi && !self.published.is_empty() {
            return self.published.clone();
        }
        let field = self.source.at(&["spec", "loadBalancerIP"]).and_then(Value::as_str);
        let field = field.and_then(|text| net::parse_ip(text).ok());
        let own = self.source.texts("annotations");
        let annotated = own.get(ADDRESSES).or_else(|| self.added.get(ADDRESSES));
        let annotated = annotated.into_iter().flat_map(|list| list.split(','));
        let mut all: Vec<IpAddr> = annotated.filter_map(|text| net::parse_ip(text).ok()).collect();
        if all.is_empty() {
            all.extend(field);
        }
        all
    }

    /// The field that requests the addresses or has them.
    fn field(&self) -> String {
        if self.target == ServiceTarget::GatewayApi && !self.published.is_empty() {
            return PUBLISHED.to_owned();
        }
        if self.source.texts("annotations").contains_key(ADDRESSES) {
            return format!("metadata.annotations[{ADDRESSES}]");
        }
        match &self.wishes.addresses_field {
            Some(field) if !self.wishes.addresses.is_empty() => field.clone(),
            _ if self.added.contains_key(ADDRESSES) || self.requested().is_empty() => PUBLISHED.to_owned(),
            _ => "spec.loadBalancerIP".to_owned(),
        }
    }

    /// Requests the addresses that the Service has, even if no known pool contains them: another pool may be created, or come
    /// from elsewhere.
    pub(super) fn keep_published(&mut self) {
        if self.published.is_empty() {
            return;
        }
        self.add(ADDRESSES, joined(&self.published));
        self.comments.push("sheave.dev/addresses keeps the addresses that it has.".to_owned());
    }

    /// Reports addresses that the Service requests, or keeps through its status, and that no pool contains. A Service of our
    /// class without changes needs no report.
    pub(super) fn report_missing(&mut self, given: &PoolAddresses) {
        let changes = self.target == ServiceTarget::GatewayApi || self.added.contains_key(ADDRESSES);
        if self.class == ClassChange::Ours && !changes {
            return;
        }
        let mut addresses = self.requested();
        if addresses.is_empty() {
            addresses.clone_from(&self.published);
        }
        if self.target == ServiceTarget::GatewayApi && addresses.iter().any(|ip| given.is_of_node(*ip)) {
            let message = format!(
                "{}: addresses of Nodes; the Gateway asks for these alone: remove its spec.addresses for those of all gateway nodes",
                joined(&addresses)
            );
            self.left.push(left(self.source, &self.field(), message));
        }
        addresses.retain(|ip| !given.has(*ip));
        if !addresses.is_empty() {
            let message = format!(
                "{}: no pool that was read has it; there must be an AddressPool with it",
                joined(&addresses)
            );
            self.left.push(left(self.source, &self.field(), message));
        }
    }
}

/// Prepares Services with the same sharing key to share an address: a Service that requests none requests its published ones, and
/// one without either is reported.
pub(super) fn share(drafts: &mut [ServiceDraft<'_>]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        if let Some((_, key)) = &draft.wishes.sharing_key {
            groups.entry(key.clone()).or_default().push(index);
        }
    }
    for group in groups.values().filter(|group| group.len() > 1) {
        for index in group {
            let Some(draft) = drafts.get_mut(*index) else { continue };
            if draft.requested().is_empty() {
                draft.keep_published();
            }
            let Some((field, key)) =
                draft.wishes.sharing_key.clone().filter(|_| draft.requested().is_empty())
            else {
                continue;
            };
            let (objects, how) = match draft.target {
                ServiceTarget::Services => ("Services", format!("annotation {ADDRESSES}")),
                ServiceTarget::GatewayApi => ("Gateways", "spec.addresses".to_owned()),
            };
            let message = format!(
                "{key:?}: {objects} share an address only if they ask for it; give all {objects} with this key the same {how}"
            );
            draft.left.push(left(draft.source, &field, message));
        }
    }
}

/// Sets `sharing: Cluster` on a pool if Services of several namespaces request one of its addresses with the same sharing key,
/// because otherwise only the first namespace gets it. Reports Services without a common key.
pub(super) fn share_among_namespaces(drafts: &mut [ServiceDraft<'_>], pools: &mut [PoolDraft<'_>]) {
    let mut asking: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        for ip in draft.requested() {
            asking.entry(ip).or_default().push(index);
        }
    }
    for (ip, asking) in asking {
        let those = || asking.iter().filter_map(|index| drafts.get(*index));
        let namespaces: BTreeSet<String> = those().map(|it| it.source.namespace().to_owned()).collect();
        if namespaces.len() < 2 {
            continue;
        }
        let keys: BTreeSet<Option<&str>> =
            those().map(|it| it.wishes.sharing_key.as_ref().map(|(_, key)| key.as_str())).collect();
        let have_one_key = keys.len() == 1 && !keys.contains(&None);
        let names = namespaces.into_iter().collect::<Vec<_>>().join(", ");
        for pool in pools.iter_mut().filter(|pool| pool.spans(ip) && pool.spec.sharing != Sharing::Cluster) {
            if have_one_key {
                pool.spec.sharing = Sharing::Cluster;
                pool.comments.push(format!("sharing: Cluster, since Services of {names} share {ip}."));
                continue;
            }
            let message = format!(
                "{ip}: Services of {names} ask for it and have no sharing key in common, so those of the namespace that has it first get \
                 it alone; set sharing: Cluster of AddressPool {} if they are to share it",
                pool.name
            );
            for index in &asking {
                if let Some(draft) = drafts.get_mut(*index) {
                    draft.left.push(left(draft.source, &draft.field(), message.clone()));
                }
            }
        }
    }
}

/// Raises the limit of each pool to the largest number of its addresses that one Service requests, and reports requests beyond
/// the largest limit.
pub(super) fn raise_limits(drafts: &mut [ServiceDraft<'_>], pools: &mut [PoolDraft<'_>]) {
    for draft in drafts {
        let requested = draft.requested();
        for pool in pools.iter_mut() {
            let asked = requested.iter().filter(|ip| pool.spans(**ip)).count();
            let asked = u32::try_from(asked).unwrap_or(u32::MAX);
            if asked <= pool.spec.max_per_service {
                continue;
            }
            if PER_SERVICE.contains(&asked) {
                pool.spec.max_per_service = asked;
                let service = reference(draft.source);
                pool.comments.push(format!(
                    "maxPerService: {asked}, since {service} asks for so many of its addresses."
                ));
            } else {
                let message = format!(
                    "asks for {asked} addresses of AddressPool {}, which gives one Service {} at most: divide the Service",
                    pool.name,
                    PER_SERVICE.end()
                );
                draft.left.push(left(draft.source, &draft.field(), message));
            }
        }
    }
}

/// Reports addresses of the Gateway that no pool has or that another namespace shares, and raises the limits of its pools.
pub(super) fn check_gateway(
    draft: &mut GatewayDraft,
    service: &RawObject,
    pools: &mut [PoolDraft<'_>],
    given: &PoolAddresses,
) {
    let gateway = format!("Gateway {}/{}", draft.namespace, draft.name);
    let missing: Vec<IpAddr> = draft.addresses.iter().copied().filter(|ip| !given.has(*ip)).collect();
    if !missing.is_empty() {
        let message = format!(
            "{gateway} asks for {}: no pool that was read has it; there must be an AddressPool with it",
            joined(&missing)
        );
        draft.left.push(left(service, PUBLISHED, message));
    }
    if draft.namespace != service.namespace() && !draft.addresses.is_empty() {
        let message = format!(
            "{gateway} asks for {} from another namespace: set sharing: Cluster of its AddressPool, or move the address",
            joined(&draft.addresses)
        );
        draft.left.push(left(service, PUBLISHED, message));
    }
    for pool in pools {
        let asked = draft.addresses.iter().filter(|ip| pool.spans(**ip)).count();
        let asked = u32::try_from(asked).unwrap_or(u32::MAX);
        if asked > pool.spec.max_per_service {
            pool.spec.max_per_service = asked;
            pool.comments
                .push(format!("maxPerService: {asked}, since {gateway} asks for so many of its addresses."));
        }
    }
}
