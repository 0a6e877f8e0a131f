//! Interfaces: which of them announce an address, and what becomes of it when they come and go.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sheave_announce::{Announced, Layer2Event, Layer2Options};

use crate::network::{Gateway, Network, both, cached, finds, learns, mac, shown};
use crate::support::host::Host;
use crate::support::patience::let_pass;

fn lost(event: &Layer2Event) -> Option<(String, Vec<IpAddr>, Vec<IpAddr>)> {
    match event {
        Layer2Event::InterfaceLost { interface, addresses, stranded } => {
            Some((interface.to_string(), addresses.clone(), stranded.clone()))
        }
        _ => None,
    }
}

fn back(event: &Layer2Event) -> Option<String> {
    match event {
        Layer2Event::InterfaceBack { interface } => Some(interface.to_string()),
        _ => None,
    }
}

#[test]
fn addresses_return_with_the_carrier() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        gateway.announce(ip);
        finds(client, ip, &mac(host, "eth0"));
    }
    network.switch.ip(&["link set p0 down".into()]);
    assert_eq!(gateway.event("the loss", lost), ("eth0".into(), both().into(), both().into()));
    both().into_iter().for_each(|ip| assert_eq!(shown(host, ip), ""));
    // What is on an interface would have lapsed.
    let_pass(Duration::from_secs(4));
    network.switch.ip(&["link set p0 up".into()]);
    assert_eq!(gateway.event("the return", back), "eth0");
    for ip in both() {
        client.ip(&[format!("neigh flush to {ip}")]);
        finds(client, ip, &mac(host, "eth0"));
    }
}

/// The kernel takes all IPv6 addresses off an interface that is set down; the host's own has to return first.
#[test]
fn addresses_return_with_their_interface_and_its_subnets() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    let gateway = Gateway::start(host, Layer2Options::default());
    both().into_iter().for_each(|ip| gateway.announce(ip));
    host.ip(&["link set eth0 down".into()]);
    assert_eq!(gateway.event("the loss", lost), ("eth0".into(), both().into(), both().into()));
    host.ip(&["link set eth0 up".into()]);
    assert_eq!(gateway.event("the return", back), "eth0");
    finds(client, both()[0], &mac(host, "eth0"));
    assert_eq!(shown(host, both()[1]), "");
    host.ip(&["addr add 2001:db8::1/64 dev eth0 nodad".into()]);
    finds(client, both()[1], &mac(host, "eth0"));
}

#[test]
fn an_interface_that_vanishes_leaves_the_others_alone() {
    let network = Network::new(1);
    let host = &network.machines[0];
    network.switch.plug("q", host, "eth1");
    host.ip(&["addr add 198.51.100.1/24 dev eth1".into()]);
    let gateway = Gateway::start(host, Layer2Options::default());
    let there: IpAddr = "198.51.100.100".parse().unwrap();
    [both()[0], there].into_iter().for_each(|ip| gateway.announce(ip));
    host.ip(&["link del eth1".into()]);
    assert_eq!(gateway.event("the loss", lost), ("eth1".into(), vec![there], vec![there]));
    assert!(!shown(host, both()[0]).is_empty());
    network.switch.plug("q", host, "eth1");
    host.ip(&["addr add 198.51.100.2/24 dev eth1".into()]);
    assert_eq!(gateway.event("the return", back), "eth1");
    assert!(shown(host, there).contains(" eth1 "));
}

#[test]
fn several_interfaces_with_the_subnet_all_announce() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let elsewhere = Host::new("elsewhere");
    let peer = elsewhere.namespace_path();
    host.ip(&[
        format!("link add eth1 type veth peer name eth0 netns {peer}"),
        "link set eth1 up".into(),
        "addr add 192.0.2.11/24 dev eth1".into(),
    ]);
    elsewhere.ip(&["link set eth0 up".into(), "addr add 192.0.2.50/24 dev eth0".into()]);
    host.wait_for_carrier("eth1");
    let gateway = Gateway::start(host, Layer2Options::default());
    let ip = both()[0];
    let announced = gateway.try_announce(ip, false).unwrap();
    assert_eq!(announced, Announced::Now(vec!["eth0".into(), "eth1".into()]));
    finds(&elsewhere, ip, &mac(host, "eth1"));
    let only: Vec<Arc<str>> = vec!["eth1".into()];
    let announced = gateway.run(move |layer2| layer2.announce(ip, &only, false)).unwrap();
    assert_eq!(announced, Announced::Now(vec!["eth1".into()]));
    assert!(shown(host, ip).contains(" eth1 "));
    // Losing one strands nothing while the other is there.
    gateway.run(move |layer2| layer2.announce(ip, &[], false).map(drop)).unwrap();
    host.ip(&["link set eth1 down".into()]);
    assert_eq!(gateway.event("the loss", lost), ("eth1".into(), vec![ip], vec![]));
}

#[test]
fn two_interfaces_in_one_network_are_no_conflict() {
    let network = Network::new(1);
    let host = &network.machines[0];
    network.switch.plug("q", host, "eth1");
    host.ip(&["addr add 192.0.2.11/24 dev eth1".into(), "addr add 2001:db8::11/64 dev eth1 nodad".into()]);
    let gateway = Gateway::start(host, Layer2Options::default());
    both().into_iter().for_each(|ip| gateway.announce(ip));
    // The last announcement of the first seconds is made when the former owner is no longer expected to answer.
    let_pass(Duration::from_secs(6));
    assert_eq!(gateway.events(), [] as [&str; 0]);
}

#[test]
fn a_bridge_announces_and_its_ports_do_not() {
    let network = Network::new(1);
    let client = &network.machines[0];
    let host = Host::new("with a bridge");
    network.switch.plug("q", &host, "eth0");
    host.ip(&[
        "link add br0 type bridge".into(),
        "link set br0 up".into(),
        "link set eth0 master br0".into(),
        "addr add 192.0.2.21/24 dev br0".into(),
        "addr add 192.0.2.22/24 dev eth0".into(),
        "addr add 2001:db8::21/64 dev br0 nodad".into(),
    ]);
    let gateway = Gateway::start(&host, Layer2Options::default());
    for ip in both() {
        let announced = gateway.try_announce(ip, false).unwrap();
        assert_eq!(announced, Announced::Now(vec!["br0".into()]));
        finds(client, ip, &mac(&host, "br0"));
    }
}

#[test]
fn a_macvlan_announces_with_its_own_mac_address() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    host.ip(&[
        "addr flush dev eth0".into(),
        "link add m0 link eth0 type macvlan mode bridge".into(),
        "link set m0 up".into(),
        "addr add 192.0.2.31/24 dev m0".into(),
        "addr add 2001:db8::31/64 dev m0 nodad".into(),
    ]);
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        assert_eq!(gateway.try_announce(ip, false).unwrap(), Announced::Now(vec!["m0".into()]));
        finds(client, ip, &mac(host, "m0"));
    }
}

#[test]
fn a_new_mac_address_is_announced() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    let gateway = Gateway::start(host, Layer2Options::default());
    let ip = both()[0];
    gateway.announce(ip);
    finds(client, ip, &mac(host, "eth0"));
    // The announcements of the first seconds would show it as well.
    let_pass(Duration::from_secs(6));
    host.ip(&["link set eth0 address 02:00:00:00:00:99".into()]);
    learns(client, ip, "02:00:00:00:00:99");
    assert_eq!(cached(client, ip), "02:00:00:00:00:99");
}

#[test]
fn it_is_answered_for_whatever_the_kernel_may_not_answer() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    host.sysctl("ipv4/conf/eth0/arp_ignore", "8");
    let gateway = Gateway::start(host, Layer2Options::default());
    gateway.announce(both()[0]);
    finds(client, both()[0], &mac(host, "eth0"));
    assert_eq!(gateway.events(), [] as [&str; 0]);
}

#[test]
fn a_setting_that_keeps_clients_away_is_reported() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let gateway = Gateway::start(host, Layer2Options::default());
    let warning = |event: &Layer2Event| match event {
        Layer2Event::Setting(warning) => Some(warning.to_string()),
        _ => None,
    };
    network.switch.plug("q", host, "eth1");
    host.ip(&["addr add 198.51.100.1/24 dev eth1".into(), "route add default via 192.0.2.254".into()]);
    host.sysctl("ipv4/conf/all/rp_filter", "1");
    gateway.announce("198.51.100.100".parse().unwrap());
    assert_eq!(
        gateway.event("the warning", warning),
        "net.ipv4.conf.all.rp_filter is 1: packets of clients outside the subnet are dropped, \
         because the default route leaves by another interface; set it to 2"
    );
}
