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
