//! Services that are tried again when an address becomes free: those that could take it, in order, and no others.

use std::collections::BTreeSet;

use super::super::{Options, Projection, Projector, Role};
use super::support::{add, ips, objects, service};
use crate::api::store::{Dirty, Objects, ServiceKey};

const SMALL: &str =
    "kind: AddressPool\nmetadata: {name: small}\nspec: {addresses: [203.0.113.0-203.0.113.3]}\n";
const OTHER: &str =
    "kind: AddressPool\nmetadata: {name: other}\nspec: {addresses: [198.51.100.1], autoAssign: false}\n";
/// Number of Services that request any address.
const ANY: usize = 1_000;

fn managed() -> Projector {
    let gateways = ServiceKey::new("sheave-system", "sheave-gateways");
    let role = Role::Controller { gateways, own_gateway: None };
    Projector::new(Options { node: String::new(), role, ..Options::default() })
}

/// The `number`th Service in order of creation.
fn created(number: usize, metadata: &str) -> String {
    let time = format!("creationTimestamp: '2026-01-01T{:02}:{:02}:00Z'", number / 60, number % 60);
    service("shop", &format!("s{number:04}"), "ports: [{port: 80}]", &format!("metadata: {time}{metadata}"))
}

fn key(number: usize) -> ServiceKey {
    ServiceKey::new("shop", &format!("s{number:04}"))
}

fn gone(projector: &mut Projector, objects: &mut Objects, keys: &[ServiceKey]) -> Projection {
    keys.iter().for_each(|key| drop(objects.services.remove(key)));
    projector.project(objects, &Dirty::Services(keys.iter().cloned().collect()))
}

fn keys(numbers: &[usize]) -> BTreeSet<ServiceKey> {
    numbers.iter().map(|number| key(*number)).collect()
}

#[test]
fn a_freed_address_is_offered_to_as_many_as_can_have_it() {
    let mut objects = objects(&[SMALL, OTHER]);
    for number in 0..ANY {
        add(&mut objects, &[&created(number, "")]);
    }
    // The first of these has the only address of the other pool, and the second waits for it.
    let other = ", annotations: {sheave.dev/address-pool: other}";
    // This one requests an address by value, from another namespace.
    let by_value = service("garden", "web", "ports: [{port: 80}], loadBalancerIP: 203.0.113.1", "");
    add(&mut objects, &[&created(ANY, other), &created(ANY + 1, other), &by_value]);
    let mut projector = managed();
    let first = projector.project(&objects, &Dirty::Everything);
    assert_eq!(ips(&first, "garden/web"), ["203.0.113.1"], "addresses by value go first");
    assert_eq!((first.touched.len(), first.table.frontends().len()), (ANY + 3, 5));

    let one = gone(&mut projector, &mut objects, &[key(0)]);
    assert_eq!(one.touched, keys(&[0, 3]), "the one that has waited longest has it");
    assert_eq!(ips(&one, "shop/s0003"), ["203.0.113.0"]);
    let two = gone(&mut projector, &mut objects, &[key(1), key(2)]);
    assert_eq!(two.touched, keys(&[1, 2, 4, 5]));
    let none = gone(&mut projector, &mut objects, &[key(500)]);
    assert_eq!(none.touched, keys(&[500]), "it had none, so nobody can have it");
    let elsewhere = gone(&mut projector, &mut objects, &[key(ANY)]);
    assert_eq!(elsewhere.touched, keys(&[ANY, ANY + 1]));
}

#[test]
fn who_asks_for_the_freed_address_itself_comes_before_who_asks_for_any() {
    let mut objects = objects(&[SMALL]);
    for number in 0..ANY {
        add(&mut objects, &[&created(number, "")]);
    }
    let mut projector = managed();
    let _ = projector.project(&objects, &Dirty::Everything);
    let garden = ServiceKey::new("garden", "web");
    let asking = "ports: [{port: 80}], loadBalancerIP: 203.0.113.2";
    add(&mut objects, &[&service("garden", "web", asking, "")]);
    let _ = projector.project(&objects, &Dirty::Services([garden.clone()].into()));
    let freed = gone(&mut projector, &mut objects, &[key(2)]);
    assert_eq!(ips(&freed, "garden/web"), ["203.0.113.2"]);
    let mut looked_at = keys(&[2, 4]);
    looked_at.insert(garden);
    assert_eq!(freed.touched, looked_at);
}

#[test]
fn a_chain_of_moves_is_followed_to_its_end() {
    const CHAIN: u8 = 9;
    let pool = "kind: AddressPool\nmetadata: {name: main}\nspec: {addresses: [203.0.113.0/24]}\n";
    // Each has an address and requests that of the next namespace.
    let published = |number: u8, has: u8| {
        let wish = format!("ports: [{{port: 80}}], loadBalancerIP: 203.0.113.{}", number + 1);
        let has = format!("status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.{has}, ipMode: Proxy}}]}}}}");
        service(&format!("n{number}"), "web", &wish, &has)
    };
    let wants = |number: u8| published(number, number);
    let mut objects = objects(&[pool]);
    for number in 1..=CHAIN {
        add(&mut objects, &[&wants(number)]);
    }
    let last = service("last", "web", "ports: [{port: 80}], loadBalancerIP: 203.0.113.10", "");
    add(&mut objects, &[&last]);
    let mut projector = managed();
    let before = projector.project(&objects, &Dirty::Everything);
    assert_eq!(ips(&before, "n1/web"), ["203.0.113.1"]);
    let mut moved = gone(&mut projector, &mut objects, &[ServiceKey::new("last", "web")]);
    // Each waits until the status of the next one shows that it has moved.
    for number in (1..=CHAIN).rev() {
        assert_eq!(
            ips(&moved, &format!("n{}/web", number - 1)).concat(),
            if number > 1 { format!("203.0.113.{}", number - 1) } else { String::new() }
        );
        add(&mut objects, &[&published(number, number + 1)]);
        let key = ServiceKey::new(&format!("n{number}"), "web");
        moved = projector.project(&objects, &Dirty::Services([key].into()));
    }
    for number in 1..=CHAIN {
        assert_eq!(ips(&moved, &format!("n{number}/web")), [format!("203.0.113.{}", number + 1)]);
    }
}
