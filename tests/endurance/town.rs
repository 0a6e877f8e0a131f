//! Machine of a cluster with endpoints, Services with addresses, and clients: everything on one host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use crate::load::Targets;
use crate::objects;
use crate::scale::Amount;
use crate::servers::{Servers, Site};
use crate::stage::{ENDPOINTS, Sheave, Stage};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};

/// Address of Service `web`.
pub(crate) const WEB: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 110);
/// Address of Service `sticky`, which has session affinity.
const STICKY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 111);
const PORT: u16 = 8080;
/// Number of addresses that clients without affinity share.
const SOURCES: u8 = 8;

/// State of an endpoint in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its probe succeeds.
    Ready,
    /// Its probe fails.
    Unready,
    /// Its Pod was deleted, but still serves.
    Terminating,
}

/// Endpoints of both Services.
pub(crate) struct Town<'c> {
    cluster: &'c Cluster,
}

impl<'c> Town<'c> {
    /// Creates the Services with all endpoints ready, and `others` Services without traffic.
    pub(crate) fn new(cluster: &'c Cluster, stage: &Stage<'_>, others: u32) -> Self {
        let server = cluster.test_server().expect("the test API server");
        stage.host.ip(&[format!("route add local {} dev lo", objects::ADDRESSES)]);
        server.load((0..others).map(|number| objects::service(number, true)));
        server.load((0..others).flat_map(|number| objects::slices(number, 2, 0)));
        let town = Self { cluster };
        server.load([town.service("web", WEB, "None"), town.service("sticky", STICKY, "ClientIP")]);
        town.set_endpoints([State::Ready; ENDPOINTS.len()]);
        town
    }

    /// Publishes the states of the endpoints.
    pub(crate) fn set_endpoints(&self, states: [State; ENDPOINTS.len()]) {
        let server = self.cluster.test_server().expect("the test API server");
        server.load(["web", "sticky"].map(|name| self.slice(name, states)));
    }

    fn service(&self, name: &str, address: Ipv4Addr, affinity: &str) -> Value {
        let [.., last] = address.octets();
        let cluster_ip = Ipv4Addr::new(10, 97, 0, last);
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": self.cluster.namespace()},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "allocateLoadBalancerNodePorts": false,
                "clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": affinity, "ports": [
                    {"name": "http", "port": 80, "protocol": "TCP", "targetPort": PORT},
                    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": PORT}]},
            "status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}},
        })
    }

    fn slice(&self, name: &str, states: [State; ENDPOINTS.len()]) -> Value {
        let endpoint = |(ip, state): (&Ipv4Addr, State)| {
            json!({"addresses": [ip], "nodeName": "elsewhere", "conditions": {
                "ready": state == State::Ready, "serving": state != State::Unready,
                "terminating": state == State::Terminating}})
        };
        let endpoints: Vec<Value> = ENDPOINTS.iter().zip(states).map(endpoint).collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{name}-1"), "namespace": self.cluster.namespace(),
                "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": [
                {"name": "http", "port": PORT, "protocol": "TCP"}, {"name": "dns", "port": PORT, "protocol": "UDP"}],
        })
    }
}

/// Starts the endpoint with this number.
pub(crate) fn serve(stage: &Stage<'_>, number: usize) -> Servers {
    let addr = SocketAddr::new(IpAddr::V4(ENDPOINTS[number]), PORT);
    Servers::start(&[Site { host: &stage.host, addr, name: format!("endpoint-{number}") }])
}

/// Destinations of a load, after assigning the clients' addresses.
pub(crate) fn targets(stage: &Stage<'_>, amount: Amount) -> Targets {
    let address = |third: u8, number: u16| {
        IpAddr::V4(Ipv4Addr::new(198, 51, third, u8::try_from(number).expect("few clients")))
    };
    let sources: Vec<IpAddr> = (1..=u16::from(SOURCES)).map(|number| address(101, number)).collect();
    let sticky_sources: Vec<IpAddr> =
        (1..=amount.affinity_clients).map(|number| address(102, number)).collect();
    let add = sources.iter().chain(&sticky_sources).map(|ip| format!("addr replace {ip}/32 dev lo"));
    stage.host.ip(&add.collect::<Vec<_>>());
    Targets {
        web: SocketAddr::new(IpAddr::V4(WEB), 80),
        dns: Some(SocketAddr::new(IpAddr::V4(WEB), 53)),
        sticky: Some(SocketAddr::new(IpAddr::V4(STICKY), 80)),
        sources,
        sticky_sources,
    }
}

/// Waits until the gateway's status satisfies a condition.
pub(crate) fn wait_for_status(gateway: &Sheave<'_>, what: &str, is_so: impl Fn(&Value) -> bool) {
    eventually_within(patience(60.0), what, || {
        let status = gateway.page("/api/status");
        if is_so(&status) { Ok(()) } else { Err(status.to_string()) }
    });
}
