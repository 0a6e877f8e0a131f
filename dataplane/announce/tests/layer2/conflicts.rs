//! Other machines that use an announced address.

use std::net::IpAddr;

use sheave_announce::{Announced, ConflictAnswer, Layer2Event, Layer2Options, OnConflict};

use crate::network::{Gateway, Network, both, cached, finds, gone, learns, mac, shown};
use crate::support::host::Host;
use crate::support::patience::{eventually, let_pass};

/// Gives a host the address for good, without a look at whether another has it, and has it say so.
fn usurp(host: &Host, ip: IpAddr) {
    let prefix = if ip.is_ipv4() { 24 } else { 64 };
    host.sysctl("ipv4/conf/eth0/arp_notify", "1");
    host.sysctl("ipv6/conf/eth0/ndisc_notify", "1");
    let nodad = if ip.is_ipv4() { "" } else { "nodad" };
    host.ip(&[format!("addr add {ip}/{prefix} dev eth0 {nodad}")]);
    claim(host);
}

/// Its kernel announces its addresses when an interface changes its own.
fn claim(host: &Host) {
    let own = mac(host, "eth0");
    host.ip(&["link set eth0 address 02:00:00:00:00:aa".into(), format!("link set eth0 address {own}")]);
}

fn conflict(event: &Layer2Event) -> Option<(IpAddr, String, String, ConflictAnswer)> {
    match event {
        Layer2Event::Conflict { ip, mac, interface, answer } => {
            let mac = mac.map(|mac| mac.to_string()).unwrap_or_default();
            Some((*ip, mac, interface.to_string(), *answer))
        }
        _ => None,
    }
}

/// Past the time in which a former owner may still answer.
fn settle() {
    let_pass(std::time::Duration::from_millis(4100));
}

#[test]
fn a_probe_finds_who_has_the_address() {
    let network = Network::new(2);
    let [host, rival] = network.machines.as_slice() else { unreachable!() };
    both().into_iter().for_each(|ip| usurp(rival, ip));
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        let announced = gateway.try_announce(ip, true).unwrap();
        assert_eq!(announced, Announced::AfterProbe(vec!["eth0".into()]));
        let expected = (ip, mac(rival, "eth0"), "eth0".to_owned(), ConflictAnswer::NotAnnounced);
        assert_eq!(gateway.event("the conflict", conflict), expected);
        assert_eq!(shown(host, ip), "");
    }
}

#[test]
fn a_probe_that_nobody_answers_ends_in_an_announcement() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        let announced = gateway.try_announce(ip, true).unwrap();
        assert_eq!(announced, Announced::AfterProbe(vec!["eth0".into()]));
        let announced = |event: &Layer2Event| matches!(event, Layer2Event::Announced { .. }).then_some(());
        gateway.event("the announcement", announced);
        finds(client, ip, &mac(host, "eth0"));
    }
}

#[test]
fn an_address_is_defended() {
    let network = Network::new(3);
    let [host, rival, client] = network.machines.as_slice() else { unreachable!() };
    let gateway = Gateway::start(host, Layer2Options::default());
    both().into_iter().for_each(|ip| gateway.announce(ip));
    settle();
    for ip in both() {
        finds(client, ip, &mac(host, "eth0"));
        usurp(rival, ip);
        let (of, _, interface, answer) = gateway.event("the conflict", conflict);
        assert_eq!((of, interface.as_str(), answer), (ip, "eth0", ConflictAnswer::Defended));
        assert!(!shown(host, ip).is_empty());
        learns(client, ip, &mac(host, "eth0"));
    }
    // It is still the same conflict.
    claim(rival);
    eventually("the defence", || match cached(client, both()[0]) {
        found if found == mac(host, "eth0") => Ok(()),
        found => Err(found),
    });
    assert_eq!(gateway.events(), [] as [&str; 0]);
}

#[test]
fn an_address_is_withdrawn_and_returns_when_the_other_is_gone() {
    let network = Network::new(3);
    let [host, rival, client] = network.machines.as_slice() else { unreachable!() };
    let options = Layer2Options { on_conflict: OnConflict::Withdraw, ..Layer2Options::default() };
    let gateway = Gateway::start(host, options);
    both().into_iter().for_each(|ip| gateway.announce(ip));
    settle();
    for ip in both() {
        usurp(rival, ip);
        let (of, _, _, answer) = gateway.event("the conflict", conflict);
        assert_eq!((of, answer), (ip, ConflictAnswer::Withdrawn));
        gone(host, ip);
        finds(client, ip, &mac(rival, "eth0"));
    }
    for ip in both() {
        let prefix = if ip.is_ipv4() { 24 } else { 64 };
        rival.ip(&[format!("addr del {ip}/{prefix} dev eth0")]);
    }
    let_pass(std::time::Duration::from_secs(28));
    let mut over = both().map(|_| {
        gateway.event("the end of the conflict", |event| match event {
            Layer2Event::ConflictOver { ip } => Some(*ip),
            _ => None,
        })
    });
    over.sort();
    assert_eq!(over, both());
    both().into_iter().for_each(|ip| finds(client, ip, &mac(host, "eth0")));
}
