//! Published addresses of load balancers, for objects that come without a status.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus};
use sheave_model::FrontendSource;

use super::gateway_api::GatewayAddress;
use super::objects::{GatewayApiObjects, Objects};
use super::service_key::ServiceKey;

impl Objects {
    /// Sets the known addresses on Services, MultiClusterServices and Gateways whose status has none. Exported manifests have no status,
    /// and the objects would get other addresses from their pools.
    pub fn keep_addresses(&mut self, published: &BTreeMap<ServiceKey, Vec<IpAddr>>) {
        for (key, addresses) in published.iter().filter(|(_, addresses)| !addresses.is_empty()) {
            let status = match key.source {
                FrontendSource::Service => {
                    self.services.get_mut(key).map(|service| &mut Arc::make_mut(service).status)
                }
                FrontendSource::MultiClusterService => {
                    self.fleet.services.get_mut(key).map(|service| &mut Arc::make_mut(service).status)
                }
                FrontendSource::Gateway => {
                    self.gateway_api.keep_addresses(key, addresses);
                    None
                }
            };
            if let Some(status) = status {
                keep(&mut status.get_or_insert_default().load_balancer, addresses);
            }
        }
    }
}

impl GatewayApiObjects {
    fn keep_addresses(&mut self, key: &ServiceKey, addresses: &[IpAddr]) {
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        if gateway.status.as_ref().is_none_or(|status| status.addresses.is_empty()) {
            let status = Arc::make_mut(gateway).status.get_or_insert_default();
            status.addresses = addresses.iter().copied().map(GatewayAddress::of).collect();
        }
    }
}

fn keep(status: &mut Option<LoadBalancerStatus>, addresses: &[IpAddr]) {
    let ingress = status.get_or_insert_default().ingress.get_or_insert_default();
    if ingress.is_empty() {
        let entry = |ip: &IpAddr| LoadBalancerIngress { ip: Some(ip.to_string()), ..Default::default() };
        ingress.extend(addresses.iter().map(entry));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;

    use super::*;

    #[test]
    fn an_address_is_kept_where_there_is_none() {
        let key = |name: &str| ServiceKey::new("shop", name);
        let service = |text: &str| Arc::new(serde_saphyr::from_str::<Service>(text).unwrap());
        let mut objects = Objects::default();
        objects.services.insert(key("new"), service("{}"));
        objects
            .services
            .insert(key("old"), service("{status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}}"));
        let ips = |ips: &[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
        let published = [
            ("new", ips(&["203.0.113.2", "2001:db8::2"])),
            ("old", ips(&["203.0.113.3"])),
            ("gone", ips(&["203.0.113.4"])),
        ];
        objects.keep_addresses(&published.into_iter().map(|(name, ips)| (key(name), ips)).collect());
        let has = |name: &str| {
            let ingress =
                objects.services[&key(name)].status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
            Some(ingress.iter().filter_map(|ingress| ingress.ip.clone()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(has("new").as_deref(), Some("203.0.113.2 2001:db8::2"));
        assert_eq!(has("old").as_deref(), Some("203.0.113.1"));
        assert_eq!(objects.services.len(), 2);
    }
}
