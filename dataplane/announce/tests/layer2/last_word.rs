//! Answers for an address whose owner has died while its kernel still has the address.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sheave_announce::{Announced, ConflictAnswer, Layer2, Layer2Event, Layer2Options};

use crate::network::{Gateway, Network, V4, V6, ask, both, cached, finds, learns, mac, process, shown};
use crate::support::host::Host;
use crate::support::patience::{eventually, let_pass};

/// Where clients connect to. Nobody listens there on the dead machine.
const PORT: u16 = 4000;
/// When others take over, after a kill.
const TAKEOVER: Duration = Duration::from_millis(350);

/// Outcome of a connection from a client without a neighbour entry.
fn connect_anew(client: &Host, ip: IpAddr) -> Result<(), ErrorKind> {
    client.ip(&[format!("neigh flush to {ip}")]);
    client.run(|| {
        let outcome = TcpStream::connect_timeout(&SocketAddr::new(ip, PORT), Duration::from_millis(500));
        outcome.map(drop).map_err(|error| error.kind())
    })
}

/// Whether the kernel of a host is kept from answering.
fn is_suppressed(host: &Host) -> bool {
    host.finish("nft", &["list", "tables"]).expect_success().contains("sheave-announce")
}

/// Waits until the kernel of a host is kept from answering, or is not.
fn becomes_suppressed(host: &Host, wanted: bool) {
    eventually(&format!("suppressed: {wanted}"), || {
        let shown = host.finish("nft", &["list", "ruleset"]).expect_success();
        let tables = ["table arp sheave-announce", "table ip6 sheave-announce"];
        let done = tables.iter().all(|table| shown.contains(table) == wanted);
        if done { Ok(()) } else { Err(shown) }
    });
}

/// How many of the connections that begin while the dead machine has the address are refused, and how many there were.
fn refused_after(signal: Signal, ip: IpAddr) -> (usize, usize) {
    let network = Network::new(3);
    // The switch passes a question on to the port first that it got last.
    let [client, survivor, former] = network.machines.as_slice() else { unreachable!() };
    let any = if ip.is_ipv4() { "0.0.0.0" } else { "::" }.parse::<IpAddr>().unwrap();
    let listener = survivor.run(|| TcpListener::bind((any, PORT)).unwrap());
    listener.set_nonblocking(true).unwrap();
    let gateway = Gateway::start(survivor, Layer2Options::default());
    let owner = process(former, &[V4, V6]);
    finds(client, ip, &mac(former, "eth0"));
    // It begins some milliseconds after the announcement.
    becomes_suppressed(former, true);
    owner.signal(signal);
    let killed = Instant::now();
    let_pass(TAKEOVER);
    gateway.announce(ip);
    let (mut refused, mut all) = (0, 0);
    while killed.elapsed() < Duration::from_secs(4) {
        match connect_anew(client, ip) {
            Ok(()) => {}
            Err(ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset) => refused += 1,
            Err(error) => panic!("{ip}: {error}"),
        }
        // Its queue is short.
        while listener.accept().is_ok() {}
        all += 1;
        let_pass(Duration::from_millis(20));
    }
    assert_eq!(gateway.events(), [] as [&str; 0]);
    println!("{ip}: {refused} of {all} refused after {signal}");
    (refused, all)
}

#[test]
fn nobody_is_refused_by_the_kernel_of_a_killed_owner() {
    for ip in both() {
        let (refused, all) = refused_after(Signal::SIGKILL, ip);
        assert!(all >= 20 && refused * 20 <= all, "{ip}: {refused} of {all}");
    }
}

#[test]
fn nobody_is_refused_by_the_kernel_of_a_stopped_owner() {
    for ip in both() {
        let (refused, all) = refused_after(Signal::SIGSTOP, ip);
        assert!(all >= 20 && refused * 20 <= all, "{ip}: {refused} of {all}");
    }
}

#[test]
fn a_question_to_the_owner_alone_is_answered_by_it() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        gateway.announce(ip);
        let_pass(Duration::from_millis(600));
        let mac = mac(host, "eth0");
        // Reached again only when who has that MAC address answers.
        client.ip(&[format!("neigh replace {ip} lladdr {mac} dev eth0 nud probe")]);
        eventually("the address is reachable", || {
            let shown = client.finish("ip", &["neigh", "show", &ip.to_string()]).expect_success();
            if shown.contains("REACHABLE") { Ok(()) } else { Err(shown) }
        });
        assert_eq!(cached(client, ip), mac);
    }
}

#[test]
fn a_probe_is_not_answered_by_the_kernel_of_a_killed_owner() {
    let network = Network::new(3);
    let [client, survivor, former] = network.machines.as_slice() else { unreachable!() };
    let mut owner = process(former, &[V4, V6]);
    both().into_iter().for_each(|ip| finds(client, ip, &mac(former, "eth0")));
    becomes_suppressed(former, true);
    owner.signal(Signal::SIGKILL);
    owner.wait();
    let gateway = Gateway::start(survivor, Layer2Options::default());
    for ip in both() {
        assert!(matches!(gateway.try_announce(ip, true), Ok(Announced::AfterProbe(_))));
    }
    let_pass(Duration::from_secs(1));
    let kept = both().iter().all(|&ip| !shown(former, ip).is_empty());
    assert!(kept, "the machine that died has the addresses for two seconds at least");
    // Without a conflict in between.
    let events = gateway.events();
    assert!(events.len() == 2 && events.iter().all(|event| event.starts_with("Announced")), "{events:?}");
    both().into_iter().for_each(|ip| finds(client, ip, &mac(survivor, "eth0")));
}

#[test]
fn who_probes_is_told_by_the_process_that_has_the_address() {
    let network = Network::new(2);
    let [host, other] = network.machines.as_slice() else { unreachable!() };
    let [gateway, rival] = [host, other].map(|host| Gateway::start(host, Layer2Options::default()));
    for ip in both() {
        gateway.announce(ip);
        assert!(matches!(rival.try_announce(ip, true), Ok(Announced::AfterProbe(_))));
        let answer = rival.event("the conflict", |event| match event {
            Layer2Event::Conflict { mac, answer, .. } => Some((mac.map(|mac| mac.to_string()), *answer)),
            _ => None,
        });
        assert_eq!(answer, (Some(mac(host, "eth0")), ConflictAnswer::NotAnnounced));
    }
    becomes_suppressed(host, true);
}

#[test]
fn the_kernel_answers_between_a_process_and_its_successor() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    process(host, &["--once", "--lasting", V4, V6]).finish().expect_success();
    both().into_iter().for_each(|ip| finds(client, ip, &mac(host, "eth0")));
    assert!(!is_suppressed(host));
}

#[test]
fn a_process_that_ends_late_leaves_its_successors_tables_alone() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let ended = Gateway::start(host, Layer2Options::default());
    both().into_iter().for_each(|ip| ended.announce(ip));
    becomes_suppressed(host, true);
    let successor = Gateway::adopting(host, Layer2Options::default());
    both().into_iter().for_each(|ip| successor.announce(ip));
    successor.announce("192.0.2.101".parse().unwrap());
    let shown = || host.finish("nft", &["list", "ruleset"]).expect_success();
    let silent = || shown().contains(r#""eth0" . 192.0.2.101"#);
    eventually("the successor keeps the kernel silent", || if silent() { Ok(()) } else { Err(shown()) });
    ended.run(Layer2::detach);
    assert!(silent(), "{}", shown());
}

#[test]
fn what_a_killed_process_left_of_its_tables_is_removed_by_the_next_and_made_anew_if_somebody_removes_it() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    let mut owner = process(host, &[V4, V6]);
    both().into_iter().for_each(|ip| finds(client, ip, &mac(host, "eth0")));
    becomes_suppressed(host, true);
    owner.signal(Signal::SIGKILL);
    owner.wait();
    assert!(is_suppressed(host));
    let gateway = Gateway::start(host, Layer2Options::default());
    gateway.run(|_| ());
    becomes_suppressed(host, false);
    gateway.announce(both()[0]);
    host.finish("nft", &["flush", "ruleset"]).expect_success();
    gateway.announce("192.0.2.101".parse().unwrap());
    eventually("the kernel does not answer", || {
        let shown = host.finish("nft", &["list", "ruleset"]).expect_success();
        let all = shown.contains(r#""eth0" . 192.0.2.100"#) && shown.contains(r#""eth0" . 192.0.2.101"#);
        if all { Ok(()) } else { Err(shown) }
    });
    gateway.run(Layer2::withdraw_all);
    becomes_suppressed(host, false);
    assert_eq!(gateway.events(), [] as [&str; 0]);
}

#[test]
fn nothing_is_answered_while_it_is_not_sure_whose_the_address_is() {
    let network = Network::new(2);
    let [host, client] = network.machines.as_slice() else { unreachable!() };
    let gateway = Gateway::start(host, Layer2Options { repeat: None, ..Layer2Options::default() });
    for ip in both() {
        gateway.announce(ip);
    }
    let_pass(Duration::from_millis(500));
    gateway.run(|layer2| layer2.trust_until(Instant::now()));
    for ip in both() {
        ask(client, ip);
    }
    let_pass(Duration::from_millis(200));
    both().into_iter().for_each(|ip| assert_eq!(cached(client, ip), ""));
    // The question still waits.
    gateway.run(|layer2| layer2.trust_until(Instant::now() + Duration::from_hours(1)));
    both().into_iter().for_each(|ip| learns(client, ip, &mac(host, "eth0")));
}
