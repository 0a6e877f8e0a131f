//! Conflicts about an address and port, and endpoints that are frontends of ours.

use super::super::Projector;
use super::support::{NODE, add, lines, objects, options, problems, project, service};
use crate::api::store::{Dirty, ServiceKey};

fn port_80(name: &str, created: &str) -> String {
    let created =
        if created.is_empty() { String::new() } else { format!("metadata: creationTimestamp: {created}") };
    service("shop", name, "ports: [{port: 80}]", &created)
}

#[test]
fn the_older_service_owns_an_address_and_port_then_the_first_by_name() {
    for (a, b, owner) in [
        ("2024-01-02T00:00:00Z", "2024-01-01T00:00:00Z", "b"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "a"),
        ("", "2024-01-01T00:00:00Z", "b"),
        ("", "", "a"),
    ] {
        let projection = project(&[&port_80("a", a), &port_80("b", b)]);
        assert_eq!(lines(&projection), [format!("192.0.2.1:80/TCP shop/{owner} Reject | Reject")]);
        let loser = if owner == "a" { "b" } else { "a" };
        assert_eq!(problems(&projection), [format!("Service shop/{loser} AddressInUse spec.ports[0]")]);
        let problem = &projection.problems[0];
        assert!(problem.message.contains(&format!("shop/{owner}")), "{}", problem.message);
        assert_eq!(problem.port.map(|port| (port.port, port.protocol)), Some((80, "TCP")));
    }
}

#[test]
fn other_ports_and_protocols_of_a_shared_address_are_served() {
    let ports = "ports: [{name: a, port: 80}, {name: b, port: 80, protocol: UDP}, {name: c, port: 81}]";
    let projection = project(&[&port_80("a", ""), &service("shop", "b", ports, "")]);
    let owners: Vec<String> =
        lines(&projection).iter().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(owners, ["192.0.2.1:80/TCP shop/a", "192.0.2.1:80/UDP shop/b", "192.0.2.1:81/TCP shop/b"]);
    assert_eq!(problems(&projection), ["Service shop/b AddressInUse spec.ports[0]"]);
}

#[test]
fn when_the_owner_leaves_the_next_takes_over() {
    let mut objects = objects(&[NODE, &port_80("a", ""), &port_80("b", ""), &port_80("c", "")]);
    let mut projector = Projector::new(options());
    let _ = projector.project(&objects, &Dirty::Everything);
    for (gone, owner, problems_left) in [("a", "b", 1), ("b", "c", 0)] {
        let key = ServiceKey::new("shop", gone);
        objects.services.remove(&key);
        let projection = projector.project(&objects, &Dirty::Services([key].into()));
        assert!(projection.changed);
        assert_eq!(lines(&projection), [format!("192.0.2.1:80/TCP shop/{owner} Reject | Reject")]);
        assert_eq!(projection.problems.len(), problems_left);
    }
    add(&mut objects, &[&port_80("a", "")]);
    let projection = projector.project(&objects, &Dirty::Services([ServiceKey::new("shop", "a")].into()));
    assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/a Reject | Reject"]);
    assert_eq!(problems(&projection), ["Service shop/c AddressInUse spec.ports[0]"]);
}

#[test]
fn an_endpoint_that_becomes_a_frontend_is_left_out_and_comes_back() {
    let slice = "\
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 81}]
endpoints: [{addresses: [192.0.2.1]}]
";
    let web = service("shop", "web", "ports: [{port: 80}]", "");
    let mut objects = objects(&[NODE, &web, slice]);
    let mut projector = Projector::new(options());
    let before = lines(&projector.project(&objects, &Dirty::Everything));
    assert_eq!(before, ["192.0.2.1:80/TCP shop/web 192.0.2.1:81 | 192.0.2.1:81"]);

    let other = ServiceKey::new("shop", "other");
    add(&mut objects, &[&service("shop", "other", "ports: [{port: 81}]", "")]);
    let projection = projector.project(&objects, &Dirty::Services([other.clone()].into()));
    assert_eq!(
        lines(&projection),
        ["192.0.2.1:80/TCP shop/web Reject | Reject", "192.0.2.1:81/TCP shop/other Reject | Reject"]
    );
    assert_eq!(problems(&projection), ["Service shop/web EndpointLoop "]);

    objects.services.remove(&other);
    let projection = projector.project(&objects, &Dirty::Services([other].into()));
    assert_eq!(lines(&projection), before);
    assert!(projection.problems.is_empty());
}
