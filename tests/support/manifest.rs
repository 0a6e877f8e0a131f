//! Kubernetes manifests of a Service with its EndpointSlices, and of Nodes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use super::world::Family;

/// Node of the gateway under test.
pub const GATEWAY_NODE: &str = "gw";

/// LoadBalancer Service with its endpoints.
#[derive(Clone, Debug)]
pub struct App {
    name: String,
    vips: Vec<IpAddr>,
    ports: Vec<Port>,
    endpoints: Vec<Endpoint>,
    affinity_seconds: Option<u32>,
    local: bool,
    health_check_node_port: Option<u16>,
    source_ranges: Vec<String>,
    annotations: Vec<(&'static str, String)>,
    type_: &'static str,
    more_spec: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    protocol: &'static str,
    port: u16,
    target: u16,
    node_port: Option<u16>,
}

#[derive(Clone, Debug)]
struct Endpoint {
    ip: IpAddr,
    node: String,
    conditions: &'static str,
}

impl Port {
    /// Name of the port, by which Service ports and slice ports match.
    fn name(self) -> String {
        format!("{}-{}", self.protocol.to_lowercase(), self.port)
    }
}

impl App {
    /// A Service of our class with these addresses in its status.
    pub fn new(name: &str, vips: &[IpAddr]) -> Self {
        Self {
            name: name.to_owned(),
            vips: vips.to_vec(),
            ports: Vec::new(),
            endpoints: Vec::new(),
            affinity_seconds: None,
            local: false,
            health_check_node_port: None,
            source_ranges: Vec::new(),
            annotations: Vec::new(),
            type_: "LoadBalancer",
            more_spec: Vec::new(),
        }
    }

    /// Adds a TCP port with the port of its endpoints.
    pub fn tcp(mut self, port: u16, target: u16) -> Self {
        self.ports.push(Port { protocol: "TCP", port, target, node_port: None });
        self
    }

    /// Adds a UDP port with the port of its endpoints.
    pub fn udp(mut self, port: u16, target: u16) -> Self {
        self.ports.push(Port { protocol: "UDP", port, target, node_port: None });
        self
    }

    /// Sets the node port of all ports added so far.
    pub fn node_port(mut self, number: u16) -> Self {
        self.ports.iter_mut().for_each(|port| port.node_port = Some(number));
        self
    }

    /// Adds a ready endpoint on another node than the gateway's.
    pub fn ready(self, ip: IpAddr) -> Self {
        self.endpoint(ip, "elsewhere", "{ready: true, serving: true, terminating: false}")
    }

    /// Adds ready endpoints.
    pub fn all_ready(self, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        ips.into_iter().fold(self, Self::ready)
    }

    /// Adds a ready endpoint on the gateway's own node.
    pub fn ready_here(self, ip: IpAddr) -> Self {
        self.endpoint(ip, GATEWAY_NODE, "{ready: true, serving: true, terminating: false}")
    }

    /// Adds an endpoint whose Pod fails its readiness probe.
    pub fn unready(self, ip: IpAddr) -> Self {
        self.endpoint(ip, "elsewhere", "{ready: false, serving: false, terminating: false}")
    }

    /// Adds an endpoint whose Pod was deleted but still serves.
    pub fn terminating(self, ip: IpAddr) -> Self {
        self.endpoint(ip, "elsewhere", "{ready: false, serving: true, terminating: true}")
    }

    /// Adds an endpoint on the gateway's own node whose Pod was deleted but still serves.
    pub fn terminating_here(self, ip: IpAddr) -> Self {
        self.endpoint(ip, GATEWAY_NODE, "{ready: false, serving: true, terminating: true}")
    }

    /// Removes all endpoints.
    pub fn without_endpoints(mut self) -> Self {
        self.endpoints.clear();
        self
    }

    /// Sets `sessionAffinity: ClientIP` with this timeout.
    pub fn affinity(mut self, seconds: u32) -> Self {
        self.affinity_seconds = Some(seconds);
        self
    }

    /// Sets `externalTrafficPolicy: Local`.
    pub fn local_policy(mut self) -> Self {
        self.local = true;
        self
    }

    /// Sets `healthCheckNodePort`, which only matters with [`App::local_policy`].
    pub fn health_check_node_port(mut self, port: u16) -> Self {
        self.health_check_node_port = Some(port);
        self
    }

    /// Adds an annotation of the Service.
    pub fn annotation(mut self, name: &'static str, value: &str) -> Self {
        self.annotations.push((name, value.to_owned()));
        self
    }

    /// Sets another type than LoadBalancer, without class and status.
    pub fn of_type(mut self, type_: &'static str) -> Self {
        self.type_ = type_;
        self
    }

    /// Adds a line to the spec, for example `externalIPs: [192.0.2.1]`.
    pub fn spec(mut self, line: &str) -> Self {
        self.more_spec.push(line.to_owned());
        self
    }

    /// Sets `loadBalancerSourceRanges`.
    pub fn source_ranges(mut self, cidrs: &[String]) -> Self {
        self.source_ranges = cidrs.to_vec();
        self
    }

    fn endpoint(mut self, ip: IpAddr, node: &str, conditions: &'static str) -> Self {
        self.endpoints.push(Endpoint { ip, node: node.to_owned(), conditions });
        self
    }

    /// The documents: one Service, and one EndpointSlice per family of its addresses.
    pub fn manifest(&self) -> String {
        let families = self.families();
        let slices = families.iter().map(|&family| self.slice(family));
        std::iter::once(self.service(&families)).chain(slices).collect::<Vec<_>>().join("---\n")
    }

    fn families(&self) -> Vec<Family> {
        let has = |family: &Family| self.vips.iter().any(|&vip| Family::of(vip) == *family);
        Family::BOTH.into_iter().filter(has).collect()
    }

    fn service(&self, families: &[Family]) -> String {
        let name = &self.name;
        let cluster_ips: Vec<String> =
            families.iter().map(|&family| self.cluster_ip(family).to_string()).collect();
        let family_names: Vec<String> = families.iter().map(Family::to_string).collect();
        let first = cluster_ips.first().expect("an app has an address");
        let annotations: BTreeMap<_, _> = self.annotations.iter().cloned().collect();
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: e2e\n  \
             annotations: {annotations:?}\nspec:\n  type: {}\n  clusterIP: \"{first}\"\n  \
             clusterIPs: {cluster_ips:?}\n  ipFamilies: {family_names:?}\n  ports:\n",
            self.type_,
        );
        for port in &self.ports {
            let (name, Port { protocol, port, target, node_port }) = (port.name(), port);
            let node_port = node_port.map(|port| format!(", nodePort: {port}")).unwrap_or_default();
            let port = format!("name: {name}, protocol: {protocol}, port: {port}, targetPort: {target}");
            push(&mut text, &format!("    - {{{port}{node_port}}}"));
        }
        if self.is_load_balancer() {
            push(&mut text, "  loadBalancerClass: sheave.dev/l4");
        }
        if let Some(seconds) = self.affinity_seconds {
            push(&mut text, "  sessionAffinity: ClientIP");
            push(&mut text, &format!("  sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {seconds}}}}}"));
        }
        if self.local {
            push(&mut text, "  externalTrafficPolicy: Local");
        }
        if let Some(port) = self.health_check_node_port {
            push(&mut text, &format!("  healthCheckNodePort: {port}"));
        }
        if !self.source_ranges.is_empty() {
            push(&mut text, &format!("  loadBalancerSourceRanges: {:?}", self.source_ranges));
        }
        for line in &self.more_spec {
            push(&mut text, &format!("  {line}"));
        }
        if self.is_load_balancer() {
            push(&mut text, "status:\n  loadBalancer:\n    ingress:");
            for vip in &self.vips {
                push(&mut text, &format!("      - {{ip: \"{vip}\", ipMode: Proxy}}"));
            }
        }
        text
    }

    /// `clusterIP`.
    pub fn cluster_ip(&self, family: Family) -> IpAddr {
        let number = self.name.bytes().fold(10_u8, u8::wrapping_add);
        match family {
            Family::V4 => [10, 96, 0, number].into(),
            Family::V6 => [0xfd96, 0, 0, 0, 0, 0, 0, u16::from(number)].into(),
        }
    }

    fn is_load_balancer(&self) -> bool {
        self.type_ == "LoadBalancer"
    }

    fn slice(&self, family: Family) -> String {
        let (name, suffix) = (&self.name, family.to_string().to_lowercase());
        let mut text = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-{suffix}\n  \
             namespace: e2e\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: {family}\nports:\n"
        );
        for port in &self.ports {
            let (name, Port { protocol, target, .. }) = (port.name(), port);
            push(&mut text, &format!("  - {{name: {name}, protocol: {protocol}, port: {target}}}"));
        }
        let of_family = self.endpoints.iter().filter(|endpoint| Family::of(endpoint.ip) == family);
        let endpoints: Vec<String> = of_family
            .map(|Endpoint { ip, node, conditions }| {
                format!("  - {{addresses: [\"{ip}\"], nodeName: {node}, conditions: {conditions}}}\n")
            })
            .collect();
        match endpoints.concat().as_str() {
            "" => text.push_str("endpoints: []\n"),
            endpoints => write!(text, "endpoints:\n{endpoints}").expect("strings take text"),
        }
        text
    }
}

/// The gateway's Node and one for all others, whose Pod networks contain the backends.
pub fn nodes() -> String {
    let node = |name: &str, addresses: [IpAddr; 2], pod_cidrs: &[&str]| {
        let [v4, v6] = addresses;
        format!(
            "apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\nspec:\n  podCIDRs: {pod_cidrs:?}\nstatus:\n  \
             addresses:\n    - {{type: InternalIP, address: \"{v4}\"}}\n    \
             - {{type: InternalIP, address: \"{v6}\"}}\n"
        )
    };
    let pods = Family::BOTH.map(Family::pod_cidr);
    let here = node(GATEWAY_NODE, Family::BOTH.map(Family::gateway), &[]);
    let elsewhere = node("elsewhere", Family::BOTH.map(Family::black_hole), &pods);
    format!("{here}---\n{elsewhere}")
}

/// A Node whose Pods are in this many networks, none of which are adjacent.
pub fn node_with_networks(family: Family, count: u16) -> String {
    let networks = (0..count).map(|n| match family {
        Family::V4 => format!("172.{}.{}.0/25", 16 + n / 256, n % 256),
        Family::V6 => format!("fd99:{n:x}::/64"),
    });
    let networks: Vec<String> = networks.collect();
    format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: many\nspec:\n  podCIDRs: {networks:?}\n")
}

/// Manifest of several apps.
pub fn file(apps: &[App]) -> String {
    apps.iter().map(App::manifest).collect::<Vec<_>>().join("---\n")
}

/// Socket address of a served port.
pub fn at(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

/// Socket address of most cases' frontend.
pub fn vip(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
