//! Faults of the network and of its keys: each has a stated outcome, and none makes addresses move to and fro.

use std::net::IpAddr;
use std::time::Duration;

use crate::figures::mark;
use crate::segment::{Segment, Shape, gateway_address, on_segment, service_address};
use crate::support::length::by_length;
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::world::Family;
use crate::watch::AddressWatch;

/// The IPv4 addresses are for the second interface.
const ON_ETH1: &str = "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: second}\n\
                       spec: {addresses: [10.5.100.0/24], announce: {interfaces: [eth1]}}\n\
                       ---\napiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: first}\n\
                       spec: {addresses: [\"fd05::64:0/112\"]}\n";

const SECOND_KEY: &str = "the second key of this segment\n";

/// Replaces the common key by the second one. These gateways have it, and follow.
fn rotate_keys(segment: &Segment, followers: &[u8]) {
    let read_again = |times: usize| {
        for &number in followers {
            eventually_within(patience(20.0), &format!("gw-{number} reads the keys again"), || {
                let log = segment.log(number);
                let read = log.matches("read the keys of heartbeats again").count();
                if read == times { Ok(()) } else { Err(log) }
            });
        }
    };
    segment.set_key("second", Some(SECOND_KEY));
    read_again(1);
    segment.set_key("first", None);
    read_again(2);
}

#[test]
fn keys_are_rotated_without_a_gap() {
    let segment = Segment::running(Shape::default());
    let owner = segment.wait_for_owner(Family::V4, 1);
    rotate_keys(&segment, &segment.numbers());
    let_pass(Duration::from_secs(1));
    for number in segment.numbers() {
        assert_eq!(segment.metric(number, "sheave_announce_fenced_total"), 0.0, "gw-{number}");
        assert_eq!(segment.view(number)["heardBy"], 3);
    }
    assert_eq!(segment.wait_for_owner(Family::V4, 1), owner);
    // One that is of no use changes nothing, and is told.
    segment.set_key("third", Some("short"));
    eventually_within(patience(20.0), "it is told", || {
        let log = segment.log(1);
        if log.contains("the keys of heartbeats stay what they were") { Ok(()) } else { Err(log) }
    });
    assert_eq!(segment.view(1)["heardBy"], 3);
}

#[test]
fn a_gateway_that_is_left_with_the_old_key_owns_nothing_until_it_has_the_new_one() {
    let mut segment = Segment::new(Shape { services: 4, ..Shape::default() });
    segment.set_keys_of(3, "the first key of this segment\n");
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    segment.wait_until_owned();
    let owners = || -> Vec<u8> {
        let services = Family::BOTH.into_iter().flat_map(|family| (1..=4).map(move |it| (family, it)));
        services.map(|(family, service)| segment.wait_for_owner(family, service)).collect()
    };
    let before = owners();
    assert!(before.contains(&3));
    rotate_keys(&segment, &[1, 2]);
    eventually("it goes on without a majority, and says why", || {
        let view = segment.view(3);
        let warned = view["warnings"].to_string().contains("none of this gateway's keys has signed");
        if view["state"] == "minority" && warned { Ok(()) } else { Err(view.to_string()) }
    });
    eventually("the others have all", || {
        let holders: Vec<Vec<u8>> = Family::BOTH
            .into_iter()
            .flat_map(|family| (1..=4).map(move |service| (family, service)))
            .map(|(family, service)| segment.holders(family, service))
            .collect();
        let one_each = holders.iter().all(|holders| matches!(holders[..], [1 | 2]));
        if one_each { Ok(()) } else { Err(format!("{holders:?}")) }
    });
    assert!(!owners().contains(&3));
    segment.set_keys_of(3, SECOND_KEY);
    segment.wait_until_all_eligible();
    eventually("all is as before", || if owners() == before { Ok(()) } else { Err("not yet") });
}

#[test]
fn a_gateway_without_a_link_owns_nothing_until_it_is_heard_again() {
    let segment = Segment::running(Shape::default());
    let family = Family::V4;
    let cut = segment.wait_for_owner(family, 1);
    segment.unplug(cut);
    eventually("another one answers", || match segment.owner(family, 1) {
        Ok(next) if next != cut => Ok(()),
        other => Err(format!("{other:?}")),
    });
    eventually("it is fenced", || {
        let view = segment.view(cut);
        if view["state"] == "fenced" && segment.holders(family, 1).iter().all(|it| *it != cut) {
            Ok(())
        } else {
            Err(view.to_string())
        }
    });
    segment.plug_in(cut);
    segment.wait_until_all_eligible();
    eventually("it has what it had", || match segment.owner(family, 1) {
        Ok(back) if back == cut => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn a_gateway_that_leaves_a_subnet_gives_its_addresses_there_to_others_until_it_is_back() {
    let segment = Segment::running(Shape::default());
    let (first, other) = (segment.wait_for_owner(Family::V6, 1), segment.wait_for_owner(Family::V4, 1));
    let lost = || {
        let lost = |number| segment.metric(number, "sheave_announce_moves_total{event=\"lost\"}");
        segment.numbers().into_iter().map(lost).sum::<f64>()
    };
    let before = lost();
    let address = format!("addr add {}/64 dev eth0 nodad", gateway_address(Family::V6, first));
    segment.host(first).ip(&[address.replace("addr add", "addr del").replace(" nodad", "")]);
    eventually("another one answers", || match segment.owner(Family::V6, 1) {
        Ok(next) if next != first => Ok(()),
        next => Err(format!("{next:?}")),
    });
    assert_eq!(segment.wait_for_owner(Family::V4, 1), other, "the other family stays");
    eventually("it says why", || {
        let view = segment.view(first).to_string();
        let part = "fd05::64:1 is in no network of this gateway's interfaces that are up";
        if view.contains(part) { Ok(()) } else { Err(view) }
    });
    assert_eq!(segment.problems(first), [] as [String; 0], "others answer");
    segment.host(first).ip(&[address]);
    eventually("it has what it had", || match segment.owner(Family::V6, 1) {
        Ok(back) if back == first => Ok(()),
        next => Err(format!("{next:?}")),
    });
    assert_eq!(lost() - before, 2.0, "there and back");
}

#[test]
fn an_interface_that_vanishes_gives_its_addresses_to_others() {
    let mut segment = Segment::new(Shape { pools: ON_ETH1, ..Shape::default() });
    let _second = segment.add_bridge();
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    let ip = service_address(Family::V4, 1).to_string();
    let announces = |number: &u8| {
        let view = segment.view(*number);
        let addresses = view["addresses"].as_array().cloned().unwrap_or_default();
        addresses.iter().any(|it| it["address"] == ip.as_str() && it["state"] == "announced")
    };
    let announcer = |what: &str, fits: &dyn Fn(u8) -> bool| {
        eventually(what, || match segment.numbers().into_iter().filter(announces).collect::<Vec<_>>()[..] {
            [number] if fits(number) => Ok(number),
            ref other => Err(format!("{other:?}")),
        })
    };
    let first = announcer("it is announced on eth1", &|_| true);
    segment.host(first).ip(&["link del eth1".to_owned()]);
    announcer("another one announces it", &|number| number != first);
    assert_eq!(segment.view(first)["state"], "eligible", "heartbeats take the other interface");
    assert_eq!(segment.problems(first), [] as [String; 0], "others answer");
    eventually("the gateway's other addresses stay where they are", || segment.owner(Family::V6, 1));
}

#[test]
fn one_lossy_link_of_three_moves_nothing() {
    let segment = Segment::running(Shape { services: 4, ..Shape::default() });
    let owners = || (1..=4).map(|number| segment.wait_for_owner(Family::V4, number)).collect::<Vec<_>>();
    let before = owners();
    let lost = |number| segment.metric(number, "sheave_announce_moves_total{event=\"lost\"}");
    let lost_before: Vec<f64> = segment.numbers().into_iter().map(lost).collect();
    // gw-1 hears gw-2 no more, while gw-2 hears gw-1.
    segment.drop_on(1, "ip saddr 10.5.1.2 udp dport 9846");
    eventually("gw-1 knows of gw-2 by gw-3", || {
        let view = segment.view(1);
        let members = view["members"].as_array().cloned().unwrap_or_default();
        let other = members.into_iter().find(|it| it["node"] == "gw-2").unwrap_or_default();
        if other["heardVia"] == "gw-3" && other["state"] == "candidate" {
            Ok(())
        } else {
            Err(view.to_string())
        }
    });
    let_pass(Duration::from_secs(1));
    assert_eq!(owners(), before);
    assert_eq!(segment.numbers().into_iter().map(lost).collect::<Vec<_>>(), lost_before);
}

#[test]
fn heavy_loss_makes_no_second_owner_and_ends_with_what_was() {
    let segment = Segment::running(Shape { services: 4, ..Shape::default() });
    let of_services = |ip: IpAddr| {
        Family::BOTH.into_iter().any(|family| (1..=4).any(|it| service_address(family, it) == ip))
    };
    let watch = AddressWatch::start(&segment);
    let lost = || {
        let lost = |number| segment.metric(number, "sheave_announce_moves_total{event=\"lost\"}");
        segment.numbers().into_iter().map(lost).sum::<f64>()
    };
    let before = lost();
    segment.numbers().into_iter().for_each(|number| {
        segment.drop_on(number, "udp dport 9846 numgen random mod 10 < 3");
    });
    let_pass(Duration::from_secs(by_length(10, 120)));
    let moves = lost() - before;
    segment.numbers().into_iter().for_each(|number| segment.accept_on(number));
    segment.wait_until_all_eligible();
    segment.wait_until_owned();
    println!("30 % of all heartbeats lost: 8 addresses were given up {moves} times");
    let overlap = watch.longest_overlap(of_services);
    mark("two owners under heavy loss", Duration::from_millis(350), overlap);
}

#[test]
fn an_address_that_another_machine_has_is_not_taken_and_told() {
    let mut segment = Segment::new(Shape { gateways: 1, ..Shape::default() });
    let address = service_address(Family::V4, 1);
    segment.server.ip(&[format!("addr add {address}/32 dev eth0")]);
    segment.start(1);
    let problem = eventually("the conflict is told", || {
        let problems = segment.problems(1);
        problems.iter().find(|it| it.contains("AddressConflict")).cloned().ok_or(problems.join("\n"))
    });
    let link = segment.server.finish("ip", &["-o", "link", "show", "dev", "eth0"]).expect_success();
    let link =
        link.split_whitespace().skip_while(|it| *it != "link/ether").nth(1).expect("a hardware address");
    for part in [&address.to_string(), link, "Service shop/web-1", "does not announce it"] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
    assert!(segment.holders(Family::V4, 1).is_empty());
    assert_eq!(segment.wait_for_owner(Family::V6, 1), 1, "the other address is served");
}

#[test]
fn an_address_outside_all_subnets_is_told() {
    let mut segment = Segment::new(Shape { gateways: 1, ..Shape::default() });
    segment.host(1).ip(&[
        "addr del 10.5.1.1/16 dev eth0".to_owned(),
        format!("addr add {}/24 dev eth0", on_segment(Family::V4, 1, 1)),
    ]);
    segment.start(1);
    let problem = eventually("it is told", || {
        let problems = segment.problems(1);
        problems.iter().find(|it| it.contains("AnnounceFailed")).cloned().ok_or(problems.join("\n"))
    });
    for part in ["10.5.100.1", "no interface that is up has a subnet that contains", "10.5.1.0/24 on eth0"] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
}

#[test]
fn the_first_owner_of_an_address_looks_whether_a_machine_has_it() {
    let mut segment = Segment::new(Shape::default());
    let address = service_address(Family::V4, 1);
    segment.server.ip(&[format!("addr add {address}/32 dev eth0")]);
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    eventually("the owner tells the conflict", || {
        let problems: Vec<String> =
            segment.numbers().into_iter().flat_map(|number| segment.problems(number)).collect();
        if problems.iter().any(|it| it.contains("AddressConflict")) {
            Ok(())
        } else {
            Err(problems.join("\n"))
        }
    });
    assert!(segment.holders(Family::V4, 1).is_empty());
}

#[test]
fn a_later_owner_looks_too_whether_the_machine_still_has_it() {
    let mut segment = Segment::new(Shape::default());
    let address = service_address(Family::V4, 1);
    segment.server.ip(&[format!("addr add {address}/32 dev eth0")]);
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    let in_conflict = |segment: &Segment, among: &[u8]| {
        eventually("the owner tells the conflict", || {
            let tells =
                |number: &u8| segment.problems(*number).iter().any(|it| it.contains("AddressConflict"));
            among.iter().copied().find(tells).ok_or("nobody does")
        })
    };
    let first = in_conflict(&segment, &segment.numbers());
    // Gateways that have just begun probe everything.
    let_pass(Duration::from_secs(2));
    segment.kill(first);
    let others = segment.running_numbers();
    let watched = std::thread::scope(|scope| {
        let segment = &segment;
        let watch = scope.spawn(|| {
            let began = std::time::Instant::now();
            let mut held = Vec::new();
            while began.elapsed() < Duration::from_secs(4) {
                held.extend(segment.holders(Family::V4, 1));
                let_pass(Duration::from_millis(20));
            }
            held
        });
        let next = in_conflict(segment, &others);
        assert_ne!(next, first);
        watch.join().unwrap()
    });
    assert!(watched.is_empty(), "{watched:?} took what another machine has");
}

#[test]
fn what_keeps_gateways_from_knowing_each_other_is_told() {
    let mut segment = Segment::new(Shape { gateways: 2, ..Shape::default() });
    segment.set_keys_of(2, "another key than that of the others\n");
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    let warns = |number: u8, part: &str| {
        eventually(&format!("gw-{number} warns"), || {
            let view = segment.try_view(number)?.to_string();
            if view.contains(part) { Ok(()) } else { Err(view) }
        });
    };
    warns(1, "none of this gateway's keys has signed");
    warns(2, "none of this gateway's keys has signed");
    segment.set_manifests_without_gateways(1);
    warns(1, "do not name this node");
}

/// A Service that only one of the gateways knows.
const ONE_MORE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: more, namespace: shop, annotations: {sheave.dev/addresses: 10.5.100.99}}\n\
                        spec: {type: LoadBalancer, loadBalancerClass: sheave.dev/l4, clusterIP: 10.96.0.99, ports: [{port: 80}]}\n";

/// The nodes with which a gateway says that it disagrees: by its Problems, and by `sheave gateways`.
fn disagreements(segment: &Segment, number: u8) -> [Vec<String>; 2] {
    let numbers = segment.numbers();
    let names = || numbers.iter().map(|other| format!("gw-{other}"));
    let problems = segment.problems(number).join("\n");
    let view = segment.view(number);
    let shown = view["members"].as_array().expect("members").iter();
    let shown = shown.filter(|member| member["disagreement"] == "addresses");
    let told = |name: &String| {
        problems.lines().any(|it| it.contains("GatewaysDisagree") && it.contains(&format!("Node {name}")))
    };
    [
        names().filter(told).collect(),
        shown.map(|member| member["node"].as_str().expect("a name").to_owned()).collect(),
    ]
}

#[test]
fn gateways_that_follow_other_manifests_are_told_of_each_other_until_they_agree_again() {
    let segment = Segment::running(Shape::default());
    let wait_for = |number: u8, nodes: &[&str]| {
        let expected =
            [nodes, nodes].map(|nodes| nodes.iter().map(|&node| node.to_owned()).collect::<Vec<_>>());
        eventually_within(patience(30.0), &format!("gw-{number} disagrees with {nodes:?}"), || {
            let found = disagreements(&segment, number);
            if found == expected { Ok(()) } else { Err(format!("{found:?}: {:?}", segment.problems(number))) }
        });
        let metric = segment.metric(number, "sheave_announce_gateways{state=\"disagreeing\"}");
        assert_eq!(metric as usize, nodes.len());
    };
    segment.add_manifest(1, "more.yaml", ONE_MORE);
    wait_for(1, &["gw-2", "gw-3"]);
    wait_for(2, &["gw-1"]);
    wait_for(3, &["gw-1"]);
    (2..=3).for_each(|number| segment.add_manifest(number, "more.yaml", ONE_MORE));
    (1..=3).for_each(|number| wait_for(number, &[]));
}
