//! What cases about a fleet begin with: a Karmada control plane with two member clusters beside the cluster that the gateways
//! run in, and the objects that Karmada would make there of what runs in the members. It knows no case.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::scene::{our_conditions, wait_for, wait_until_leading};
use crate::stage::{ENDPOINTS, Home, Role, Sheave, Stage, condition, published};
use crate::support::cluster::{Account, Cluster, Refusal};
use crate::support::patience::{eventually_within, patience};
use crate::support::road::Road;
use crate::support::tcp;

/// What the cases are about.
pub(crate) const KIND: &str = "MultiClusterService";
/// The member clusters. No real fleet has these names.
pub(crate) const EAST: &str = "sheave-east";
pub(crate) const WEST: &str = "sheave-west";
/// Endpoints of the members, by number: they have addresses of their own, which all are routed here.
pub(crate) const IN_EAST: usize = 0;
pub(crate) const IN_WEST: usize = 1;

/// A machine between a cluster and a control plane.
pub(crate) struct Fleet<'a> {
    /// The cluster that the gateways run in.
    pub(crate) cluster: &'a Cluster,
    /// The Karmada control plane.
    pub(crate) plane: &'a Cluster,
    pub(crate) stage: &'a Stage<'a>,
    pub(crate) road: &'a Road<'a>,
    /// From the machine to the control plane.
    pub(crate) plane_road: &'a Road<'a>,
    _endpoints: Vec<tcp::Server>,
}

/// Makes a fleet whose two members are ready.
pub(crate) fn play(name: &str, case: impl FnOnce(&Fleet<'_>)) {
    let cluster = Cluster::start(name);
    play_in(&cluster, case);
}

/// As [`play`], in a cluster that is there.
pub(crate) fn play_in(cluster: &Cluster, case: impl FnOnce(&Fleet<'_>)) {
    let plane = cluster.control_plane();
    for member in [EAST, WEST] {
        join(&plane, member);
    }
    let stage = Stage::new(cluster);
    let (road, plane_road) = (stage.road(), plane.road(&stage.host));
    let servers = stage.endpoints();
    case(&Fleet {
        cluster,
        plane: &plane,
        stage: &stage,
        road: &road,
        plane_road: &plane_road,
        _endpoints: servers,
    });
}

impl<'a> Fleet<'a> {
    /// Another cluster with the control plane of `first`, and the ways from its machine to both.
    pub(crate) fn beside(
        first: &Fleet<'a>,
        cluster: &'a Cluster,
        stage: &'a Stage<'a>,
        (road, plane_road): (&'a Road<'a>, &'a Road<'a>),
    ) -> Self {
        Fleet { cluster, plane: first.plane, stage, road, plane_road, _endpoints: Vec::new() }
    }
}

impl Fleet<'_> {
    /// Prepares a process that speaks to both API servers. `config` holds further keys.
    pub(crate) fn home(&self, role: Role, config: &str) -> Home {
        self.home_with(role, "", config)
    }

    /// As [`Fleet::home`], with further keys of `karmada` itself.
    pub(crate) fn home_with(&self, role: Role, karmada: &str, config: &str) -> Home {
        let account = match role {
            Role::Gateway => Account::Gateway,
            Role::Controller => Account::Controller,
            Role::Run => Account::Administrator,
        };
        let kubeconfig = self.plane.kubeconfig(account, self.plane_road);
        let comma = if karmada.is_empty() { "" } else { ", " };
        let karmada = format!("karmada: {{kubeconfig: {}{comma}{karmada}}}\n{config}", kubeconfig.display());
        self.stage.home(role, self.road, &karmada)
    }

    /// Starts a process that is controller and gateway, and waits until it leads.
    pub(crate) fn run(&self) -> Sheave<'_> {
        self.leading(&self.home(Role::Run, ""))
    }

    /// Starts a controller, and waits until it leads. It is told that a gateway is ready.
    pub(crate) fn controller(&self) -> Sheave<'_> {
        self.stage.gateway_is(true, None);
        self.leading(&self.home(Role::Controller, ""))
    }

    /// As [`Fleet::controller`]; it exports Services.
    pub(crate) fn exporter(&self) -> Sheave<'_> {
        self.stage.gateway_is(true, None);
        self.leading(&self.home_with(Role::Controller, "exportServices: true", ""))
    }

    fn leading(&self, home: &Home) -> Sheave<'_> {
        let mut process = self.stage.start(home);
        wait_until_leading(&process);
        process.wait_until_ready();
        process
    }

    /// A MultiClusterService with its Service, and an endpoint in either member.
    pub(crate) fn web(&self, name: &str) {
        template(self.plane, name);
        exposed(self.plane, name, "{}", "");
        self.collected(EAST, name, &[IN_EAST]);
        self.collected(WEST, name, &[IN_WEST]);
    }

    /// As [`Fleet::web`], with this address in its status already, as a controller leaves it.
    pub(crate) fn published_web(&self, name: &str, address: IpAddr) {
        self.web(name);
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}}});
        self.plane.merge_status(KIND, name, "someone", &status).expect("it takes a status");
    }

    /// The Work by which Karmada holds what it has collected of a Service's endpoints in a member.
    pub(crate) fn collected(&self, member: &str, name: &str, endpoints: &[usize]) {
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|&index| {
                json!({"addresses": [ENDPOINTS[index]], "nodeName": "n1",
                       "conditions": {"ready": true, "serving": true, "terminating": false}})
            })
            .collect();
        let namespace = self.plane.namespace();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{name}-1"), "namespace": namespace, "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
        });
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": work(self.plane, name), "namespace": place(member), "labels": {
                "multiclusterservice.karmada.io/name": name,
                "multiclusterservice.karmada.io/namespace": namespace,
                "endpointslice.karmada.io/managed-by": "MultiClusterService"}},
            "spec": {"suspendDispatching": true, "workload": {"manifests": [slice]}},
        });
        self.plane.apply(&work.to_string());
    }

    /// Karmada collects nothing of the Service in a member any more.
    pub(crate) fn forgotten(&self, member: &str, name: &str) {
        self.plane.delete("Work", &format!("{}/{}", place(member), work(self.plane, name)));
    }

    /// The names of those that answer behind port 80 of an address, when asked so often that none is missed.
    pub(crate) fn answers(&self, address: IpAddr) -> Vec<String> {
        const ASKED: usize = 64;
        let mut names: Vec<String> = (0..ASKED).filter_map(|_| self.stage.ask(address, 80).ok()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Waits until exactly these endpoints answer behind port 80 of an address.
    pub(crate) fn wait_for_answers(&self, address: IpAddr, wanted: &[usize]) {
        let wanted: Vec<String> = wanted.iter().map(|index| format!("endpoint-{index}")).collect();
        eventually_within(patience(45.0), &format!("{wanted:?} answer at {address}"), || {
            let now = self.answers(address);
            if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
        });
    }
}

/// The namespace of a member's Works.
pub(crate) fn place(member: &str) -> String {
    format!("karmada-es-{member}")
}

fn work(plane: &Cluster, name: &str) -> String {
    format!("{name}-{}", plane.namespace())
}

/// Makes a member that is ready, with the namespace of its Works.
pub(crate) fn join(plane: &Cluster, member: &str) {
    plane.make_execution_space(&place(member));
    is_ready(plane, member, "True");
}

/// What Karmada says of a member's API server. It serves ServiceExports.
pub(crate) fn is_ready(plane: &Cluster, member: &str, ready: &str) {
    member_says(plane, member, ready, EXPORTS, "");
}

/// What Karmada lists of the APIs of a ready member while ServiceExports are not, or are, among them.
pub(crate) fn serves_exports(plane: &Cluster, member: &str, serves: bool) {
    member_says(plane, member, "True", if serves { EXPORTS } else { "" }, "");
}

/// A ready member that serves ServiceExports gets a taint, or none.
pub(crate) fn is_tainted(plane: &Cluster, member: &str, taint: &str) {
    member_says(plane, member, "True", EXPORTS, taint);
}

/// The API of ServiceExports, as `apiEnablements` have it.
const EXPORTS: &str = "{groupVersion: multicluster.x-k8s.io/v1alpha1, resources: [{name: serviceexports, kind: ServiceExport}]}";

fn member_says(plane: &Cluster, member: &str, ready: &str, apis: &str, taints: &str) {
    let condition = |name: &str, status: &str| {
        format!(
            "{{type: {name}, status: \"{status}\", reason: Said, message: \"\", lastTransitionTime: \
             \"2026-01-01T00:00:00Z\"}}"
        )
    };
    plane.apply(&format!(
        "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {{name: {member}}}\nspec: {{syncMode: Pull, \
         taints: [{taints}]}}\nstatus: {{conditions: [{}, {}], apiEnablements: [{apis}]}}\n",
        condition("Ready", ready),
        condition("CompleteAPIEnablements", "True"),
    ));
    // With a Cluster, Karmada ends the namespace of its Works, which nothing can be made in meanwhile.
    plane.keep("Cluster", member);
}

/// The Service that a MultiClusterService of this name exposes.
pub(crate) fn template(plane: &Cluster, name: &str) {
    plane.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{name: http, port: 80, protocol: TCP, \
         targetPort: 8080}}]}}\n"
    ));
}

/// A MultiClusterService of type LoadBalancer with these annotations, and these further fields of its spec.
pub(crate) fn exposed(plane: &Cluster, name: &str, annotations: &str, spec: &str) {
    plane.apply(&format!(
        "apiVersion: networking.karmada.io/v1alpha1\nkind: MultiClusterService\nmetadata: {{name: {name}, annotations: \
         {annotations}}}\nspec: {{types: [LoadBalancer]{}{spec}}}\n",
        if spec.is_empty() { "" } else { ", " }
    ));
}

/// Waits until a MultiClusterService publishes addresses, and answers them.
pub(crate) fn wait_for_addresses(plane: &Cluster, name: &str) -> Vec<IpAddr> {
    published(&wait_for(plane, (KIND, name), "has an address", |it| !published(it).is_empty()))
}

/// Waits until a MultiClusterService carries nothing of ours, and answers it.
pub(crate) fn wait_until_clean(plane: &Cluster, name: &str) -> Value {
    wait_for(plane, (KIND, name), "carries nothing of ours", |it| {
        !crate::scene::is_held(it) && our_conditions(it).is_empty() && published(it).is_empty()
    })
}

/// The status of each of our conditions that a fleet has, and the generation that it was said of.
pub(crate) fn told(object: &Value) -> Vec<(String, u64)> {
    ["Accepted", "ResolvedRefs", "Allocated", "Programmed", "Degraded"]
        .iter()
        .map(|name| {
            let kind = format!("sheave.dev/{name}");
            let status = condition(object, &kind).map_or_else(|| "none".to_owned(), |it| it.0);
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let generation = conditions
                .filter(|it| it["type"] == kind.as_str())
                .find_map(|it| it["observedGeneration"].as_u64());
            (format!("{name}={status}"), generation.unwrap_or_default())
        })
        .collect()
}

/// Changes a MultiClusterService as someone else.
pub(crate) fn change(plane: &Cluster, name: &str, patch: &Value) -> Result<Value, Refusal> {
    plane.merge(KIND, name, "someone", patch)
}
