//! Addresses that objects of other load balancers publish.

use super::*;

/// A Gateway whose class has become one of another controller, which publishes the same address.
#[test]
fn what_a_gateway_of_ours_had_is_in_use_when_another_controller_has_it() {
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.3]")]);
    let (gateway, ip) = (ServiceKey::gateway("shop", "g"), IpAddr::from([10, 0, 0, 1]));
    allocator.hold(&gateway, vec![ip]);
    allocator.set_foreign(&gateway, vec![ip]);
    allocator.release(&gateway);
    assert_eq!(wish("a").ask(&mut allocator), given(&["10.0.0.2"]));
    allocator.set_foreign(&gateway, Vec::new());
    assert_eq!(wish("b").ask(&mut allocator), given(&["10.0.0.1"]));
}

#[test]
fn only_gateways_copy_addresses() {
    for (copying, next) in
        [(ServiceKey::gateway("other", "g"), "10.0.0.1"), (ServiceKey::new("other", "s"), "10.0.0.2")]
    {
        let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1-10.0.0.3]")]);
        assert_eq!(wish("a").ask(&mut allocator), given(&["10.0.0.1"]));
        allocator.set_foreign(&copying, vec![[10, 0, 0, 1].into()]);
        allocator.release(&wish("a").key);
        assert_eq!(wish("b").ask(&mut allocator), given(&[next]), "{copying:?}");
    }
}

#[test]
fn the_namespaces_that_another_load_balancer_publishes_an_address_for_may_request_it() {
    let asks = |namespace: &str| {
        let key = ServiceKey::new(namespace, "moved");
        Wish { key, addresses: vec![[10, 0, 0, 1].into()], ..wish("moved") }
    };
    let published = vec![IpAddr::from([10, 0, 0, 1])];
    for (sharing, theirs) in [
        ("Namespace", refused(refusal("10.0.0.1", Refusal::Foreign("p".into())))),
        ("Cluster", given(&["10.0.0.1"])),
    ] {
        let (mut allocator, _) = allocator(&[("p", &format!("addresses: [10.0.0.1], sharing: {sharing}"))]);
        for namespace in ["a", "b"] {
            allocator.set_foreign(&ServiceKey::new(namespace, "old"), published.clone());
        }
        assert_eq!(asks("evil").ask(&mut allocator), theirs, "{sharing}");
        allocator.release(&asks("evil").key);
        assert_eq!(asks("b").ask(&mut allocator), given(&["10.0.0.1"]), "{sharing}");
    }
}

#[test]
fn who_asks_in_vain_is_asked_again_once_its_namespace_may_have_the_address() {
    let published = vec![IpAddr::from([10, 0, 0, 1])];
    let (mut allocator, _) = allocator(&[("p", "addresses: [10.0.0.1]")]);
    allocator.set_foreign(&ServiceKey::new("a", "old"), published.clone());
    let theirs = stranger("web", &["10.0.0.1"]);
    let assignment = allocator.assign(&theirs.request());
    assert_eq!((assignment.addresses.len(), &assignment.demand.addresses), (0, &published));
    let _ = allocator.take_freed();
    allocator.set_foreign(&ServiceKey::new("evil", "old"), published.clone());
    assert_eq!(allocator.take_freed(), published);
    // A Service of its namespace has the address in its status.
    allocator.set_foreign(&ServiceKey::new("evil", "old"), Vec::new());
    allocator.hold(&stranger("first", &[]).key, published.clone());
    assert_eq!(allocator.take_freed(), published);
    assert_eq!(theirs.ask(&mut allocator), given(&["10.0.0.1"]));
}
