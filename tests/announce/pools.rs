//! What a pool says about the gateways that announce its addresses, and about their interfaces.

use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::planned::new_clients;
use crate::segment::{Segment, Shape, answering, service_address};
use crate::support::patience::eventually;
use crate::support::world::Family;

/// The addresses of the first two Services are for the gateways of rack r1; the others are everybody's.
const RACK: &str = "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: rack}\n\
                    spec: {addresses: [10.5.100.1-10.5.100.2, \"fd05::64:1-fd05::64:2\"], \
                    announce: {nodeSelector: {matchLabels: {rack: r1}}}}\n\
                    ---\napiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: others}\n\
                    spec: {addresses: [10.5.100.3-10.5.100.255, \"fd05::64:3-fd05::64:ff\"]}\n";

/// The addresses of one Service are for either interface.
const INTERFACES: &str = "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: first}\n\
                          spec: {addresses: [10.5.100.1, \"fd05::64:1\"], announce: {interfaces: [eth0]}}\n\
                          ---\napiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: second}\n\
                          spec: {addresses: [10.5.100.2, \"fd05::64:2\"], announce: {interfaces: [eth1]}}\n\
                          ---\napiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: both}\n\
                          spec: {addresses: [10.5.100.3, \"fd05::64:3\"]}\n";

/// What a gateway says of the IPv4 address of a Service.
fn address(segment: &Segment, number: u8, service: u8) -> Value {
    let view = segment.view(number);
    let ip = service_address(Family::V4, service).to_string();
    let addresses = view["addresses"].as_array().cloned().unwrap_or_default();
    addresses.into_iter().find(|it| it["address"] == ip.as_str()).unwrap_or_default()
}

#[test]
fn addresses_stay_with_the_gateways_that_the_pool_selects() {
    let mut segment = Segment::new(Shape { services: 4, pools: RACK, ..Shape::default() });
    segment.set_labels(&[(2, "rack: r1"), (3, "rack: r2")]);
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    segment.wait_until_owned();
    (1..=2).for_each(|service| segment.wait_for_holder(service, 2));
    assert!(segment.problems(1).is_empty(), "{:?}", segment.problems(1));

    segment.kill(2);
    eventually("nobody has the address of service 1", || {
        let address = address(&segment, 1, 1);
        let why = "the node selector of AddressPool rack leaves out every gateway that is alive";
        if address["owner"].is_null() && address["message"] == why {
            Ok(())
        } else {
            Err(address.to_string())
        }
    });
    eventually("the kernel takes the address from the one that was killed", || {
        let holders = segment.holders(Family::V4, 1);
        if holders.is_empty() { Ok(()) } else { Err(format!("{holders:?}")) }
    });
    assert!((3..=4).all(|service| segment.wait_for_owner(Family::V4, service) != 2), "others go on");
    segment.start(2);
    segment.wait_until_all_eligible();
    (1..=2).for_each(|service| segment.wait_for_holder(service, 2));
}

#[test]
fn a_label_that_changes_moves_addresses_and_no_new_client_notices() {
    let mut segment = Segment::new(Shape { services: 4, pools: RACK, ..Shape::default() });
    segment.set_labels(&[(2, "rack: r1")]);
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    segment.wait_until_owned();
    let (load, lost) = new_clients(&segment, 4);
    load.wait_for(50);
    for number in [3, 1, 2] {
        segment.set_labels(&[(number, "rack: r1")]);
        (1..=2).for_each(|service| segment.wait_for_holder(service, number));
        load.wait_for(50);
    }
    let done = load.expect_no_failure();
    let lost = lost.load(Ordering::Relaxed);
    assert!(
        lost <= 3 * 4,
        "each of three moves may catch one connection of each of four clients; {lost} were lost"
    );
    println!(
        "{done} new connections while labels moved addresses: none failed; {lost} were open in that moment, and lost"
    );
}

#[test]
fn a_selector_that_leaves_no_gateway_is_told_with_the_name_of_the_pool() {
    let mut segment = Segment::new(Shape { services: 3, pools: RACK, ..Shape::default() });
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    segment.wait_for_owner(Family::V4, 3);
    eventually("it is told of the Service and of the pool", || {
        let problems = segment.problems(1);
        let told = |parts: &[&str]| problems.iter().any(|it| parts.iter().all(|part| it.contains(part)));
        let service = [
            "Service shop/web-1",
            "AnnounceFailed",
            "10.5.100.1: it is announced by no gateway",
            "AddressPool rack",
        ];
        let pool = ["AddressPool rack", "InvalidValue", "spec.announce.nodeSelector", "it matches no Node"];
        if told(&service) && told(&pool) { Ok(()) } else { Err(problems.join("\n")) }
    });
    assert_eq!(segment.holders(Family::V4, 1), [0_u8; 0]);
    segment.set_labels(&[(1, "rack: r1")]);
    segment.wait_for_holder(1, 1);
    eventually("it is told no more", || {
        let problems = segment.problems(2);
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    });
}

#[test]
fn a_pool_names_the_interfaces_where_its_addresses_are() {
    let mut segment = Segment::new(Shape { services: 3, pools: INTERFACES, ..Shape::default() });
    let second = segment.add_bridge();
    segment.numbers().into_iter().for_each(|number| segment.start(number));
    segment.wait_until_all_eligible();
    for (service, interfaces) in [(1, &["eth0"][..]), (2, &["eth1"]), (3, &["eth0", "eth1"])] {
        eventually(&format!("service {service} is on {interfaces:?}"), || {
            let views: Vec<Value> =
                segment.numbers().into_iter().map(|number| address(&segment, number, service)).collect();
            let announced = views.iter().find(|it| it["state"] == "announced");
            if announced.is_some_and(|it| it["interfaces"] == serde_json::json!(interfaces)) {
                Ok(())
            } else {
                Err(format!("{views:?}"))
            }
        });
    }
    for service in [2, 3] {
        eventually(&format!("the client of the second bridge reaches service {service}"), || {
            second.client.run(|| answering(service_address(Family::V4, service)))
        });
    }
}
