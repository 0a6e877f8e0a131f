//! Scene with a cluster of one machine, a gateway and a controller, a Service with TCP and UDP, and permanent clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::stage::{ENDPOINTS, Home, NODE_ADDRESS, Role, Stage, free_port, service, wait_for_addresses};
use crate::support::cluster::Cluster;
use crate::support::patience::let_pass;
use crate::support::patience::patience;
use crate::support::road::Road;
use crate::support::{tcp, udp};

/// Scene of every case.
pub(crate) struct Scene<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) stage: Stage<'c>,
}

/// Process that is scraped.
pub(crate) struct Scraped {
    pub(crate) home: Home,
    pub(crate) metrics: SocketAddr,
}

/// Name of the Service in every case.
pub(crate) const WEB: &str = "web";
/// UDP port of the Service and its endpoints.
const DNS: u16 = 53;

impl<'c> Scene<'c> {
    /// Creates the Service, its endpoints, and a pool with room for one more address.
    pub(crate) fn new(cluster: &'c Cluster) -> Self {
        let stage = Stage::new(cluster);
        stage.gateway_is(true, None);
        crate::stage::pool(cluster, "lan", "203.0.113.10-203.0.113.11");
        let scene = Self { cluster, stage };
        scene.web("");
        scene.ready(&[0, 1]);
        scene
    }

    /// Creates the Service, with this annotation.
    pub(crate) fn web(&self, annotation: &str) {
        self.cluster.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {WEB}, annotations: {{{annotation}}}}}\nspec: {{type: LoadBalancer, \
             loadBalancerClass: sheave.dev/l4, allocateLoadBalancerNodePorts: false, ports: [{{name: http, port: 80, protocol: \
             TCP, targetPort: 8080}}, {{name: dns, port: {DNS}, protocol: UDP, targetPort: {DNS}}}]}}\n"
        ));
    }

    /// Creates another Service that needs an address.
    pub(crate) fn other(&self, name: &str) {
        service(self.cluster, name, "");
        self.stage.slice(name, &[0]);
    }

    /// Sets the ready endpoints of the Service, by number.
    pub(crate) fn ready(&self, endpoints: &[usize]) {
        let endpoints: Vec<String> = endpoints
            .iter()
            .map(|&it| {
                format!(
                    "{{addresses: [{}], nodeName: {}, conditions: {{ready: true}}}}",
                    ENDPOINTS[it],
                    self.stage.node()
                )
            })
            .collect();
        self.cluster.apply(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {WEB}-1, annotations: \
             {{endpoints.kubernetes.io/last-change-trigger-time: \"{}\"}}, labels: {{kubernetes.io/service-name: \
             {WEB}}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080, protocol: TCP}}, {{name: dns, port: {DNS}, protocol: \
             UDP}}]\nendpoints: [{}]\n",
            jiff::Timestamp::now(),
            endpoints.join(", ")
        ));
    }

    /// Prepares a gateway or controller that is scraped.
    pub(crate) fn scraped(&self, role: Role, road: &Road<'_>, config: &str) -> Scraped {
        let port = self.stage.host.run(|| free_port(Ipv4Addr::LOCALHOST));
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let config = format!("metrics: {{listen: \"{metrics}\", maxEndpoints: 10}}\n{config}");
        Scraped { home: self.stage.home(role, road, &config), metrics }
    }

    /// Waits for the address of the Service.
    pub(crate) fn address(&self) -> IpAddr {
        wait_for_addresses(self.cluster, WEB)[0]
    }

    /// UDP servers, in addition to those of [`Stage::endpoints`].
    pub(crate) fn udp_servers(&self) -> Vec<udp::Server> {
        let start =
            |ip: &Ipv4Addr| udp::Server::who_am_i(&self.stage.host, SocketAddr::from((*ip, DNS)), "udp");
        ENDPOINTS.iter().map(start).collect()
    }

    /// Starts clients that continue until the handle is dropped, regardless of errors.
    pub(crate) fn load(&self, address: IpAddr) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let client = udp::Client::new(&self.stage.host, NODE_ADDRESS.into(), SocketAddr::new(address, DNS));
        let stopped = Arc::clone(&stop);
        let thread = self.stage.host.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                drop(tcp::ask(SocketAddr::new(address, 80)));
                drop(client.send(b"?"));
                let_pass(patience(0.02));
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

/// Running clients, which end when dropped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
