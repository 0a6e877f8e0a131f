//! Services under the policy `Local` that share an address.

use super::super::Projection;
use super::pools::{POOL, all, managed};
use super::support::{add, objects, problems, service};
use crate::api::store::{Dirty, Objects, ServiceKey};
use crate::projection::service_health::Fault;

/// A Service at 203.0.113.1 with this port, and its slice with endpoints on these nodes.
fn sharing(name: &str, port: u16, policy: &str, nodes: &[&str]) -> [String; 2] {
    let spec = format!("externalTrafficPolicy: {policy}, ports: [{{port: {port}}}]");
    let asks = "metadata: annotations: {sheave.dev/addresses: 203.0.113.1}";
    let endpoint =
        |(number, node): (usize, &&str)| format!("{{addresses: [10.1.{port}.{number}], nodeName: {node}}}");
    let endpoints: Vec<String> = nodes.iter().enumerate().map(endpoint).collect();
    let slice = format!(
        "kind: EndpointSlice\nmetadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{}]\n",
        endpoints.join(", ")
    );
    [service("shop", name, &spec, asks), slice]
}

fn put(objects: &mut Objects, manifests: &[String; 2]) {
    add(objects, &manifests.each_ref().map(String::as_str));
}

fn unserved(projection: &Projection) -> Vec<String> {
    problems(projection).into_iter().filter(|problem| problem.contains("NoCommonNode")).collect()
}

#[test]
fn the_later_service_without_a_node_in_common_has_a_problem() {
    let mut objects = objects(&[POOL]);
    put(&mut objects, &sharing("a", 80, "Local", &["n1", "n2"]));
    put(&mut objects, &sharing("b", 81, "Local", &["n3"]));
    let mut projector = managed();
    let projection = all(&mut projector, &objects);
    assert_eq!(unserved(&projection), ["Service shop/b NoCommonNode spec.externalTrafficPolicy"]);
    let b = ServiceKey::new("shop", "b");
    let text = &projector.problems_of(&b)[0].message;
    assert!(text.contains("203.0.113.1") && text.contains("Service shop/a"), "{text}");
    assert_eq!(
        projector.faults(&b).into_iter().map(|(_, fault)| fault).collect::<Vec<_>>(),
        [Fault::NoCommonNode]
    );
    assert_eq!(projector.faults(&ServiceKey::new("shop", "a")), []);

    // A change of the other Service can make the difference.
    put(&mut objects, &sharing("a", 80, "Local", &["n1", "n3"]));
    let a = ServiceKey::new("shop", "a");
    let projection = projector.project(&objects, &Dirty::Services([a.clone()].into()));
    assert_eq!(unserved(&projection), [""; 0]);
    put(&mut objects, &sharing("a", 80, "Local", &["n1"]));
    let projection = projector.project(&objects, &Dirty::Services([a.clone()].into()));
    assert_eq!(unserved(&projection).len(), 1);
    assert!(projection.touched.contains(&b), "its conditions follow");
    objects.services.remove(&a);
    let projection = projector.project(&objects, &Dirty::Services([a].into()));
    assert_eq!(unserved(&projection), [""; 0]);
}

#[test]
fn what_works_together_is_no_problem() {
    let unserved = |services: &[[String; 2]]| {
        let mut objects = objects(&[POOL]);
        services.iter().for_each(|service| put(&mut objects, service));
        unserved(&all(&mut managed(), &objects))
    };
    let on_n1 = || sharing("a", 80, "Local", &["n1"]);
    assert_eq!(unserved(&[on_n1(), sharing("b", 81, "Cluster", &["n2"])]), [""; 0], "served from everywhere");
    assert_eq!(unserved(&[on_n1(), sharing("b", 81, "Local", &["n1", "n2"])]), [""; 0]);
    assert_eq!(
        unserved(&[on_n1(), sharing("b", 81, "Local", &[])]),
        [""; 0],
        "no endpoint is another matter"
    );
    let same_pods =
        |[service, slice]: [String; 2]| [service.replace("ports:", "selector: {app: web}, ports:"), slice];
    let moving = [same_pods(on_n1()), same_pods(sharing("b", 81, "Local", &["n2"]))];
    assert_eq!(unserved(&moving), [""; 0], "the second slice is about to follow");
    let pairs = [
        sharing("a", 80, "Local", &["n1", "n2"]),
        sharing("b", 81, "Local", &["n2", "n3"]),
        sharing("c", 82, "Local", &["n1", "n3"]),
    ];
    assert_eq!(
        unserved(&pairs),
        ["Service shop/c NoCommonNode spec.externalTrafficPolicy"],
        "no node has all three"
    );
}
