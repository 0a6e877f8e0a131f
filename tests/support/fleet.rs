//! Manifests of a Karmada control plane: MultiClusterServices with their template Services, Works with collected
//! EndpointSlices, and Cluster objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::world::Family;

/// MultiClusterService with its template, and its endpoints by cluster.
#[derive(Clone, Debug)]
pub struct Exposure {
    name: String,
    vips: Vec<IpAddr>,
    ports: Vec<Port>,
    endpoints: BTreeMap<String, Vec<(IpAddr, &'static str)>>,
    /// Load balancer address by cluster.
    ingress: BTreeMap<String, IpAddr>,
    affinity_seconds: Option<u32>,
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Clone, Copy, Debug)]
struct Port {
    protocol: &'static str,
    port: u16,
    target: u16,
}

impl Port {
    fn name(self) -> String {
        format!("{}-{}", self.protocol.to_lowercase(), self.port)
    }
}

const READY: &str = "{ready: true, serving: true, terminating: false}";
const UNREADY: &str = "{ready: false, serving: false, terminating: false}";

impl Exposure {
    /// A MultiClusterService `fleet/<name>` of type LoadBalancer with these addresses in its status.
    pub fn new(name: &str, vips: &[IpAddr]) -> Self {
        Self {
            name: name.to_owned(),
            vips: vips.to_vec(),
            ports: Vec::new(),
            endpoints: BTreeMap::new(),
            ingress: BTreeMap::new(),
            affinity_seconds: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Adds a TCP port with the port of its endpoints.
    pub fn tcp(mut self, port: u16, target: u16) -> Self {
        self.ports.push(Port { protocol: "TCP", port, target });
        self
    }

    /// Adds a UDP port with the port of its endpoints.
    pub fn udp(mut self, port: u16, target: u16) -> Self {
        self.ports.push(Port { protocol: "UDP", port, target });
        self
    }

    /// Adds ready endpoints of a cluster.
    pub fn ready(self, cluster: &str, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        self.with(cluster, ips, READY)
    }

    /// Adds endpoints of a cluster that fail their readiness probe.
    pub fn unready(self, cluster: &str, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        self.with(cluster, ips, UNREADY)
    }

    /// Removes all endpoints.
    pub fn without_endpoints(mut self) -> Self {
        self.endpoints.clear();
        self
    }

    /// Sets the address of a cluster's own load balancer for the Service, as reported by the cluster.
    pub fn ingress(mut self, cluster: &str, ip: IpAddr) -> Self {
        self.ingress.insert(cluster.to_owned(), ip);
        self
    }

    /// Sets an annotation of the MultiClusterService.
    pub fn annotation(mut self, name: &'static str, value: &str) -> Self {
        self.annotations.insert(name, value.to_owned());
        self
    }

    /// Sets `sessionAffinity: ClientIP` of the template, with this timeout.
    pub fn affinity(mut self, seconds: u32) -> Self {
        self.affinity_seconds = Some(seconds);
        self
    }

    fn with(
        mut self,
        cluster: &str,
        ips: impl IntoIterator<Item = IpAddr>,
        conditions: &'static str,
    ) -> Self {
        let endpoints = self.endpoints.entry(cluster.to_owned()).or_default();
        endpoints.extend(ips.into_iter().map(|ip| (ip, conditions)));
        self
    }

    /// The documents: the MultiClusterService, its template, and the Works of each cluster.
    pub fn manifest(&self) -> String {
        let slices = self.endpoints.keys().flat_map(|cluster| {
            self.families().into_iter().map(move |family| self.collected(cluster, family))
        });
        let services = self.ingress.iter().map(|(cluster, ip)| self.propagated(cluster, *ip));
        let documents = [self.multi_cluster_service(), self.template("ClusterIP")].into_iter();
        documents.chain(slices).chain(services).collect::<Vec<_>>().join("---\n")
    }

    fn families(&self) -> Vec<Family> {
        let has = |family: &Family| self.vips.iter().any(|&vip| Family::of(vip) == *family);
        Family::BOTH.into_iter().filter(has).collect()
    }

    fn multi_cluster_service(&self) -> String {
        let Self { name, annotations, .. } = self;
        let ingress = self.vips.iter().map(|vip| format!("    - {{ip: \"{vip}\", ipMode: Proxy}}\n"));
        format!(
            "apiVersion: networking.karmada.io/v1alpha1\nkind: MultiClusterService\nmetadata:\n  name: {name}\n  \
             namespace: fleet\n  annotations: {annotations:?}\nspec:\n  types: [LoadBalancer]\n  range: {{}}\n\
             status:\n  loadBalancer:\n    ingress:\n{}",
            ingress.collect::<String>()
        )
    }

    fn template(&self, type_: &str) -> String {
        let families: Vec<String> = self.families().iter().map(Family::to_string).collect();
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: {}\n  namespace: fleet\nspec:\n  type: {type_}\n  \
             ipFamilies: {families:?}\n  ports:\n",
            self.name
        );
        for port in &self.ports {
            let (name, Port { protocol, port, target }) = (port.name(), port);
            writeln!(
                text,
                "    - {{name: {name}, protocol: {protocol}, port: {port}, targetPort: {target}}}"
            )
            .expect("strings take text");
        }
        if let Some(seconds) = self.affinity_seconds {
            writeln!(
                text,
                "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {seconds}}}}}"
            )
            .expect("strings take text");
        }
        text
    }

    /// Work as written by Karmada's collector: the member's slice, with labels that identify its origin.
    fn collected(&self, cluster: &str, family: Family) -> String {
        let Self { name, .. } = self;
        let slice = format!("{name}-{}", family.to_string().to_lowercase());
        let ports = self.ports.iter().map(|port| {
            let (name, Port { protocol, target, .. }) = (port.name(), port);
            format!("        - {{name: {name}, protocol: {protocol}, port: {target}}}\n")
        });
        let endpoints = self.endpoints.get(cluster).into_iter().flatten();
        let endpoints = endpoints.filter(|(ip, _)| Family::of(*ip) == family).map(|(ip, conditions)| {
            format!("        - {{addresses: [\"{ip}\"], nodeName: n1, conditions: {conditions}}}\n")
        });
        let (ports, endpoints) = (ports.collect::<String>(), endpoints.collect::<String>());
        let endpoints = if endpoints.is_empty() { " []\n".to_owned() } else { format!("\n{endpoints}") };
        format!(
            "apiVersion: work.karmada.io/v1alpha1\nkind: Work\nmetadata:\n  name: {slice}-6c7c559955\n  \
             namespace: karmada-es-{cluster}\n  finalizers: [karmada.io/mcs-endpointslice-dispatch-controller]\n  \
             labels:\n    multiclusterservice.karmada.io/name: {name}\n    \
             multiclusterservice.karmada.io/namespace: fleet\n    \
             endpointslice.karmada.io/managed-by: MultiClusterService\nspec:\n  suspendDispatching: true\n  \
             workload:\n    manifests:\n    - apiVersion: discovery.k8s.io/v1\n      kind: EndpointSlice\n      \
             metadata:\n        name: {slice}\n        namespace: fleet\n        labels: \
             {{kubernetes.io/service-name: {name}, karmada.io/managed: \"true\"}}\n      \
             addressType: {family}\n      ports:\n{ports}      endpoints:{endpoints}"
        )
    }

    /// Work with which Karmada applies a Service in a cluster, with the status that the cluster reports.
    fn propagated(&self, cluster: &str, ip: IpAddr) -> String {
        let Self { name, .. } = self;
        let template = self.template("LoadBalancer");
        let service: String = template.lines().map(|line| format!("      {line}\n")).collect();
        let service = service.replacen("      ", "    - ", 1);
        format!(
            "apiVersion: work.karmada.io/v1alpha1\nkind: Work\nmetadata:\n  name: {name}-b97f76f44\n  \
             namespace: karmada-es-{cluster}\n  finalizers: [karmada.io/execution-controller]\n  annotations:\n    \
             resourcebinding.karmada.io/namespace: fleet\n    resourcebinding.karmada.io/name: {name}-service\nspec:\n  \
             workload:\n    manifests:\n{service}status:\n  manifestStatuses:\n  - identifier: {{ordinal: 0, version: v1, \
             kind: Service, resource: \"\", namespace: fleet, name: {name}}}\n    health: Healthy\n    \
             status: {{loadBalancer: {{ingress: [{{ip: \"{ip}\"}}]}}}}\n"
        )
    }
}

/// Cluster object, Ready by default.
#[derive(Clone, Debug)]
pub struct Cluster {
    name: String,
    drained: bool,
    deleted: bool,
    taint: Option<&'static str>,
    not_ready_since: Option<String>,
}

impl Cluster {
    /// A Ready cluster.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), drained: false, deleted: false, taint: None, not_ready_since: None }
    }

    /// Sets `sheave.dev/drain: "true"`.
    pub fn drained(mut self) -> Self {
        self.drained = true;
        self
    }

    /// Marks it as being deleted, held by a finalizer.
    pub fn deleted(mut self) -> Self {
        self.deleted = true;
        self
    }

    /// Adds a taint with this effect.
    pub fn tainted(mut self, effect: &'static str) -> Self {
        self.taint = Some(effect);
        self
    }

    /// Makes it not Ready since that time.
    pub fn not_ready_since(mut self, moment: &str) -> Self {
        self.not_ready_since = Some(moment.to_owned());
        self
    }

    /// The manifest.
    pub fn manifest(&self) -> String {
        let Self { name, drained, deleted, taint, not_ready_since } = self;
        let ready = match not_ready_since {
            Some(moment) => {
                format!("status: \"False\", reason: ClusterNotReachable, lastTransitionTime: \"{moment}\"")
            }
            None => "status: \"True\", reason: ClusterReady, lastTransitionTime: \"2026-01-01T00:00:00Z\""
                .to_owned(),
        };
        let deletion = if *deleted { "  deletionTimestamp: \"2026-01-01T00:00:00Z\"\n" } else { "" };
        let taints = taint.map_or_else(String::new, |effect| {
            format!("  taints: [{{key: example.com/maintenance, effect: {effect}}}]\n")
        });
        format!(
            "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata:\n  name: {name}\n  \
             annotations: {{sheave.dev/drain: \"{drained}\"}}\n  \
             finalizers: [karmada.io/cluster-controller]\n{deletion}spec:\n  syncMode: Push\n{taints}status:\n  \
             conditions:\n  - {{type: Ready, message: \"\", {ready}}}\n"
        )
    }
}

/// Manifest of several MultiClusterServices.
pub fn exposures(exposures: &[Exposure]) -> String {
    exposures.iter().map(Exposure::manifest).collect::<Vec<_>>().join("---\n")
}

/// Manifest of several Cluster objects.
pub fn clusters(clusters: &[Cluster]) -> String {
    clusters.iter().map(Cluster::manifest).collect::<Vec<_>>().join("---\n")
}
