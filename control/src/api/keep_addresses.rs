//! Published addresses of load balancers, for objects that come without a status.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, ServiceSpec};
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

    /// Whether a frontend of this object that was seen in traffic is at a published address: node ports, cluster IPs and external IPs are
    /// none. False if the object does not exist.
    pub fn is_at_published_address(&self, key: &ServiceKey, frontend: SocketAddr) -> bool {
        match key.source {
            FrontendSource::Service => {
                let spec = self.services.get(key).and_then(|service| service.spec.as_ref());
                spec.is_some_and(|spec| is_load_balancer_address(spec, frontend))
            }
            FrontendSource::MultiClusterService => self.fleet.services.contains_key(key),
            FrontendSource::Gateway => self.gateway_api.gateways.contains_key(key),
        }
    }
}

fn is_load_balancer_address(spec: &ServiceSpec, frontend: SocketAddr) -> bool {
    let ip = frontend.ip().to_string();
    let mut others = spec.cluster_ips.iter().chain(&spec.external_ips).flatten().chain(&spec.cluster_ip);
    spec.type_.as_deref() == Some("LoadBalancer")
        && spec.ports.iter().flatten().any(|port| port.port == i32::from(frontend.port()))
        && !others.any(|other| *other == ip)
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

    #[test]
    fn node_ports_and_other_addresses_are_not_published() {
        let mut objects = Objects::default();
        let service = "{spec: {type: LoadBalancer, clusterIPs: [10.96.0.1], externalIPs: [198.51.100.1], \
                       ports: [{port: 80, nodePort: 30080}]}}";
        let key = ServiceKey::new("shop", "web");
        objects.services.insert(key.clone(), Arc::new(serde_saphyr::from_str::<Service>(service).unwrap()));
        let published = |frontend: &str| objects.is_at_published_address(&key, frontend.parse().unwrap());
        assert!(published("203.0.113.1:80"));
        for other in ["203.0.113.1:30080", "10.96.0.1:80", "198.51.100.1:80"] {
            assert!(!published(other), "{other}");
        }
        assert!(
            !objects.is_at_published_address(
                &ServiceKey::gateway("shop", "web"),
                "203.0.113.1:80".parse().unwrap()
            )
        );
    }
}
