//! Ports that a MultiClusterService publishes, which no older object gets: its API has no field for them.

use std::collections::BTreeMap;

use serde_json::json;
use sheave_model::FrontendSource;

use super::super::{KarmadaOptions, Options, Projection, Projector, Published, Role};
use super::fleet::{TEMPLATE, fleet, key, mcs};
use super::pools::{all, managed};
use super::support::{add, options, problems, service};
use crate::api::store::{Dirty, Objects, ServiceKey};

const POOL: &str = "kind: AddressPool\nmetadata: {name: main}\nspec: {addresses: [203.0.113.10]}\n";
const CONDITION: &str = "conditions: [{type: sheave.dev/PortsPublished, status: 'True', reason: Ports, message: \
    'TCP 80 at 203.0.113.10; UDP 53 at 203.0.113.10.', lastTransitionTime: '2026-01-01T00:00:00Z'}]";
const IN_USE: &str = "Service shop/old AddressInUse spec.ports[0]";

/// The MultiClusterService, which has published TCP port 80, with a status from before there was the condition, and with the condition.
fn forms() -> [String; 3] {
    let metadata =
        "uid: m, creationTimestamp: '2026-01-02T00:00:00Z', finalizers: [sheave.dev/load-balancer-cleanup]";
    let object = mcs("", metadata);
    let failing = "{ip: 203.0.113.10, ports: [{port: 53, protocol: UDP, error: sheave.dev/BindFailed}]}";
    let failing = object.replace("{ip: 203.0.113.10}", failing);
    let listing = failing.replace("]}]}}", &format!("]}}]}}, {CONDITION}}}"));
    assert!(listing.contains(CONDITION));
    [object, failing, listing]
}

/// An older Service that asks for port 80 of the same address, and has not got it.
fn old() -> String {
    let lost = "{port: 80, protocol: TCP, error: sheave.dev/AddressInUse}";
    let status = format!(
        "status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.10, ipMode: Proxy, ports: [{lost}]}}]}}}}"
    );
    let service = service("shop", "old", "ports: [{port: 80}], loadBalancerIP: 203.0.113.10", &status);
    service.replace("name: old", "name: old, creationTimestamp: '2026-01-01T00:00:00Z'")
}

fn world(of_fleet: &[&str]) -> Objects {
    let mut objects = fleet(of_fleet);
    add(&mut objects, &[POOL, &old()]);
    objects
}

fn gateway() -> Projector {
    Projector::new(Options { role: Role::Gateway, ..options() })
}

/// What serves TCP port 80.
fn owner(projection: &Projection) -> Option<FrontendSource> {
    let frontends = projection.table.frontends().iter();
    let mut owners = frontends.filter(|it| it.addr.port == 80).map(|it| it.service.source);
    owners.next().filter(|_| owners.next().is_none())
}

#[test]
fn an_error_of_one_port_gives_no_other_port_away() {
    for object in forms() {
        for mut projector in [managed(), gateway()] {
            let projection = all(&mut projector, &world(&[TEMPLATE, &object]));
            assert_eq!(owner(&projection), Some(FrontendSource::MultiClusterService), "{object}");
            assert!(problems(&projection).contains(&IN_USE.to_owned()), "{object}");
        }
    }
}

#[test]
fn a_port_that_another_object_has_is_not_published() {
    let lost = "ports: [{port: 80, protocol: TCP, error: sheave.dev/AddressInUse}]";
    let object = mcs("", "").replace("ip: 203.0.113.10", &format!("ip: 203.0.113.10, {lost}"));
    let projection = all(&mut managed(), &world(&[TEMPLATE, &object]));
    assert_eq!(owner(&projection), Some(FrontendSource::Service));
}

#[test]
fn its_ports_stay_its_own_while_its_service_is_replaced() {
    for object in forms() {
        let [there, gone] = [world(&[TEMPLATE, &object]), world(&[&object])];
        for mut projector in [managed(), gateway()] {
            let _ = all(&mut projector, &there);
            let meanwhile = all(&mut projector, &gone);
            assert_eq!(owner(&meanwhile), None, "{object}");
            assert!(problems(&meanwhile).contains(&IN_USE.to_owned()), "{object}");
            let back = all(&mut projector, &there);
            assert_eq!(owner(&back), Some(FrontendSource::MultiClusterService), "{object}");
        }
    }
}

#[test]
fn what_it_publishes_is_listed_while_its_service_is_replaced() {
    let listed = |object: &str| {
        let mut projector = managed();
        let _ = all(&mut projector, &world(&[object]));
        let entry = projector.status(&key()).unwrap().ingress[0].clone();
        let ports: Vec<_> = entry.ports.iter().map(|it| (it.port, it.protocol, it.error)).collect();
        (ports, entry.whole)
    };
    let [before, _, now] = forms();
    assert_eq!(listed(&before), (vec![], true));
    assert_eq!(listed(&now), (vec![(53, "UDP", None), (80, "TCP", None)], false));
}

#[test]
fn one_that_is_no_load_balancer_any_more_is_released_without_its_service() {
    let [object, ..] = forms();
    let object = object.replace("types: [LoadBalancer]", "types: [CrossCluster]");
    let mut projector = managed();
    let _ = all(&mut projector, &world(&[&object]));
    assert!(projector.status(&key()).is_none() && projector.fleet_status(&key()).is_none());
}

#[test]
fn its_ports_are_its_own_from_the_moment_they_are_sent() {
    let [object, ..] = forms();
    let asks = object.replace("uid: m,", "uid: m, annotations: {sheave.dev/addresses: 203.0.113.10},");
    let without_status = asks.replace("status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}", "");
    assert_ne!(asks, without_status);
    let ingress = json!({"ingress": [{"ip": "203.0.113.10", "ipMode": "Proxy"}]});
    let condition: serde_json::Value = serde_saphyr::from_str(&format!("{{{CONDITION}}}")).unwrap();
    for conditions in [json!([]), condition["conditions"].clone()] {
        let body = json!({"loadBalancer": ingress, "conditions": conditions});
        let sent = Published::written(FrontendSource::MultiClusterService, &body);
        for of_fleet in [&[TEMPLATE, without_status.as_str()][..], &[without_status.as_str()]] {
            let mut projector = managed();
            projector.set_sent([(key(), sent.clone())].into());
            let projection = all(&mut projector, &world(of_fleet));
            assert_ne!(owner(&projection), Some(FrontendSource::Service), "{body}");
            projector.set_sent(BTreeMap::new());
            let projection = projector.project(&world(of_fleet), &Dirty::Nothing);
            assert_eq!(owner(&projection), Some(FrontendSource::Service), "{body}");
        }
    }
}

#[test]
fn an_address_without_a_list_of_ports_may_be_shared_by_services_that_have_ports_there() {
    let whole = "status: {loadBalancer: {ingress: [{ip: 203.0.113.10, ipMode: Proxy}]}}";
    let of = |name: &str, port: u16, created: &str| {
        let object = service("shop", name, &format!("ports: [{{port: {port}}}]"), whole);
        object.replace(&format!("name: {name}"), &format!("name: {name}, creationTimestamp: '{created}'"))
    };
    let (one, other) = (of("one", 443, "2026-01-01T00:00:00Z"), of("other", 8443, "2026-01-02T00:00:00Z"));
    let mut objects = fleet(&[]);
    add(&mut objects, &[POOL, &one, &other]);
    let projection = all(&mut managed(), &objects);
    assert_eq!((projection.table.frontends().len(), projection.problems.len()), (2, 0));
    let leaving = one.replace(
        "name: one,",
        "name: one, deletionTimestamp: '2026-01-03T00:00:00Z', \
        finalizers: [sheave.dev/load-balancer-cleanup],",
    );
    assert_ne!(leaving, one);
    add(&mut objects, &[&leaving, &old()]);
    let projection = all(&mut managed(), &objects);
    assert_eq!((owner(&projection), problems(&projection)), (None, vec![IN_USE.to_owned()]));
    assert_eq!(projection.table.frontends().len(), 1, "the other one keeps its port");
}

#[test]
fn what_writes_publish_is_merged_and_what_is_seen_is_left_out() {
    let of = |ports: serde_json::Value| {
        let ingress = json!([{"ip": "203.0.113.10", "ports": ports}]);
        Published::written(
            FrontendSource::MultiClusterService,
            &json!({"loadBalancer": {"ingress": ingress}}),
        )
    };
    let in_use = |port: u16| json!({"port": port, "protocol": "TCP", "error": "sheave.dev/AddressInUse"});
    let (all, without) = (of(json!([])), of(json!([in_use(80), in_use(81)])));
    let mut both = without.clone();
    both.add_all(of(json!([in_use(80)])));
    assert!(both.clone().beyond(&of(json!([in_use(80)]))).is_empty());
    let gained = both.beyond(&without);
    assert_eq!(gained.ports().map(|addr| addr.port).collect::<Vec<_>>(), [81]);
    assert!(all.clone().beyond(&all).is_empty() && all.beyond(&Published::default()).whole().len() == 1);
}

#[test]
fn one_that_only_its_service_gives_our_class_stays_ours_while_that_is_replaced() {
    let template = TEMPLATE.replace("ports:", "loadBalancerClass: sheave.dev/l4, ports:");
    let fleet = KarmadaOptions { handle_unclassified: false, ..KarmadaOptions::default() };
    let role =
        Role::Controller { gateways: ServiceKey::new("sheave-system", "sheave-gateways"), own_gateway: None };
    for (object, stays) in forms().into_iter().flat_map(|object| {
        let untaken = object.replace("finalizers: [sheave.dev/load-balancer-cleanup]", "finalizers: []");
        let other =
            object.replace("finalizers: [", "finalizers: [sheave.dev/load-balancer-cleanup-bf9cf968, ");
        [(object, true), (untaken, false), (other, false)]
    }) {
        let mut projector =
            Projector::new(Options { role: role.clone(), fleet: fleet.clone(), ..Options::default() });
        let _ = all(&mut projector, &world(&[&template, &object]));
        assert!(projector.status(&key()).is_some_and(|it| !it.ingress.is_empty()), "{object}");
        let meanwhile = all(&mut projector, &world(&[&object]));
        let is_kept = projector.status(&key()).is_some_and(|it| !it.ingress.is_empty());
        assert_eq!(is_kept, stays, "{object}");
        if stays {
            assert_ne!(owner(&meanwhile), Some(FrontendSource::Service), "{object}");
        }
        // Its Service comes back without our class.
        let _ = all(&mut projector, &world(&[TEMPLATE, &object]));
        assert!(projector.status(&key()).is_none(), "{object}");
    }
}
