//! Listeners of a gateway's machine for all addresses, as sshd and the kubelet are: clients reach them at the machine's own address, and
//! not at announced ones.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::fabric::{Fabric, FabricShape, routed_address};
use crate::planned::new_clients;
use crate::segment::{Segment, Shape, gateway_address, on_segment, service_address};
use crate::support::host::Host;
use crate::support::patience::eventually;
use crate::support::world::Family;
use crate::support::{tcp, udp};

const PORT: u16 = 2222;

/// Whether the gateway may refuse other ports. In a user namespace nobody may, which is fine for trying, but not where changes are judged.
fn may_refuse(view: &Value) -> bool {
    let warned = view["warnings"].to_string().contains("answer at announced addresses");
    assert!(!warned || std::env::var_os("CI").is_none(), "it needs root outside of user namespaces: {view}");
    !warned
}

fn daemon(host: &Host) -> (tcp::Server, udp::Server) {
    let everywhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT);
    (tcp::Server::who_am_i(host, everywhere, "daemon"), udp::Server::who_am_i(host, everywhere, "daemon"))
}

/// What a client meets there, over TCP and UDP.
fn ask(client: &Host, from: IpAddr, to: IpAddr) -> [io::Result<String>; 2] {
    let to = SocketAddr::new(to, PORT);
    let name = |answer: io::Result<tcp::Answer>| answer.map(|answer| answer.name);
    [name(client.run(|| tcp::ask(to))), name(udp::Client::new(client, from, to).ask_briefly())]
}

fn expect_answered(client: &Host, from: IpAddr, to: IpAddr) {
    for answer in ask(client, from, to) {
        assert_eq!(answer.unwrap_or_else(|error| panic!("{to}: {error}")), "daemon", "{to}");
    }
}

fn wait_until_refused(client: &Host, from: IpAddr, to: IpAddr) {
    eventually(&format!("{to} is refused"), || {
        let answers = ask(client, from, to);
        let refused = |answer: &io::Result<String>| {
            answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        if answers.iter().all(refused) { Ok(()) } else { Err(format!("{answers:?}")) }
    });
}

#[test]
fn other_listeners_of_a_gateway_are_reached_at_its_own_address_alone_also_after_an_upgrade() {
    let mut segment = Segment::running(Shape { gateways: 1, ..Shape::default() });
    if !may_refuse(&segment.view(1)) {
        return;
    }
    let _daemon = daemon(segment.host(1));
    let expect_told_apart = |segment: &Segment| {
        for family in Family::BOTH {
            let (client, from) = (&segment.client, on_segment(family, 0, 2));
            wait_until_refused(client, from, service_address(family, 1));
            expect_answered(client, from, gateway_address(family, 1));
            segment.owner(family, 1).expect("the Service is served");
        }
    };
    expect_told_apart(&segment);
    assert_eq!(segment.view(1)["warnings"], serde_json::json!([]));
    let (load, lost) = new_clients(&segment, 1);
    load.wait_for(50);
    segment.upgrade(1);
    load.wait_for(50);
    expect_told_apart(&segment);
    load.wait_for(50);
    load.expect_no_failure();
    assert_eq!(lost.load(Ordering::Relaxed), 0);
}

#[test]
fn an_address_that_the_administrator_has_put_on_the_machine_is_answered_by_all_that_listens_there() {
    let mut segment = Segment::new(Shape { gateways: 1, services: 2, ..Shape::default() });
    let _daemon = daemon(segment.host(1));
    segment.host(1).ip(&[format!("addr add {}/32 dev lo", service_address(Family::V4, 1))]);
    segment.start(1);
    segment.wait_until_all_eligible();
    segment.wait_for_owner(Family::V4, 2);
    if !may_refuse(&segment.view(1)) {
        return;
    }
    let from = on_segment(Family::V4, 0, 2);
    wait_until_refused(&segment.client, from, service_address(Family::V4, 2));
    let to = SocketAddr::new(service_address(Family::V4, 1), PORT);
    assert_eq!(segment.client.run(|| tcp::ask(to)).expect("it answers").name, "daemon");
}

#[test]
fn without_the_privilege_other_listeners_answer_and_the_gateway_reports_why() {
    let mut segment = Segment::new(Shape { gateways: 1, ..Shape::default() });
    let _daemon = daemon(segment.host(1));
    segment.start_without(1, &["bpf", "sys_admin"]);
    segment.wait_until_all_eligible();
    let to = SocketAddr::new(service_address(Family::V4, 1), PORT);
    segment.wait_for_owner(Family::V4, 1);
    assert_eq!(segment.client.run(|| tcp::ask(to)).expect("it answers").name, "daemon");
    eventually("it is a warning", || {
        let warnings = segment.view(1)["warnings"].to_string();
        let told = warnings.contains("answer at announced addresses") && warnings.contains("CAP_BPF");
        if told { Ok(()) } else { Err(warnings) }
    });
    assert_eq!(segment.log(1).matches("for frontends alone").count(), 1, "{}", segment.log(1));
}

#[test]
fn addresses_announced_by_bgp_are_for_frontends_alone() {
    let fabric = Fabric::running(FabricShape { gateways: 1, ..FabricShape::default() });
    if !may_refuse(&fabric.view(1, "/api/gateways").expect("it answers")) {
        return;
    }
    let _daemon = daemon(fabric.host(1));
    for (family, from, own) in [(Family::V4, "10.7.0.2", "10.6.1.1"), (Family::V6, "fd07::2", "fd06::1:1")] {
        let [from, own]: [IpAddr; 2] = [from, own].map(|ip| ip.parse().expect("an address"));
        wait_until_refused(&fabric.client, from, routed_address(family, 1));
        expect_answered(&fabric.client, from, own);
        fabric.answering(family, 1).expect("the Service is served");
    }
}
