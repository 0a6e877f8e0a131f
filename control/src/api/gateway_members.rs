//! Gateways of an installation, from the EndpointSlices of the headless Service that selects their Pods.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::store::{Objects, ServiceKey, is_ready};
use crate::net;

/// A node with a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGateway {
    /// Name of the Node.
    pub node: Arc<str>,
    /// Addresses of its Pods, sorted and without duplicates. During an upgrade a gateway has two Pods for a while; both have the
    /// node's addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether one of the Pods is ready.
    pub ready: bool,
}

/// The nodes with a gateway, sorted by name. Endpoints without a node, or without a valid address, are left out.
pub fn gateway_members(objects: &Objects, gateways: &ServiceKey) -> Vec<ListedGateway> {
    let mut members: BTreeMap<Arc<str>, ListedGateway> = BTreeMap::new();
    let slices = objects.slices.get(gateways).into_iter().flat_map(|all| all.values());
    for endpoint in slices.flat_map(|slice| slice.endpoints.iter().flatten()) {
        let addresses: Vec<IpAddr> =
            endpoint.addresses.iter().filter_map(|it| net::parse_ip(it).ok()).collect();
        let Some(node) = endpoint.node_name.as_deref().filter(|_| !addresses.is_empty()) else { continue };
        let new = || ListedGateway { node: node.into(), addresses: Vec::new(), ready: false };
        let member = members.entry(node.into()).or_insert_with(new);
        member.ready |= is_ready(endpoint);
        member.addresses.extend(addresses);
    }
    let mut members: Vec<ListedGateway> = members.into_values().collect();
    for member in &mut members {
        member.addresses.sort_unstable();
        member.addresses.dedup();
    }
    members
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};

    use super::*;
    use crate::api::kinds::Slices;
    use crate::api::store::Store;

    fn endpoint(node: Option<&str>, addresses: &[&str], ready: bool) -> Endpoint {
        Endpoint {
            node_name: node.map(str::to_owned),
            addresses: addresses.iter().map(|&it| it.to_owned()).collect(),
            conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
            ..Endpoint::default()
        }
    }

    fn slice(name: &str, endpoints: Vec<Endpoint>) -> EndpointSlice {
        let mut slice = EndpointSlice { endpoints: Some(endpoints), ..EndpointSlice::default() };
        slice.metadata.namespace = Some("sheave-system".to_owned());
        slice.metadata.name = Some(name.to_owned());
        let labels = [("kubernetes.io/service-name".to_owned(), "sheave-gateways".to_owned())];
        slice.metadata.labels = Some(labels.into());
        slice
    }

    #[test]
    fn a_node_is_one_member_whatever_its_pods_and_families() {
        let mut store = Store::default();
        let v4 = vec![
            endpoint(Some("gw-2"), &["192.0.2.2"], true),
            endpoint(Some("gw-1"), &["192.0.2.1"], false),
            endpoint(Some("gw-1"), &["192.0.2.1"], true),
            endpoint(None, &["192.0.2.9"], true),
            endpoint(Some("gw-3"), &["not an address"], true),
        ];
        store.put::<Slices>(slice("sheave-gateways-v4", v4));
        let v6 = vec![endpoint(Some("gw-1"), &["2001:db8::1"], false)];
        store.put::<Slices>(slice("sheave-gateways-v6", v6));
        let key = ServiceKey::new("sheave-system", "sheave-gateways");
        let members = gateway_members(store.objects(), &key);
        let member = |node: &str, addresses: &[&str], ready| ListedGateway {
            node: node.into(),
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            ready,
        };
        let expected =
            [member("gw-1", &["192.0.2.1", "2001:db8::1"], true), member("gw-2", &["192.0.2.2"], true)];
        assert_eq!(members, expected);
        assert!(gateway_members(store.objects(), &ServiceKey::new("other", "sheave-gateways")).is_empty());
    }
}
