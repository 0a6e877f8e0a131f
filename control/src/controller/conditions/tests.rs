//! Conditions of each state of a Service, with their exact texts.

use sheave_model::{FrontendAddr, Protocol};

use super::*;
use crate::api::names::ANNOUNCED;
use crate::controller::desired_status::Announcement;
use crate::controller::port_errors::PortFailure;
use crate::controller::tests::objects::{at, desired_status, ingress, problem};
use crate::projection::service_health::Fault;
use crate::projection::{Ingress, PortStatus};

fn said(desired_status: &DesiredStatus) -> Vec<(&'static str, bool, &'static str, String)> {
    conditions_for(desired_status)
        .into_iter()
        .map(|said| (said.kind, said.holds, said.reason, said.message))
        .collect()
}

fn failure(ip: &str, reason: &'static str) -> PortFailure {
    PortFailure { ip: ip.parse().unwrap(), port: 80, protocol: "TCP", reason, everywhere: false }
}

#[test]
fn a_served_service_is_allocated_and_programmed() {
    let mut desired_status = desired_status();
    desired_status.ingress.push(ingress("2001:db8::7", None));
    assert_eq!(
        said(&desired_status),
        [
            (ALLOCATED, true, "Allocated", "It has 203.0.113.7, 2001:db8::7.".into()),
            (PROGRAMMED, true, "Programmed", "Gateways serve it on 203.0.113.7, 2001:db8::7.".into()),
            (READY, true, "EndpointsReady", "Every port has an endpoint that is ready.".into()),
        ]
    );
}

#[test]
fn whose_the_addresses_are_is_said_where_it_matters() {
    let told = |families: &str| {
        let node_families = Some(NodeFamilies::named(families));
        said(&DesiredStatus { node_families, ..desired_status() }).pop().unwrap()
    };
    let message = "Its IPv4 and IPv6 addresses are those of gateway nodes, and change with them.";
    assert_eq!(told("DualStack"), (FROM_GATEWAY_NODES, true, "DualStack", message.into()));
    let message = "None of its addresses is taken for that of a gateway node.";
    assert_eq!(told(""), (FROM_GATEWAY_NODES, false, "AddressPools", message.into()));
}

#[test]
fn how_many_gateways_there_are_changes_nothing() {
    let mut desired_status = desired_status();
    let two = said(&desired_status);
    desired_status.gateways = 7;
    assert_eq!(said(&desired_status), two);
}

#[test]
fn without_an_address_the_problem_is_the_message() {
    let empty =
        problem(reason::NO_ADDRESS, "AddressPool \"lan\" has no free address; the Service waits", None);
    let desired_status = DesiredStatus { problems: vec![empty], gateways: 1, ..DesiredStatus::default() };
    let message = "AddressPool \"lan\" has no free address; the Service waits.";
    assert_eq!(
        said(&desired_status),
        [
            (ALLOCATED, false, "NoAddress", message.into()),
            (PROGRAMMED, false, "NoAddress", "It has no address yet.".into()),
            (READY, false, "NoAddress", "It is not served: see sheave.dev/Programmed.".into()),
        ]
    );
}

#[test]
fn an_address_that_is_missing_beside_another_is_told() {
    let mut desired_status = desired_status();
    desired_status.problems = vec![problem(reason::NO_ADDRESS, "no pool has IPv6 addresses", None)];
    let said = said(&desired_status);
    assert_eq!(
        said[0],
        (ALLOCATED, false, "NoAddress", "No pool has IPv6 addresses. It has 203.0.113.7.".into())
    );
    assert_eq!((said[1].0, said[1].1), (PROGRAMMED, true));
}

#[test]
fn nothing_known_yet_is_no_address() {
    let said = said(&DesiredStatus::default());
    assert_eq!(said[0], (ALLOCATED, false, "NoAddress", "It has no address yet.".into()));
    assert_eq!(said[1], (PROGRAMMED, false, "NoAddress", "It has no address yet.".into()));
}

#[test]
fn what_cannot_be_served_says_why_in_both() {
    let mut refused = problem(reason::NOT_SERVED, "the Service has no ports; it is not served", None);
    refused.field = "spec.ports".into();
    let desired_status = DesiredStatus { problems: vec![refused], gateways: 1, ..DesiredStatus::default() };
    let message = "spec.ports: the Service has no ports; it is not served.";
    for (kind, holds, reason, text) in said(&desired_status) {
        let message = if kind == READY { "It is not served: see sheave.dev/Programmed." } else { message };
        assert_eq!((holds, reason, text.as_str()), (false, "NotServed", message));
    }
}

#[test]
fn no_gateway_comes_before_ports() {
    let mut desired_status = desired_status();
    desired_status.gateways = 0;
    desired_status.failed_ports = vec![failure("203.0.113.7", reason::BIND_FAILED)];
    let programmed = said(&desired_status).remove(1);
    assert_eq!(
        programmed,
        (PROGRAMMED, false, "NoGateway", "No gateway is ready to serve 203.0.113.7.".into())
    );
}

#[test]
fn gateways_that_do_not_answer_are_not_taken_to_serve() {
    let desired_status = DesiredStatus { gateways: 0, silent: true, ..desired_status() };
    let message = "No gateway that is ready answers the controller, so none is known to serve 203.0.113.7.";
    assert_eq!(said(&desired_status).remove(1), (PROGRAMMED, false, "NoGateway", message.into()));
}

fn addr(ip: &str, protocol: Protocol) -> FrontendAddr {
    FrontendAddr { ip: ip.parse().unwrap(), port: 80, protocol }
}

#[test]
fn ready_means_that_a_new_client_from_outside_gets_an_answer() {
    let ready = |faults: &[Fault]| {
        let faults = faults.iter().map(|it| (addr("203.0.113.7", Protocol::Tcp), it.clone())).collect();
        said(&DesiredStatus { faults, ..desired_status() }).remove(2)
    };
    let elsewhere = ready(&[Fault::NoLocalEndpoint]);
    let message = "externalTrafficPolicy is Local and no gateway runs on a node with an endpoint, so packets are \
                   dropped: port 80/TCP on 203.0.113.7.";
    assert_eq!(elsewhere, (READY, false, "NoLocalEndpoint", message.into()));
    assert_eq!(ready(&[Fault::AdmitsNobody]).2, "NobodyAdmitted");
    assert_eq!(ready(&[Fault::NoLocalEndpoint, Fault::NoEndpoint(0)]).2, "NoEndpoints");
    let why = Box::new(Fault::NoEndpoint(0));
    let names = ready(&[Fault::RefusedNames { refused: 1, routes: 2, first: "TLSRoute shop/a".into(), why }]);
    let message = "Routes of some server names do not serve, so their connections are refused: port 80/TCP on 203.0.113.7.";
    assert_eq!(names, (READY, true, "NamesRefused", message.into()));
    let leaving = ready(&[Fault::OnlyTerminating]);
    let message =
        "Every endpoint that is left terminates, and serves until then: port 80/TCP on 203.0.113.7.";
    assert_eq!(leaving, (READY, true, "EndpointsTerminating", message.into()));
    assert_eq!(ready(&[Fault::OnlyTerminating, Fault::NoEndpoint(0)]).2, "NoEndpoints");
    assert_eq!(ready(&[]).2, "EndpointsReady");
}

#[test]
fn what_has_no_endpoint_is_served_and_not_ready() {
    let mut desired_status = desired_status();
    desired_status.faults = vec![
        (addr("203.0.113.7", Protocol::Udp), Fault::NoEndpoint(0)),
        (addr("203.0.113.7", Protocol::Tcp), Fault::NoEndpoint(2)),
        (addr("2001:db8::7", Protocol::Tcp), Fault::NoneChosen),
    ];
    let mut names =
        problem(reason::INVALID_VALUE, "slices of host names are not served; the slice is left out", None);
    names.object.kind = "EndpointSlice";
    names.object.name = "web-x".into();
    names.field = "addressType".into();
    let own = problem(
        reason::ENDPOINT_LOOP,
        "endpoint 203.0.113.7:80 is a frontend of this gateway; it is left out",
        Some(80),
    );
    desired_status.problems = vec![names, own, problem(reason::INVALID_VALUE, "not about this", None)];
    let said = said(&desired_status);
    assert!(said[1].1, "gateways forward all the same: {:?}", said[1]);
    let message = "No endpoint is ready, so connections are refused: port 80/TCP on 203.0.113.7, 2001:db8::7; \
                   port 80/UDP on 203.0.113.7. Endpoint 203.0.113.7:80 is a frontend of this gateway; it is left out. \
                   EndpointSlice shop/web-x: addressType: slices of host names are not served; the slice is left out.";
    assert_eq!(said[2], (READY, false, "NoEndpoints", message.into()));
}

#[test]
fn each_port_in_trouble_is_named_with_where_and_why() {
    let mut desired_status = desired_status();
    desired_status.ingress[0] = ingress("203.0.113.7", Some(reason::ADDRESS_IN_USE));
    desired_status.ingress.push(ingress("203.0.113.8", None));
    desired_status.failed_ports = vec![failure("203.0.113.8", reason::BIND_FAILED)];
    desired_status.problems = vec![
        problem(reason::ADDRESS_IN_USE, "203.0.113.7:80/TCP belongs to Service shop/old", Some(80)),
        problem(reason::INVALID_VALUE, "not about this", Some(80)),
    ];
    let (_, holds, reason, message) = said(&desired_status).remove(1);
    assert_eq!((holds, reason), (false, "PortsInTrouble"));
    assert_eq!(
        message,
        "Not served: port 80/TCP on 203.0.113.7 (AddressInUse); port 80/TCP on 203.0.113.8 (BindFailed). \
         203.0.113.7:80/TCP belongs to Service shop/old."
    );
}

#[test]
fn the_text_does_not_depend_on_the_order_of_facts() {
    let mut desired_status = desired_status();
    desired_status.ingress.push(ingress("203.0.113.8", None));
    desired_status.failed_ports = vec![
        failure("203.0.113.7", reason::BIND_FAILED),
        failure("203.0.113.7", reason::ADDRESS_IN_USE),
        failure("203.0.113.8", reason::BIND_FAILED),
    ];
    desired_status.problems = vec![
        problem(reason::BIND_FAILED, "b", Some(80)),
        problem(reason::BIND_FAILED, "a", Some(80)),
        problem(reason::NO_ADDRESS, "d", None),
        problem(reason::NO_ADDRESS, "c", None),
    ];
    let one = said(&desired_status);
    desired_status.ingress.reverse();
    desired_status.failed_ports.reverse();
    desired_status.problems.reverse();
    assert_eq!(said(&desired_status), one);
}

#[test]
fn many_ports_are_counted() {
    let mut desired_status = desired_status();
    desired_status.ingress[0].ports = (1..=20)
        .map(|port| PortStatus { port, protocol: "SCTP", error: Some(reason::PROTOCOL_NOT_SUPPORTED) })
        .collect();
    let message = said(&desired_status).remove(1).3;
    assert!(
        message.starts_with("Not served: port 1/SCTP on 203.0.113.7 (ProtocolNotSupported);"),
        "{message}"
    );
    assert!(
        message.ends_with("port 8/SCTP on 203.0.113.7 (ProtocolNotSupported); and 12 more."),
        "{message}"
    );
}

#[test]
fn the_time_moves_with_the_status_only() {
    let allocated = conditions_for(&desired_status()).remove(0);
    let first = allocated.clone().stamped(&[], None, at(10));
    assert_eq!(first.last_transition_time.0, at(10));
    let mut reworded = allocated.clone();
    reworded.message = "It has another.".into();
    assert!(!reworded.stands_in(std::slice::from_ref(&first), None));
    let second = reworded.stamped(std::slice::from_ref(&first), None, at(20));
    assert_eq!(second.last_transition_time.0, at(10));
    let lost = conditions_for(&DesiredStatus::default()).remove(0);
    assert_eq!(lost.stamped(&[second], None, at(30)).last_transition_time.0, at(30));
}

#[test]
fn times_are_whole_seconds() {
    let allocated = conditions_for(&desired_status()).remove(0);
    let now = at(5) + jiff::SignedDuration::from_millis(987);
    assert_eq!(allocated.stamped(&[], None, now).last_transition_time.0, at(5));
}

#[test]
fn a_generation_is_followed_where_there_is_one() {
    let allocated = conditions_for(&desired_status()).remove(0);
    let without = [allocated.clone().stamped(&[], None, at(0))];
    assert_eq!(without[0].observed_generation, None);
    assert!(allocated.stands_in(&without, None));
    assert!(!allocated.stands_in(&without, Some(3)));
    let with = [allocated.clone().stamped(&without, Some(3), at(0))];
    assert_eq!(with[0].observed_generation, Some(3));
    assert!(allocated.stands_in(&with, Some(3)));
}

#[test]
fn a_condition_that_is_there_twice_does_not_stand() {
    let allocated = conditions_for(&desired_status()).remove(0);
    let condition = allocated.clone().stamped(&[], None, at(0));
    assert!(!allocated.stands_in(&[condition.clone(), condition], None));
}

#[test]
fn messages_are_short_whatever_the_service_asks_for() {
    let mut desired_status = desired_status();
    desired_status.ingress = (0..17_000_u32)
        .map(|index| {
            let ip = std::net::Ipv4Addr::from(0x0a00_0000 + index).to_string();
            let ports = (1..=3).map(|port| PortStatus { port, protocol: "TCP", error: None }).collect();
            Ingress { ports, ..ingress(&ip, None) }
        })
        .collect();
    let served = said(&desired_status);
    assert!(served[0].3.ends_with("10.0.0.6, 10.0.0.7 and 16992 more."), "{}", served[0].3);
    for entry in &mut desired_status.ingress {
        entry.ports.iter_mut().for_each(|port| port.error = Some(reason::ADDRESS_IN_USE));
    }
    let long = "x".repeat(900);
    desired_status.problems = (1..=3)
        .flat_map(|port| (0..100).map(move |number| (port, number)))
        .map(|(port, number)| problem(reason::ADDRESS_IN_USE, &format!("{number} {long}"), Some(port)))
        .collect();
    desired_status
        .problems
        .extend((0..100).map(|number| problem(reason::NO_ADDRESS, &format!("{number} {long}"), None)));
    for (kind, _, _, message) in said(&desired_status).into_iter().take(2) {
        assert!(message.len() <= 1024 && message.ends_with("..."), "{kind}: {} bytes", message.len());
    }
}

#[test]
fn who_announces_the_addresses_is_named() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let told = |announcement| said(&DesiredStatus { announcement, ..desired_status() }).split_off(3);
    let nodes = [(ip("203.0.113.10"), "gw-1".to_owned()), (ip("2001:db8::1"), "gw-2".to_owned())];
    let message = "Gateways announce 203.0.113.10 on gw-1, 2001:db8::1 on gw-2.";
    assert_eq!(told(Announcement::ByOne(nodes.into())), [(ANNOUNCED, true, "Announced", message.into())]);
    let message = "No gateway announces 203.0.113.10. See `sheave gateways` on a gateway node.";
    assert_eq!(
        told(Announcement::ByNone([ip("203.0.113.10")].into())),
        [(ANNOUNCED, false, "NotAnnounced", message.into())]
    );
    let nodes = ["gw-1", "gw-2", "gw-3", "gw-4"].map(str::to_owned);
    let message = "More than one gateway announces the same address: 203.0.113.10 by gw-1 and gw-2 and gw-3 and 1 more. See \
                   `sheave gateways` on a gateway node.";
    assert_eq!(
        told(Announcement::BySeveral([(ip("203.0.113.10"), nodes.into())].into())),
        [(ANNOUNCED, false, "AnnouncedTwice", message.into())]
    );
    assert_eq!(told(Announcement::NotNeeded), []);
    assert_eq!(told(Announcement::Unknown), []);
}
