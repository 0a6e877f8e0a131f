//! A controller derives earlier allocations from statuses, whether it observed the changes or not.

use super::pools::{NODES_POOL, POOL, all, gateways, managed, of_nodes, status, three_nodes};
use super::support::{NODE, add, ips, objects, service, web};
use crate::api::store::{Dirty, ServiceKey};

/// Both for a controller that saw the change, and for one that starts afterwards from the published state.
#[test]
fn an_address_goes_with_its_node_and_stays_when_its_pool_is_deleted() {
    let key = ServiceKey::new("shop", "web");
    let mut before = three_nodes();
    add(&mut before, &[POOL, &web("", ""), &gateways(&[("gw-2", true)])]);
    let mut running = managed();
    assert_eq!(ips(&all(&mut running, &before), "shop/web"), ["203.0.113.0"], "pools come by name");
    assert_eq!(running.status(&key).unwrap().node_families.name(), None);
    let mut after = before.clone();
    after.pools.remove("main");
    add(&mut after, &[&web("", &status(&["203.0.113.0"]))]);
    for mut projector in [running, managed()] {
        let kept = all(&mut projector, &after);
        assert_eq!(ips(&kept, "shop/web"), ["203.0.113.0"]);
        assert!(
            kept.problems[0].message.contains("no AddressPool lists the address"),
            "{}",
            kept.problems[0]
        );
    }

    before.pools.remove("main");
    let mut running = managed();
    assert_eq!(ips(&all(&mut running, &before), "shop/web"), ["198.51.100.2"]);
    assert_eq!(running.status(&key).unwrap().node_families.name(), Some("IPv4"));
    before.nodes.remove("gw-2");
    add(&mut before, &[&web("", &of_nodes("IPv4", &["198.51.100.2"])), &gateways(&[("gw-1", true)])]);
    for mut projector in [running, managed()] {
        assert_eq!(ips(&all(&mut projector, &before), "shop/web"), ["192.0.2.1"]);
    }
}

#[test]
fn what_a_service_gave_up_is_nobody_elses_until_its_status_shows_it() {
    let key = ServiceKey::new("shop", "web");
    let only = POOL.replace("203.0.113.0/30", "203.0.113.1");
    let behind = status(&["203.0.113.1"]);
    let mut objects = objects(&[&only, &web("ipFamilies: [IPv4]", &behind)]);
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.1"]);
    add(
        &mut objects,
        &[&web("ipFamilies: [IPv6]", &behind), &service("able", "web", "ports: [{port: 80}]", "")],
    );
    for projector in [&mut projector, &mut managed()] {
        let moved = all(projector, &objects);
        assert!(moved.table.frontends().is_empty(), "{:?}", moved.table.frontends());
    }
    let mut back = projector.clone();
    add(&mut objects, &[&web("ipFamilies: [IPv4]", &behind)]);
    let again = back.project(&objects, &Dirty::Services([key.clone()].into()));
    assert_eq!((ips(&again, "shop/web"), ips(&again, "able/web").len()), (vec!["203.0.113.1".to_owned()], 0));
    add(&mut objects, &[&web("ipFamilies: [IPv6]", "")]);
    let released = projector.project(&objects, &Dirty::Services([key].into()));
    assert_eq!(
        (ips(&released, "shop/web").len(), ips(&released, "able/web")),
        (0, vec!["203.0.113.1".to_owned()])
    );
}

#[test]
fn an_address_that_a_pool_lists_stays_when_it_is_a_gateway_nodes_as_well() {
    let lists = POOL.replace("203.0.113.0/30", "192.0.2.1");
    let local = web("ipFamilies: [IPv4], externalTrafficPolicy: Local", "");
    let mut objects = objects(&[NODE, &lists, &local, &gateways(&[("gw-1", true)])]);
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["192.0.2.1"]);
    // The node has no endpoint, so as a node's address it would not be allocated.
    add(&mut objects, &[NODES_POOL, &service("shop", "other", "ports: [{port: 81}]", "")]);
    let after = all(&mut projector, &objects);
    assert_eq!(ips(&after, "shop/web"), ["192.0.2.1"]);
    assert!(!all(&mut projector, &objects).changed);
}
