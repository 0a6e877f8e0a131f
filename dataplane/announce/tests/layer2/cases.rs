//! What a gateway's neighbours, and its own kernel, make of announced addresses.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use sheave_announce::{AnnounceError, Announced, Layer2Event, Layer2Options};

use crate::network::{Gateway, Network, V4, V6, ask, both, finds, gone, learns, mac, process, shown};
use crate::support::patience::{eventually, let_pass};

#[test]
fn neighbours_learn_that_an_address_has_moved() {
    let network = Network::new(3);
    let [one, other, client] = network.machines.as_slice() else { unreachable!() };
    let gateways = [one, other].map(|host| Gateway::start(host, Layer2Options::default()));
    for ip in both() {
        gateways[0].announce(ip);
        finds(client, ip, &mac(one, "eth0"));
        gateways[0].withdraw(ip);
        gone(one, ip);
        gateways[1].announce(ip);
        learns(client, ip, &mac(other, "eth0"));
    }
    assert_eq!(gateways[0].events(), [] as [&str; 0]);
    assert_eq!(gateways[1].events(), [] as [&str; 0]);
}

/// The thread that renews has taken the address, or is about to.
#[test]
fn an_address_that_is_withdrawn_while_it_is_renewed_does_not_come_back() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let gateway = Gateway::start(host, Layer2Options::default());
    for round in 0..300 {
        gateway.run(move |layer2| {
            for ip in both() {
                drop(layer2.announce(ip, &[], false).unwrap());
            }
            layer2.refresh();
            std::thread::park_timeout(Duration::from_micros(round));
            layer2.withdraw_all();
        });
        // The gateway does not wait for a kernel that is busy.
        both().into_iter().for_each(|ip| gone(host, ip));
        if round % 50 == 0 {
            let_pass(Duration::from_millis(20));
            both().into_iter().for_each(|ip| assert_eq!(shown(host, ip), "", "round {round}"));
        }
    }
}

#[test]
fn an_address_is_marked_short_lived_and_deprecated() {
    let network = Network::new(1);
    let gateway = Gateway::start(&network.machines[0], Layer2Options::default());
    for ip in both() {
        gateway.announce(ip);
        let line = shown(&network.machines[0], ip);
        for part in
            [" deprecated ", " scope global ", "noprefixroute", "preferred_lft 0sec", "valid_lft 3sec"]
        {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert_eq!(line.contains("eth0:sheave"), ip.is_ipv4(), "{line}");
        assert_eq!(line.contains("nodad"), ip.is_ipv6(), "{line}");
    }
}

#[test]
fn the_host_does_not_use_an_announced_address_as_its_own() {
    let network = Network::new(2);
    let host = &network.machines[0];
    let gateway = Gateway::start(host, Layer2Options::default());
    both().into_iter().for_each(|ip| gateway.announce(ip));
    // No source named, no next hop: the first address of the interface.
    host.ip(&["route add 198.51.100.0/24 dev eth0".into(), "route add 2001:db8:1::/64 dev eth0".into()]);
    let source = |to: &str| {
        let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        host.run(|| {
            let socket = UdpSocket::bind(any).unwrap();
            socket.connect((to, 9)).unwrap();
            socket.local_addr().unwrap().ip().to_string()
        })
    };
    let own = || ["198.51.100.1", "192.0.2.2", "2001:db8:1::1", "2001:db8::2"].map(&source);
    assert_eq!(own(), ["192.0.2.1", "192.0.2.1", "2001:db8::1", "2001:db8::1"]);
    // Replaced before the gateway looks: the subnet has not changed, but the host's own address now comes after the announced one.
    gateway.run(|_| {
        for change in ["del", "add"] {
            let line = ["addr", change, "192.0.2.1/24", "dev", "eth0"];
            assert!(std::process::Command::new("ip").args(line).status().unwrap().success());
        }
    });
    eventually("the host's own address comes first", || {
        host.ip(&["route replace 198.51.100.0/24 dev eth0".into()]);
        match source("198.51.100.1") {
            ip if ip == "192.0.2.1" => Ok(()),
            ip => Err(ip),
        }
    });
    eventually("the announced one is there", || {
        if shown(host, both()[0]).is_empty() { Err("not yet") } else { Ok(()) }
    });
}

#[test]
fn an_address_of_somebody_else_is_neither_taken_nor_removed() {
    let network = Network::new(1);
    let host = &network.machines[0];
    host.ip(&[format!("addr add {V4}/32 dev lo"), format!("addr add {V6}/128 dev lo")]);
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        let error = gateway.try_announce(ip, false).unwrap_err();
        assert!(
            matches!(&error, AnnounceError::NotOurs { interface, .. } if &**interface == "lo"),
            "{error}"
        );
        gateway.withdraw(ip);
        assert!(shown(host, ip).contains(" lo "));
    }
    let own: IpAddr = "192.0.2.1".parse().unwrap();
    let error = gateway.try_announce(own, false).unwrap_err().to_string();
    assert_eq!(
        error,
        "192.0.2.1 is already an address of interface eth0; remove it there, or take it out of the pool"
    );
}

#[test]
fn without_a_subnet_the_error_names_those_that_there_are() {
    let network = Network::new(1);
    let gateway = Gateway::start(&network.machines[0], Layer2Options::default());
    let error = gateway.try_announce("203.0.113.1".parse().unwrap(), false).unwrap_err().to_string();
    assert_eq!(
        error,
        "no interface that is up has a subnet that contains 203.0.113.1 (subnets: 192.0.2.0/24 on eth0)"
    );
    let names: Vec<Arc<str>> = vec!["eth7".into()];
    let ip = both()[0];
    let error = gateway.run(move |layer2| layer2.announce(ip, &names, false)).unwrap_err().to_string();
    assert_eq!(
        error,
        "no interface that is up has a subnet that contains 192.0.2.100 (subnets: 192.0.2.0/24 on eth0); \
         there is no interface eth7"
    );
}

#[test]
fn a_start_removes_what_is_left_of_ours_and_nothing_else() {
    let network = Network::new(1);
    let host = &network.machines[0];
    host.ip(&[
        "addr add 192.0.2.200/32 dev eth0 label eth0:x".into(),
        "addr add 192.0.2.201/32 dev eth0 valid_lft 600 preferred_lft 0".into(),
        "addr add 2001:db8::200/128 dev eth0 nodad".into(),
    ]);
    let others = ["192.0.2.200", "192.0.2.201", "2001:db8::200"].map(|ip| ip.parse::<IpAddr>().unwrap());
    process(host, &["--once", V4, V6]).finish().expect_success();
    both().into_iter().for_each(|ip| assert!(!shown(host, ip).is_empty()));
    let gateway = Gateway::start(host, Layer2Options::default());
    gateway.run(|_| ());
    both().into_iter().for_each(|ip| assert_eq!(shown(host, ip), ""));
    others.into_iter().for_each(|ip| assert!(!shown(host, ip).is_empty(), "{ip}"));
}

#[test]
fn a_successor_keeps_what_it_announces_and_releases_the_rest() {
    let network = Network::new(1);
    let host = &network.machines[0];
    process(host, &["--once", V4, V6]).finish().expect_success();
    let gateway = Gateway::adopting(host, Layer2Options::default());
    let adopted: Vec<IpAddr> = gateway.run(|layer2| layer2.adopted().collect());
    assert_eq!(adopted, both());
    // Beyond the lifetime that the predecessor gave them.
    let_pass(Duration::from_secs(5));
    both().into_iter().for_each(|ip| assert!(!shown(host, ip).is_empty()));
    gateway.announce(both()[0]);
    gateway.run(sheave_announce::Layer2::release_adopted);
    assert!(!shown(host, both()[0]).is_empty());
    assert_eq!(shown(host, both()[1]), "");
}

/// The kernel may take long for what it was asked, and do it when the process before is gone.
#[test]
fn a_successor_takes_off_what_is_put_on_late() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let lifetime = Duration::from_mins(1);
    let gateway = Gateway::adopting(host, Layer2Options { lifetime, ..Layer2Options::default() });
    gateway.announce(both()[1]);
    host.ip(&[format!("addr add {V4}/32 dev eth0 noprefixroute valid_lft 55 preferred_lft 0")]);
    gone(host, both()[0]);
    assert!(!shown(host, both()[1]).is_empty());
}

#[test]
fn a_successor_claims_without_a_probe() {
    let network = Network::new(1);
    process(&network.machines[0], &["--once", V4]).finish().expect_success();
    let gateway = Gateway::adopting(&network.machines[0], Layer2Options::default());
    let announced = gateway.try_announce(both()[0], true).unwrap();
    assert_eq!(announced, Announced::Now(vec!["eth0".into()]));
}

#[test]
fn the_address_of_a_killed_process_goes_by_itself() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let mut process = process(host, &[V4, V6]);
    eventually("both are there", || match both().iter().all(|&ip| !shown(host, ip).is_empty()) {
        true => Ok(()),
        false => Err(process.stderr()),
    });
    process.signal(Signal::SIGKILL);
    process.wait();
    let killed = Instant::now();
    both().into_iter().for_each(|ip| gone(host, ip));
    println!("gone after {:?}", killed.elapsed());
}

#[test]
fn a_process_that_was_stopped_does_not_take_its_addresses_back() {
    let network = Network::new(3);
    let [former, host, client] = network.machines.as_slice() else { unreachable!() };
    let process = process(former, &[V4, V6]);
    both().into_iter().for_each(|ip| finds(client, ip, &mac(former, "eth0")));
    process.signal(Signal::SIGSTOP);
    // Its kernel still has the addresses.
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        gateway.announce(ip);
        learns(client, ip, &mac(host, "eth0"));
    }
    // Even those who ask anew, and are answered by both.
    for ip in both() {
        client.ip(&[format!("neigh flush to {ip}")]);
        ask(client, ip);
        learns(client, ip, &mac(host, "eth0"));
    }
    both().into_iter().for_each(|ip| gone(former, ip));
    process.signal(Signal::SIGCONT);
    eventually("it says that they have lapsed", || match process.stdout() {
        text if text.contains("Lapsed") => Ok(()),
        text => Err(text),
    });
    both().into_iter().for_each(|ip| assert_eq!(shown(former, ip), ""));
    assert_eq!(gateway.events(), [] as [&str; 0]);
}

#[test]
fn an_address_that_somebody_removes_is_put_on_again() {
    let network = Network::new(1);
    let host = &network.machines[0];
    let gateway = Gateway::start(host, Layer2Options::default());
    for ip in both() {
        gateway.announce(ip);
        host.ip(&[format!("addr del {ip} dev eth0")]);
        let lost = |event: &Layer2Event| match event {
            Layer2Event::AddressLost { ip, interface } if &**interface == "eth0" => Some(*ip),
            _ => None,
        };
        assert_eq!(gateway.event("the loss", lost), ip);
        assert!(!shown(host, ip).is_empty());
    }
    // Taking one off and putting it on is no loss.
    for ip in both() {
        gateway.run(move |layer2| {
            layer2.withdraw(ip);
            layer2.announce(ip, &[], false).map(drop).unwrap();
        });
    }
    gateway.run(|_| ());
    assert_eq!(gateway.events(), [] as [&str; 0]);
}
