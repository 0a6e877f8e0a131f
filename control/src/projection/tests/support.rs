//! Helpers that read manifests into the store and format tables with one line for each frontend.

use std::fmt::Write as _;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Frontend, Route};

use super::super::{Options, Projection, Projector};
use crate::api::address_pool::AddressPool;
use crate::api::problem::Problem;
use crate::api::store::{Dirty, Objects, ServiceKey};

/// The gateway's node in all tests.
pub(super) const NODE: &str = "
kind: Node
metadata: {name: gw-1, labels: {topology.kubernetes.io/zone: a}}
spec: {podCIDRs: [10.1.0.0/16, 'fd01::/48']}
status: {addresses: [{type: Hostname, address: gw-1}, {type: InternalIP, address: 192.0.2.1}, \
{type: InternalIP, address: '2001:db8::1'}]}
";

/// A slice of Service `shop/web` with the ready endpoint 10.1.0.7:8080.
pub(super) const WEB_SLICE: &str = "
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.7], nodeName: n1}]
";

pub(super) fn options() -> Options {
    Options { node: "gw-1".to_owned(), ..Options::default() }
}

/// A Service `shop/web` of our class with port http 80 and additional fields.
pub(super) fn web(spec: &str, rest: &str) -> String {
    service("shop", "web", &format!("ports: [{{name: http, port: 80}}], {spec}"), rest)
}

/// A Service of our class. `rest` is `metadata: ` with additional metadata, or text that follows the spec.
pub(super) fn service(namespace: &str, name: &str, spec: &str, rest: &str) -> String {
    let (metadata, tail) = match rest.strip_prefix("metadata: ") {
        Some(more) => (format!(", {more}"), ""),
        None => (String::new(), rest),
    };
    format!(
        "kind: Service\nmetadata: {{namespace: {namespace}, name: {name}{metadata}}}\n\
         spec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, {spec}}}\n{tail}\n"
    )
}

/// Adds the manifests to the objects and replaces those with the same name.
pub(super) fn add(objects: &mut Objects, manifests: &[&str]) {
    for manifest in manifests {
        let kind = manifest.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap();
        match kind {
            "Service" => {
                let service: Service = serde_saphyr::from_str(manifest).unwrap();
                let key = key(service.metadata.namespace.as_deref(), service.metadata.name.as_deref());
                objects.services.insert(key, Arc::new(service));
            }
            "EndpointSlice" => {
                let slice: EndpointSlice = serde_saphyr::from_str(manifest).unwrap();
                let labels = slice.metadata.labels.as_ref().unwrap();
                let owner = labels.get("kubernetes.io/service-name").map(String::as_str);
                let key = key(slice.metadata.namespace.as_deref(), owner);
                let name: Arc<str> = slice.metadata.name.as_deref().unwrap().into();
                objects.slices.entry(key).or_default().insert(name, Arc::new(slice));
            }
            "Node" => {
                let node: Node = serde_saphyr::from_str(manifest).unwrap();
                objects.nodes.insert(node.metadata.name.as_deref().unwrap().into(), Arc::new(node));
            }
            "AddressPool" => {
                let pool: AddressPool =
                    serde_saphyr::from_str(&manifest.replacen("kind: AddressPool\n", "", 1)).unwrap();
                objects.pools.insert(pool.metadata.name.as_deref().unwrap().into(), Arc::new(pool));
            }
            other => panic!("no such kind: {other}"),
        }
    }
}

fn key(namespace: Option<&str>, name: Option<&str>) -> ServiceKey {
    ServiceKey::new(namespace.unwrap(), name.unwrap())
}

pub(super) fn objects(manifests: &[&str]) -> Objects {
    let mut objects = Objects::default();
    add(&mut objects, manifests);
    objects
}

/// Projects [`NODE`] and the manifests with a new projector.
pub(super) fn project(manifests: &[&str]) -> Projection {
    let mut objects = objects(&[NODE]);
    add(&mut objects, manifests);
    Projector::new(options()).project(&objects, &Dirty::Everything)
}

/// One line for each frontend: `address service external | internal`.
pub(super) fn lines(projection: &Projection) -> Vec<String> {
    projection.table.frontends().iter().map(|frontend| line(frontend)).collect()
}

fn line(frontend: &Frontend) -> String {
    let mut line = format!("{} {} ", frontend.addr, frontend.service);
    print(&mut line, frontend, &frontend.external);
    line += " | ";
    print(&mut line, frontend, &frontend.internal);
    line
}

fn print(line: &mut String, frontend: &Frontend, route: &Route) {
    match route {
        Route::Reject => line.push_str("Reject"),
        Route::Drop => line.push_str("Drop"),
        Route::Forward(candidates) => {
            let addrs: Vec<String> =
                candidates.iter().map(|candidate| frontend.endpoint(*candidate).addr.to_string()).collect();
            write!(line, "{}", addrs.join(" ")).unwrap();
        }
    }
}

/// Addresses of the frontends, without port and protocol.
pub(super) fn ips(projection: &Projection, service: &str) -> Vec<String> {
    let frontends =
        projection.table.frontends().iter().filter(|frontend| frontend.service.to_string() == service);
    frontends.map(|frontend| frontend.addr.ip.to_string()).collect()
}

/// Problems as `object reason field`.
pub(super) fn problems(projection: &Projection) -> Vec<String> {
    let short = |problem: &Arc<Problem>| format!("{} {} {}", problem.object, problem.reason, problem.field);
    projection.problems.iter().map(short).collect()
}
