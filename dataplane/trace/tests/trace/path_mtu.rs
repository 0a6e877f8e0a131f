//! Path MTU and its black holes.

use sheave_trace::path_mtu::{Echo, probe};
use sheave_trace::route::{RouteMtu, output};

use crate::network::{connect, on, soon};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::patience;
use crate::support::world::Family;

for_both_families!(
    a_path_that_carries_all_answers_both,
    a_router_reports_a_smaller_link,
    a_black_hole_answers_small_packets_alone,
    a_machine_that_is_not_there_is_unreachable_or_silent,
    a_packet_larger_than_the_link_is_not_sent,
);

/// Here, a router, and a peer behind it on a link with this MTU.
fn path(mtu: u32) -> [Host; 3] {
    let [here, router, peer] = ["here", "router", "peer"].map(Host::new);
    connect(&here, "eth0", &router, "near", 1);
    connect(&peer, "eth0", &router, "far", 2);
    router.sysctl("ipv4/ip_forward", "1");
    router.sysctl("ipv6/conf/all/forwarding", "1");
    router.ip(&[format!("link set far mtu {mtu}")]);
    peer.ip(&[format!("link set eth0 mtu {mtu}")]);
    for family in Family::BOTH {
        here.ip(&[format!("route add default via {}", on(family, 1, 2))]);
        peer.ip(&[format!("route add default via {}", on(family, 2, 2))]);
    }
    [here, router, peer]
}

fn answered(echo: &Echo) -> bool {
    matches!(echo, Echo::Answered { .. })
}

fn a_path_that_carries_all_answers_both(family: Family) {
    let [here, _router, _peer] = path(1500);
    let found = here.run(|| probe(on(family, 2, 1), None, 1500, soon())).unwrap();
    assert!(answered(&found.small) && answered(&found.large) && !found.is_black_hole(), "{found:?}");
    let found = here.run(|| probe(on(family, 2, 1), Some(on(family, 1, 1)), 1500, soon())).unwrap();
    assert!(answered(&found.small) && answered(&found.large), "{found:?}");
}

fn a_router_reports_a_smaller_link(family: Family) {
    let [here, _router, _peer] = path(1400);
    let peer = on(family, 2, 1);
    for _ in 0..2 {
        let found = here.run(|| probe(peer, None, 1500, soon())).unwrap();
        assert!(answered(&found.small), "{found:?}");
        assert_eq!(found.large, Echo::TooBig { mtu: 1400, by: on(family, 1, 2) });
    }
    let route = here.run(|| output(None, peer)).unwrap();
    assert!(
        matches!(route.mtu, Some(RouteMtu::Learned { mtu: 1400, expires }) if expires > patience(0.0)),
        "{route:?}"
    );
}

fn a_black_hole_answers_small_packets_alone(family: Family) {
    let [here, router, _peer] = path(1400);
    router
        .finish(
            "nft",
            &["add table inet f; add chain inet f o { type filter hook output priority 0; }; \
           add rule inet f o icmp type destination-unreachable drop; \
           add rule inet f o icmpv6 type packet-too-big drop"],
        )
        .expect_success();
    let found = here.run(|| probe(on(family, 2, 1), None, 1500, patience(0.6))).unwrap();
    assert!(found.is_black_hole(), "{found:?}");
}

fn a_machine_that_is_not_there_is_unreachable_or_silent(family: Family) {
    let [here, router, _peer] = path(1500);
    let no_route = here.run(|| probe(family.black_hole(), None, 1500, soon())).unwrap();
    assert!(
        matches!(no_route.small, Echo::Unreachable { by: Some(by), .. } if by == on(family, 1, 2)),
        "{no_route:?}"
    );
    here.ip(&[format!("{} route del default", if family == Family::V4 { "-4" } else { "-6" })]
        .map(|line| line.replace("-4 ", "").replace("-6 ", ""))
        .map(|line| format!("{line} via {}", on(family, 1, 2))));
    let nowhere = here.run(|| probe(family.black_hole(), None, 1500, soon())).unwrap();
    assert!(matches!(nowhere.small, Echo::Unreachable { by: None, error: Some(_) }), "{nowhere:?}");
    drop(router);
}

fn a_packet_larger_than_the_link_is_not_sent(family: Family) {
    let [here, _router, _peer] = path(1500);
    let found = here.run(|| probe(on(family, 2, 1), None, 9000, soon())).unwrap();
    assert_eq!(found.large, Echo::LargerThanLink);
}
