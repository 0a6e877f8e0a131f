//! A list that lacks everything takes no traffic away, whatever its kind.

use std::time::{Duration, Instant};

use sheave_model::FrontendKind;

use super::*;
use crate::api::kinds::{self, Kind, KindVisitor, visit_kinds};
use crate::api::store::{ControlPlane, Delta};
use crate::projection::Role;
use crate::sources::mass_deletion_guard::MassDeletionGuard;

const HOLD: Duration = Duration::from_secs(60);
/// Number of objects of most kinds.
const PLENTY: usize = 12;

/// Objects of all kinds, as after the first lists, with a gateway's projector.
struct World {
    guard: MassDeletionGuard,
    store: Store,
    projector: Projector,
}

impl World {
    fn new() -> Self {
        let mut store = Store::default();
        put_few(&mut store);
        (0..PLENTY).for_each(|number| put_services(&mut store, number));
        (0..PLENTY).for_each(|number| put_gateways(&mut store, number));
        (0..PLENTY).for_each(|number| put_multi_cluster(&mut store, number));
        let options = Options {
            node: "gw-1".to_owned(),
            role: Role::Gateway,
            frontends: [FrontendKind::LoadBalancer, FrontendKind::NodePort].into(),
            ..Options::default()
        };
        Self { guard: MassDeletionGuard::new(HOLD), store, projector: Projector::new(options) }
    }

    /// The frontends of the current objects, as text.
    fn frontends(&mut self) -> Vec<String> {
        let dirty = self.store.take_dirty();
        let projection = self.projector.project(self.store.objects(), &dirty);
        projection.table.frontends().iter().map(|it| format!("{it:?}")).collect()
    }

    /// Takes an empty list.
    fn empty<K: Kind>(&mut self) {
        let list = K::change(Delta::All(Vec::new()));
        let admitted = self.guard.admit(list, self.store.objects(), Instant::now());
        self.store.apply(admitted);
    }
}

fn put<K: Kind>(store: &mut Store, yaml: &str) {
    let object: K::Object = serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    store.put::<K>(object);
}

/// The objects that many others depend on.
fn put_few(store: &mut Store) {
    put::<kinds::Nodes>(
        store,
        "metadata: {name: gw-1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}",
    );
    put::<kinds::Namespaces>(store, "metadata: {name: shop, labels: {team: a}}");
    put::<kinds::Namespaces>(store, "metadata: {name: infra}");
    put::<kinds::Pools>(store, "metadata: {name: main}\nspec: {addresses: [203.0.113.0/24]}");
    put::<kinds::GatewayClasses>(store, "metadata: {name: c}\nspec: {controllerName: sheave.dev/gateway}");
}

/// A Service with its endpoint in both namespaces, and a ServiceImport.
fn put_services(store: &mut Store, number: usize) {
    for (namespace, class) in
        [("shop", ", type: LoadBalancer, loadBalancerClass: sheave.dev/l4"), ("infra", "")]
    {
        put::<kinds::Services>(
            store,
            &format!(
                "metadata: {{namespace: {namespace}, name: web-{number}}}\n\
                 spec: {{ports: [{{port: 80, nodePort: {}}}]{class}}}\n\
                 status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.{number}}}]}}}}",
                30000 + number
            ),
        );
        put::<kinds::Slices>(
            store,
            &format!(
                "metadata: {{namespace: {namespace}, name: web-{number}-1, labels: {{kubernetes.io/service-name: web-{number}}}}}\n\
                 addressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{{addresses: [10.1.0.{number}]}}]"
            ),
        );
    }
    put::<kinds::ServiceImports>(
        store,
        &format!(
            "metadata: {{namespace: shop, name: far-{number}}}\nspec: {{type: ClusterSetIP, ports: [{{port: 80, protocol: UDP}}]}}"
        ),
    );
    put::<kinds::ImportSlices>(
        store,
        &format!(
            "metadata: {{namespace: shop, name: far-{number}-1, labels: {{multicluster.kubernetes.io/service-name: far-{number}, \
             multicluster.kubernetes.io/source-cluster: east}}}}\n\
             addressType: IPv4\nports: [{{port: 8080, protocol: UDP}}]\nendpoints: [{{addresses: [10.2.0.{number}]}}]"
        ),
    );
}

/// A Gateway with a ListenerSet of another namespace, and a route of each kind that the labels of its namespace admit.
fn put_gateways(store: &mut Store, number: usize) {
    let from = "namespaces: {from: Selector, selector: {matchLabels: {team: a}}}";
    let allowed = format!("allowedRoutes: {{{from}}}");
    put::<kinds::Gateways>(
        store,
        &format!(
            "metadata: {{namespace: infra, name: g-{number}}}\n\
             spec:\n  gatewayClassName: c\n  allowedListeners: {{{from}}}\n  listeners:\n  \
             - {{name: tcp, port: 9000, protocol: TCP, {allowed}}}\n  \
             - {{name: udp, port: 9000, protocol: UDP, {allowed}}}\n  \
             - {{name: tls, port: 9443, protocol: TLS, tls: {{mode: Passthrough}}, {allowed}}}\n\
             status: {{addresses: [{{value: 203.0.113.{}}}]}}",
            100 + number
        ),
    );
    put::<kinds::ListenerSets>(
        store,
        &format!(
            "metadata: {{namespace: shop, name: s-{number}}}\n\
             spec: {{parentRef: {{namespace: infra, name: g-{number}}}, listeners: [{{name: tcp, port: 9100, protocol: TCP}}]}}"
        ),
    );
    let route = |name: &str, parents: &str, backend: &str| {
        format!(
            "metadata: {{namespace: shop, name: {name}-{number}}}\n\
             spec: {{parentRefs: [{parents}], hostnames: [a.example], rules: [{{backendRefs: [{{{backend}-{number}, port: 80}}]}}]}}"
        )
    };
    let gateway = format!("{{namespace: infra, name: g-{number}}}");
    let set = format!("{{group: gateway.networking.k8s.io, kind: ListenerSet, name: s-{number}}}");
    put::<kinds::TcpRoutes>(store, &route("own", &set, "name: web"));
    put::<kinds::TcpRoutes>(store, &route("granted", &gateway, "namespace: infra, name: web"));
    put::<kinds::UdpRoutes>(
        store,
        &route("far", &gateway, "group: multicluster.x-k8s.io, kind: ServiceImport, name: far"),
    );
    put::<kinds::TlsRoutes>(store, &route("tls", &gateway, "name: web"));
    put::<kinds::ReferenceGrants>(
        store,
        &format!(
            "metadata: {{namespace: infra, name: grant-{number}}}\n\
             spec: {{from: [{{group: gateway.networking.k8s.io, kind: TCPRoute, namespace: shop}}], \
             to: [{{group: '', kind: Service, name: web-{number}}}]}}"
        ),
    );
}

/// MultiClusterServices with collected endpoints, and with the addresses of the cluster's own load balancer.
fn put_multi_cluster(store: &mut Store, number: usize) {
    if number == 0 {
        put::<kinds::Clusters>(store, "metadata: {name: m1}");
    }
    for (name, endpoints, offset) in [("pods", "pods", 40), ("ingress", "ingress", 60)] {
        put::<kinds::MultiClusterServices>(
            store,
            &format!(
                "metadata: {{namespace: shop, name: {name}-{number}, annotations: {{sheave.dev/cluster-endpoints: {endpoints}, \
                 sheave.dev/load-balancer-class: sheave.dev/l4}}}}\n\
                 spec: {{types: [LoadBalancer]}}\n\
                 status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.{}}}]}}}}",
                offset + number
            ),
        );
        put::<kinds::Templates>(
            store,
            &format!(
                "metadata: {{namespace: shop, name: {name}-{number}}}\nspec: {{type: LoadBalancer, ports: [{{port: 80}}]}}"
            ),
        );
        put::<kinds::Bindings>(
            store,
            &format!(
                "metadata: {{namespace: shop, name: {name}-{number}-service}}\n\
                 spec: {{resource: {{apiVersion: v1, kind: Service, namespace: shop, name: {name}-{number}}}, clusters: [{{name: m1}}]}}\n\
                 status: {{aggregatedStatus: [{{clusterName: m1, status: {{loadBalancer: {{ingress: [{{ip: 198.51.100.{number}}}]}}}}}}]}}"
            ),
        );
    }
    let slice = format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: pods-{number}-1, namespace: shop, \
         labels: {{kubernetes.io/service-name: pods-{number}}}}}, addressType: IPv4, ports: [{{port: 8080}}], \
         endpoints: [{{addresses: [10.3.0.{number}]}}]}}"
    );
    put::<kinds::CollectedWorks>(
        store,
        &format!(
            "metadata: {{name: pods-{number}, namespace: karmada-es-m1, labels: {{\
             multiclusterservice.karmada.io/name: pods-{number}, multiclusterservice.karmada.io/namespace: shop, \
             endpointslice.karmada.io/managed-by: MultiClusterService}}}}\n\
             spec: {{workload: {{manifests: [{slice}]}}}}"
        ),
    );
}

/// Empties each kind of an API server, alone or after all before it.
struct Emptying {
    plane: ControlPlane,
    together: Option<World>,
    /// Kinds whose empty list took something away.
    lost: Vec<&'static str>,
}

impl KindVisitor for Emptying {
    fn visit<K: Kind>(&mut self) {
        if K::ROW.plane != self.plane {
            return;
        }
        let mut alone = World::new();
        let world = self.together.as_mut().unwrap_or(&mut alone);
        let before = world.frontends();
        world.empty::<K>();
        if world.frontends() != before {
            self.lost.push(K::ROW.line);
        }
    }
}

#[test]
fn an_empty_list_of_no_kind_takes_traffic_away() {
    let frontends = World::new().frontends();
    assert_eq!(frontends.len(), PLENTY * (1 + 1 + 4 + 2));
    // Those of a Gateway forward by their parts.
    assert!(frontends.iter().all(|it| it.contains("Forward") && !it.contains("Refused")));
    for plane in [ControlPlane::Local, ControlPlane::Karmada] {
        for together in [false, true] {
            let together = together.then(World::new);
            let mut emptying = Emptying { plane, together, lost: Vec::new() };
            visit_kinds(&mut emptying);
            assert_eq!(emptying.lost, [""; 0], "{plane:?}");
        }
    }
}
