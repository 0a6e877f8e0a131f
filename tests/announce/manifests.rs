//! The objects that the gateways of a segment read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use crate::addresses::{PORT, TARGET, gateway_address, on_segment, service_address};
use crate::support::world::Family;

/// Every address of Services.
pub(crate) const POOL: &str = "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: segment}\n\
                    spec: {addresses: [10.5.100.0/24, \"fd05::64:0/112\", 10.5.128.0/17], maxPerService: 64}\n";

/// What they follow from.
pub(crate) struct Manifests<'a> {
    pub(crate) pools: &'static str,
    pub(crate) gateways: u8,
    pub(crate) services: u8,
    pub(crate) many: u8,
    /// Of Nodes, as in a manifest.
    pub(crate) labels: &'a BTreeMap<u8, &'static str>,
    /// The gateway on whose node the only endpoint of each Service is; none where the policy is `Cluster`.
    pub(crate) local: Option<u8>,
}

impl Manifests<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = self.pools.to_owned();
        for number in 1..=self.gateways {
            let [v4, v6] = Family::BOTH.map(|family| gateway_address(family, number));
            let labels = self.labels.get(&number).copied().unwrap_or_default();
            write!(
                text,
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: gw-{number}, labels: {{{labels}}}}}\nstatus: {{addresses: [\
                 {{type: InternalIP, address: {v4}}}, {{type: InternalIP, address: \"{v6}\"}}]}}\n"
            )
            .expect("strings take text");
        }
        text += &self.gateway_slice();
        for number in 1..=self.services {
            text += &service(number, self.local);
        }
        for number in 0..self.many {
            text += &many_service(number);
        }
        text
    }

    /// The EndpointSlice of the gateways.
    pub(crate) fn gateway_slice(&self) -> String {
        let mut text = String::from(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: sheave-gateways, namespace: sheave-system, \
             labels: {kubernetes.io/service-name: sheave-gateways}}\naddressType: IPv4\nports: []\nendpoints:\n",
        );
        for number in 1..=self.gateways {
            let address = gateway_address(Family::V4, number);
            writeln!(
                text,
                "- {{addresses: [{address}], nodeName: gw-{number}, conditions: {{ready: true}}}}"
            )
            .expect("strings take text");
        }
        text
    }
}

fn service(number: u8, local: Option<u8>) -> String {
    let [v4, v6] = Family::BOTH.map(|family| service_address(family, number));
    // An endpoint that sees the client would answer it past the gateway.
    let policy = if local.is_some() { "Local" } else { "Cluster" };
    let node = local.map_or_else(|| "elsewhere".to_owned(), |number| format!("gw-{number}"));
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: web-{number}, namespace: shop, annotations: \
         {{sheave.dev/addresses: \"{v4},{v6}\", sheave.dev/client-source: gateway}}}}\n\
         spec: {{externalTrafficPolicy: {policy}, type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ipFamilyPolicy: RequireDualStack, \
         ipFamilies: [IPv4, IPv6], clusterIP: 10.96.0.{number}, clusterIPs: [10.96.0.{number}, \"fd96::{number}\"], \
         ports: [{{port: {PORT}, targetPort: {TARGET}}}]}}\n"
    );
    for family in Family::BOTH {
        let (address, suffix) = (on_segment(family, 0, 3), family.to_string().to_lowercase());
        write!(
            text,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-{number}-{suffix}, namespace: shop, \
             labels: {{kubernetes.io/service-name: web-{number}}}}}\naddressType: {family}\nports: [{{port: {TARGET}}}]\n\
             endpoints: [{{addresses: [\"{address}\"], nodeName: {node}, conditions: {{ready: true}}}}]\n"
        )
        .expect("strings take text");
    }
    text
}

/// One of a Service that has many.
fn many_address(service: u8, index: u8) -> IpAddr {
    Ipv4Addr::new(10, 5, 128 + service, index).into()
}

fn many_service(number: u8) -> String {
    let addresses: Vec<String> = (1..=64).map(|index| many_address(number, index).to_string()).collect();
    let (addresses, server) = (addresses.join(","), on_segment(Family::V4, 0, 3));
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: many-{number}, namespace: shop, annotations: \
         {{sheave.dev/addresses: \"{addresses}\"}}}}\n\
         spec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ipFamilies: [IPv4], clusterIP: 10.97.0.{number}, \
         clusterIPs: [10.97.0.{number}], ports: [{{port: {PORT}, targetPort: {TARGET}}}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: many-{number}, namespace: shop, \
         labels: {{kubernetes.io/service-name: many-{number}}}}}\naddressType: IPv4\nports: [{{port: {TARGET}}}]\n\
         endpoints: [{{addresses: [\"{server}\"], nodeName: elsewhere, conditions: {{ready: true}}}}]\n"
    )
}
