//! Kit for cases about a fleet: a Karmada control plane with two member clusters, next to the cluster that the gateways run
//! in, and the objects that Karmada would create for the members. Independent of the cases.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::scene::{our_conditions, wait_for, wait_until_leading};
use crate::stage::{ENDPOINTS, Home, Role, Sheave, Stage, condition, published};
use crate::support::cluster::{Account, Cluster, Refusal};
use crate::support::patience::{eventually_within, patience};
use crate::support::road::Road;
use crate::support::tcp;

/// Kind under test.
pub(crate) const KIND: &str = "MultiClusterService";
/// Member clusters. No real fleet has these names.
pub(crate) const EAST: &str = "sheave-east";
pub(crate) const WEST: &str = "sheave-west";
/// Indexes of the members' endpoints. Each has an address of its own, routed to this machine.
pub(crate) const IN_EAST: usize = 0;
pub(crate) const IN_WEST: usize = 1;

/// A fleet with a machine that reaches both API servers.
pub(crate) struct Fleet<'a> {
    /// Cluster that the gateways run in.
    pub(crate) cluster: &'a Cluster,
    /// Karmada control plane.
    pub(crate) plane: &'a Cluster,
    pub(crate) stage: &'a Stage<'a>,
    pub(crate) road: &'a Road<'a>,
    /// Road from the machine to the control plane.
    pub(crate) plane_road: &'a Road<'a>,
    _endpoints: Vec<tcp::Server>,
}

/// Runs a case in a fleet whose two members are ready.
pub(crate) fn play(name: &str, case: impl FnOnce(&Fleet<'_>)) {
    let cluster = Cluster::start(name);
    play_in(&cluster, case);
}

/// Like [`play`], in an existing cluster.
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
    /// Another cluster with the control plane of `first`, and roads from its machine to both.
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
    /// Prepares a process that uses both API servers. `config` has additional keys.
    pub(crate) fn home(&self, role: Role, config: &str) -> Home {
        self.home_with(role, "", config)
    }

    /// Like [`Fleet::home`], with additional keys of `karmada` itself.
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

    /// Starts a controller and gateway in one process, and waits until it leads.
    pub(crate) fn run(&self) -> Sheave<'_> {
        self.leading(&self.home(Role::Run, ""))
    }

    /// Starts a controller and waits until it leads. A ready gateway is announced to it.
    pub(crate) fn controller(&self) -> Sheave<'_> {
        self.stage.gateway_is(true, None);
        self.leading(&self.home(Role::Controller, ""))
    }

    /// Like [`Fleet::controller`], with exports enabled.
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

    /// Creates a MultiClusterService with its Service, and an endpoint in each member.
    pub(crate) fn web(&self, name: &str) {
        template(self.plane, name);
        exposed(self.plane, name, "{}", "");
        self.collected(EAST, name, &[IN_EAST]);
        self.collected(WEST, name, &[IN_WEST]);
    }

    /// Like [`Fleet::web`], with this address already in its status, as left by a controller.
    pub(crate) fn published_web(&self, name: &str, address: IpAddr) {
        self.web(name);
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}}});
        self.plane.merge_status(KIND, name, "someone", &status).expect("it takes a status");
    }

    /// Creates the Work with the collected endpoints of a Service in a member.
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

    /// Removes the collected endpoints of the Service in a member.
    pub(crate) fn forgotten(&self, member: &str, name: &str) {
        self.plane.delete("Work", &format!("{}/{}", place(member), work(self.plane, name)));
    }

    /// Names of the endpoints that answer at port 80 of an address. Asks often enough that none is missed.
    pub(crate) fn answers(&self, address: IpAddr) -> Vec<String> {
        const ASKED: usize = 64;
        let mut names: Vec<String> = (0..ASKED).filter_map(|_| self.stage.ask(address, 80).ok()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Waits until exactly these endpoints answer at port 80 of an address.
    pub(crate) fn wait_for_answers(&self, address: IpAddr, wanted: &[usize]) {
        let wanted: Vec<String> = wanted.iter().map(|index| format!("endpoint-{index}")).collect();
        eventually_within(patience(45.0), &format!("{wanted:?} answer at {address}"), || {
            let now = self.answers(address);
            if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
        });
    }
}

/// Namespace of a member's Works.
pub(crate) fn place(member: &str) -> String {
    format!("karmada-es-{member}")
}

fn work(plane: &Cluster, name: &str) -> String {
    format!("{name}-{}", plane.namespace())
}

/// Creates a ready member, with the namespace of its Works.
pub(crate) fn join(plane: &Cluster, member: &str) {
    plane.make_execution_space(&place(member));
    is_ready(plane, member, "True");
}

/// Sets the readiness of a member's API server, which serves ServiceExports.
pub(crate) fn is_ready(plane: &Cluster, member: &str, ready: &str) {
    member_says(plane, member, ready, EXPORTS, "");
}

/// Sets whether ServiceExports are among the listed APIs of a ready member.
pub(crate) fn serves_exports(plane: &Cluster, member: &str, serves: bool) {
    member_says(plane, member, "True", if serves { EXPORTS } else { "" }, "");
}

/// Sets the taint of a ready member that serves ServiceExports, or removes it.
pub(crate) fn is_tainted(plane: &Cluster, member: &str, taint: &str) {
    member_says(plane, member, "True", EXPORTS, taint);
}

/// API of ServiceExports in `apiEnablements`.
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
    // Karmada deletes the namespace of a Cluster's Works with the Cluster, and meanwhile nothing can be created in it.
    plane.keep("Cluster", member);
}

/// Creates the Service that a MultiClusterService of this name exposes.
pub(crate) fn template(plane: &Cluster, name: &str) {
    plane.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{name: http, port: 80, protocol: TCP, \
         targetPort: 8080}}]}}\n"
    ));
}

/// Creates a MultiClusterService of type LoadBalancer with these annotations and additional fields of its spec.
pub(crate) fn exposed(plane: &Cluster, name: &str, annotations: &str, spec: &str) {
    plane.apply(&format!(
        "apiVersion: networking.karmada.io/v1alpha1\nkind: MultiClusterService\nmetadata: {{name: {name}, annotations: \
         {annotations}}}\nspec: {{types: [LoadBalancer]{}{spec}}}\n",
        if spec.is_empty() { "" } else { ", " }
    ));
}

/// Waits until a MultiClusterService publishes addresses, and returns them.
pub(crate) fn wait_for_addresses(plane: &Cluster, name: &str) -> Vec<IpAddr> {
    published(&wait_for(plane, (KIND, name), "has an address", |it| !published(it).is_empty()))
}

/// Waits until a MultiClusterService has nothing of ours, and returns it.
pub(crate) fn wait_until_clean(plane: &Cluster, name: &str) -> Value {
    wait_for(plane, (KIND, name), "carries nothing of ours", |it| {
        !crate::scene::is_held(it) && our_conditions(it).is_empty() && published(it).is_empty()
    })
}

/// Status of each of our conditions that a fleet has, with its observed generation.
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

/// Changes a MultiClusterService with another field manager.
pub(crate) fn change(plane: &Cluster, name: &str, patch: &Value) -> Result<Value, Refusal> {
    plane.merge(KIND, name, "someone", patch)
}
