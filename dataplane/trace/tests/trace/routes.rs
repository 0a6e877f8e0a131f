//! Routes, links and the neighbour cache.

use sheave_trace::link::{carriers, links, with_subnet_of};
use sheave_trace::neighbour::{NeighbourState, entry};
use sheave_trace::route::{Admission, ReversePath, RouteKind, RouteMtu, input, output, rp_filter};

use crate::network::{connect, ip, link_of, on};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::eventually;
use crate::support::world::Family;

for_both_families!(
    a_route_names_its_interface_and_router,
    routes_that_carry_nothing_are_told_apart,
    a_packet_for_another_machine_needs_forwarding,
    links_have_their_addresses,
    a_neighbour_that_does_not_answer_fails,
);

/// A gateway with two links, to `a` and to `b`.
fn gateway() -> [Host; 3] {
    let [gateway, a, b] = ["gateway", "a", "b"].map(Host::new);
    connect(&gateway, "a", &a, "eth0", 1);
    connect(&gateway, "b", &b, "eth0", 2);
    [gateway, a, b]
}

fn a_route_names_its_interface_and_router(family: Family) {
    let [gateway, _a, _b] = gateway();
    let far = family.vip(0);
    gateway.ip(&[format!("route add {far} via {} mtu 1400", on(family, 2, 2))]);
    let route = gateway.run(|| output(None, far)).unwrap();
    assert_eq!(route.kind, RouteKind::Unicast);
    assert_eq!(route.interface.map(|interface| interface.name).as_deref(), Some("b"));
    assert_eq!(route.gateway, Some(on(family, 2, 2)));
    assert_eq!(route.mtu, Some(RouteMtu::Configured(1400)));
    let direct = gateway.run(|| output(Some(on(family, 1, 1)), on(family, 1, 2))).unwrap();
    assert_eq!((direct.kind, direct.gateway, direct.mtu), (RouteKind::Unicast, None, None));
}

fn routes_that_carry_nothing_are_told_apart(family: Family) {
    let [gateway, _a, _b] = gateway();
    let kinds = [
        (RouteKind::Blackhole, "blackhole"),
        (RouteKind::Unreachable, "unreachable"),
        (RouteKind::Prohibit, "prohibit"),
    ];
    let index = link_of(&gateway, "a").index;
    let client = on(family, 1, 2);
    for (place, (kind, name)) in (0..).zip(kinds) {
        let to = family.vip(place);
        gateway.ip(&[format!("route add {name} {to}")]);
        assert_eq!(gateway.run(|| output(None, to)).unwrap().kind, kind);
        assert_eq!(gateway.run(|| input(client, to, index)).unwrap(), Admission::Refused(kind));
    }
    assert_eq!(gateway.run(|| output(None, family.vip(3))).unwrap().kind, RouteKind::None);
    assert_eq!(gateway.run(|| output(None, on(family, 1, 1))).unwrap().kind, RouteKind::Local);
}

fn a_packet_for_another_machine_needs_forwarding(family: Family) {
    let [gateway, _a, _b] = gateway();
    let (client, far) = (on(family, 1, 2), on(family, 2, 2));
    let index = link_of(&gateway, "a").index;
    let take = |to| gateway.run(|| input(client, to, index)).unwrap();
    assert_eq!(take(on(family, 1, 1)), Admission::Admitted(RouteKind::Local));
    assert_eq!(take(far), Admission::NotForwarded);
    gateway.sysctl("ipv4/ip_forward", "1");
    gateway.sysctl("ipv6/conf/all/forwarding", "1");
    assert_eq!(take(far), Admission::Admitted(RouteKind::Unicast));
}

#[test]
fn an_asymmetric_route_is_the_reverse_path_filters() {
    let [gateway, _a, _b] = gateway();
    let (frontend, client, stranger) = (ip("10.9.1.1"), ip("10.9.2.9"), ip("198.51.100.7"));
    let index = link_of(&gateway, "a").index;
    let take = |client| gateway.run(|| input(client, frontend, index)).unwrap();
    let modes = [
        ("0", ReversePath::Off, Admission::Admitted(RouteKind::Local), Admission::Admitted(RouteKind::Local)),
        ("1", ReversePath::Strict, Admission::ReversePathFilter, Admission::ReversePathFilter),
        ("2", ReversePath::Loose, Admission::Admitted(RouteKind::Local), Admission::ReversePathFilter),
    ];
    gateway.sysctl("ipv4/conf/all/rp_filter", "0");
    for (value, mode, of_other_link, of_nowhere) in modes {
        gateway.sysctl("ipv4/conf/a/rp_filter", value);
        assert_eq!(gateway.run(|| rp_filter("a")), Ok(mode));
        assert_eq!((take(client), take(stranger)), (of_other_link, of_nowhere), "{mode:?}");
    }
    for martian in ["10.9.2.1", "127.0.0.1", "224.0.0.1", "0.0.0.1"] {
        assert_eq!(take(ip(martian)), Admission::Martian, "{martian}");
    }
    let unseen = gateway.run(|| rp_filter("none")).unwrap_err().to_string();
    assert!(unseen.contains("/proc/sys/net/ipv4/conf/none/rp_filter cannot be read"), "{unseen}");
}

#[test]
fn a_source_of_another_machine_is_no_route() {
    let [gateway, _a, _b] = gateway();
    let unseen = gateway.run(|| output(Some(ip("10.9.1.77")), ip("10.9.2.2"))).unwrap_err().to_string();
    assert_eq!(unseen, "cannot see the route: 10.9.1.77 is no address of this machine");
    let unseen = gateway.run(|| input(ip("10.9.1.2"), ip("10.9.1.1"), 999)).unwrap_err().to_string();
    assert_eq!(unseen, "cannot see the route: there is no interface 999");
}

fn links_have_their_addresses(family: Family) {
    let [gateway, a, _b] = gateway();
    gateway.own([family.vip(0)]);
    gateway.ip(&["link set dev a mtu 1400".into()]);
    let link = link_of(&gateway, "a");
    assert_eq!((link.mtu, link.is_up, link.has_carrier), (1400, true, true));
    assert!(link.mac.is_some() && link.has_neighbours);
    assert!(link.addresses.iter().any(|address| address.ip == on(family, 1, 1)));
    let all = gateway.run(links).unwrap();
    let names = |ip| Vec::from_iter(with_subnet_of(&all, ip).iter().map(|link| link.name.clone()));
    assert_eq!((names(on(family, 1, 9)), names(on(family, 2, 9))), (vec!["a".into()], vec!["b".into()]));
    assert_eq!(names(family.vip(0)), [] as [String; 0]);
    gateway.ip(&[
        "link add name red type bridge".into(),
        "link set dev b master red".into(),
        "link add link red name above type macvlan".into(),
    ]);
    let all = gateway.run(links).unwrap();
    let below = |name| {
        Vec::from_iter(carriers(&all, link_of(&gateway, name).index).iter().map(|it| it.name.as_str()))
    };
    assert_eq!((below("red"), below("above"), below("a")), (vec!["b"], vec!["red", "b"], vec![]));
    assert_eq!(link_of(&gateway, "b").controller, Some(link_of(&gateway, "red").index));
    a.ip(&["link set eth0 down".into()]);
    eventually("the carrier is lost", || match link_of(&gateway, "a") {
        link if link.is_up && !link.has_carrier => Ok(()),
        link => Err(format!("{link:?}")),
    });
}

fn a_neighbour_that_does_not_answer_fails(family: Family) {
    let [gateway, a, _b] = gateway();
    let index = link_of(&gateway, "a").index;
    let look = |ip| gateway.run(|| entry(ip, index)).unwrap();
    let (there, nobody) = (on(family, 1, 2), on(family, 1, 9));
    assert_eq!(look(nobody).state, NeighbourState::Absent);
    gateway.run(|| {
        let bind = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = std::net::UdpSocket::bind(bind).unwrap();
        for ip in [there, nobody] {
            socket.send_to(b"?", (ip, 9)).unwrap();
        }
    });
    eventually("one answers, the other does not", || match (look(there), look(nobody)) {
        (one, other) if one.mac == link_of(&a, "eth0").mac && other.state == NeighbourState::Failed => {
            assert!(matches!(one.state, NeighbourState::Reachable | NeighbourState::Delay), "{one:?}");
            Ok(())
        }
        states => Err(format!("{states:?}")),
    });
}
