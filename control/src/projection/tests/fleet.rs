//! Objects of a Karmada control plane, as manifests.

use sheave_model::{Frontend, Route};

use super::super::{Options, Projection, Projector};
use super::support::{NODE, add, options};
use crate::api::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use crate::api::kinds;
use crate::api::store::{Dirty, Objects, ServiceKey};

/// The template of `shop/web` with ports http 80 and dns 53 (UDP).
pub(super) const TEMPLATE: &str = "
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: ClusterIP, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]}
";

pub(super) fn key() -> ServiceKey {
    ServiceKey::multi_cluster("shop", "web")
}

/// The MultiClusterService `shop/web` with an address.
pub(super) fn mcs(spec: &str, metadata: &str) -> String {
    format!(
        "kind: MultiClusterService\nmetadata: {{name: web, namespace: shop, {metadata}}}\n\
         spec: {{types: [LoadBalancer], {spec}}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.10}}]}}}}\n"
    )
}

/// Like [`mcs`], with these annotations.
pub(super) fn annotated(annotations: &str) -> String {
    mcs("", &format!("annotations: {{{annotations}}}"))
}

/// A collected Work with endpoints like `10.1.0.7`, or `!10.1.0.7` if they are not ready.
pub(super) fn work(cluster: &str, slice: &str, endpoints: &[&str]) -> String {
    work_of(cluster, slice, "http, port: 8080", endpoints)
}

pub(super) fn work_of(cluster: &str, slice: &str, port: &str, endpoints: &[&str]) -> String {
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|text| {
            let ip = text.trim_start_matches('!');
            format!(
                "{{addresses: [{ip}], nodeName: gw-1, zone: a, hints: {{forZones: [{{name: z}}]}}, \
                 conditions: {{ready: {}}}}}",
                ip == *text
            )
        })
        .collect();
    format!(
        "kind: Work\nmetadata: {{name: {slice}-x, namespace: karmada-es-{cluster}, labels: \
         {{multiclusterservice.karmada.io/name: web, multiclusterservice.karmada.io/namespace: shop, \
         endpointslice.karmada.io/managed-by: MultiClusterService}}}}\n\
         spec: {{workload: {{manifests: [{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: \
         {{name: {slice}, namespace: shop, labels: {{kubernetes.io/service-name: web}}}}, addressType: IPv4, \
         ports: [{{name: {port}}}], endpoints: [{}]}}]}}}}\n",
        endpoints.join(", ")
    )
}

pub(super) fn cluster(name: &str, spec: &str, ready: bool) -> String {
    let status = if ready { "True" } else { "False" };
    format!(
        "kind: Cluster\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\nstatus: {{conditions: [{{type: Ready, status: \
         '{status}', reason: X, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}}]}}\n"
    )
}

/// The ResourceBinding of `shop/web`.
pub(super) fn binding(clusters: &str, more: &str, status: &str) -> String {
    format!(
        "kind: ResourceBinding\nmetadata: {{name: web-service, namespace: shop}}\n\
         spec: {{resource: {{apiVersion: v1, kind: Service, namespace: shop, name: web}}, clusters: [{clusters}], {more}}}\n\
         status: {{{status}}}\n"
    )
}

pub(super) fn put(objects: &mut Objects, manifests: &[&str]) {
    for manifest in manifests {
        match manifest.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap() {
            "MultiClusterService" => {
                objects.put::<kinds::MultiClusterServices>(
                    serde_saphyr::from_str::<MultiClusterService>(manifest).unwrap(),
                );
            }
            "Service" => {
                let service: k8s_openapi::api::core::v1::Service = serde_saphyr::from_str(manifest).unwrap();
                objects.put::<kinds::Templates>(service);
            }
            "EndpointSlice" => {
                let slice: k8s_openapi::api::discovery::v1::EndpointSlice =
                    serde_saphyr::from_str(manifest).unwrap();
                objects.put::<kinds::Imported>(slice);
            }
            "Work" => objects.put::<kinds::CollectedWorks>(serde_saphyr::from_str::<Work>(manifest).unwrap()),
            "Cluster" => objects.put::<kinds::Clusters>(serde_saphyr::from_str::<Cluster>(manifest).unwrap()),
            "ResourceBinding" => {
                objects.put::<kinds::Bindings>(serde_saphyr::from_str::<ResourceBinding>(manifest).unwrap());
            }
            other => panic!("no such kind: {other}"),
        }
    }
}

pub(super) fn fleet(manifests: &[&str]) -> Objects {
    let mut objects = Objects::default();
    add(&mut objects, &[NODE]);
    put(&mut objects, manifests);
    objects
}

pub(super) fn fleet_options() -> Options {
    Options { cluster: "m1".to_owned(), ..options() }
}

/// Projects the manifests and [`TEMPLATE`] with a new projector.
pub(super) fn project(manifests: &[&str]) -> (Projector, Projection) {
    let mut all = vec![TEMPLATE];
    all.extend(manifests);
    let mut projector = Projector::new(fleet_options());
    let projection = projector.project(&fleet(&all), &Dirty::Everything);
    (projector, projection)
}

/// One line for each frontend with backends: `port: cluster*weight@priority candidates of capacity | ...`.
pub(super) fn spread(projection: &Projection) -> Vec<String> {
    let frontends = projection.table.frontends().iter().filter(|it| !it.backends.is_empty());
    frontends.map(|it| format!("{}: {}", it.addr.port, backends(it))).collect()
}

fn backends(frontend: &Frontend) -> String {
    let Route::Forward(_) = &frontend.internal else { return format!("{:?}", frontend.internal) };
    let backends = frontend.backends.iter().enumerate().map(|(index, backend)| {
        let of = frontend.internal.candidates().iter().filter(|it| it.backend as usize == index);
        let addrs: Vec<String> = of.map(|it| frontend.endpoint(*it).addr.to_string()).collect();
        format!(
            "{}*{}@{} {} of {}",
            backend.cluster,
            backend.weight.0,
            backend.priority,
            addrs.join(","),
            backend.capacity
        )
    });
    backends.collect::<Vec<_>>().join(" | ")
}
