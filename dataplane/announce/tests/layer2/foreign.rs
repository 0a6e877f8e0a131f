//! Addresses that an administrator has put on the machine: they are never taken over and never removed.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use sheave_announce::{AnnounceError, Layer2Event, Layer2Options};

use crate::network::{Gateway, Network, V4, both, shown};
use crate::support::host::Host;
use crate::support::patience::{eventually, let_pass};

/// Longer than a lifetime, and the time until the kernel looks at it.
const LIFETIME_OVER: Duration = Duration::from_millis(4200);

fn not_ours(event: &Layer2Event) -> Option<IpAddr> {
    match event {
        Layer2Event::Failed(AnnounceError::NotOurs { ip, .. }) => Some(*ip),
        _ => None,
    }
}

/// The line of `ip addr` about the address on an interface.
fn on(host: &Host, interface: &str) -> String {
    let all = host.finish("ip", &["-o", "addr", "show", "dev", interface]).expect_success();
    all.lines().find(|line| line.contains(&format!(" {V4}/32 "))).unwrap_or_default().to_owned()
}

fn stays(host: &Host, interface: &str) {
    let_pass(LIFETIME_OVER);
    let line = on(host, interface);
    assert!(line.contains("valid_lft forever") && !line.contains("deprecated"), "{line:?}");
}

fn interfaces(gateway: &Gateway, ip: IpAddr) -> Vec<String> {
    gateway.run(move |layer2| layer2.interfaces(ip).iter().map(ToString::to_string).collect())
}

#[test]
fn one_on_an_interface_that_comes_into_the_subnet_stays_and_the_others_announce() {
    let network = Network::new(1);
    let (host, ip) = (&network.machines[0], both()[0]);
    network.switch.plug("q", host, "eth1");
    let gateway = Gateway::start(host, Layer2Options::default());
    gateway.announce(ip);
    host.ip(&[format!("addr add {V4}/32 dev eth1"), "addr add 192.0.2.11/24 dev eth1".into()]);
    stays(host, "eth1");
    assert_eq!(interfaces(&gateway, ip), ["eth0"]);
    host.ip(&[format!("addr del {V4}/32 dev eth1")]);
    // Whoever asks again learns that it can be there now.
    eventually("it is on both", || {
        gateway.run(move |layer2| drop(layer2.announce(ip, &[], false)));
        let on = interfaces(&gateway, ip);
        if on == ["eth0", "eth1"] { Ok(()) } else { Err(format!("{on:?}")) }
    });
    assert!(on(host, "eth1").contains("deprecated"));
}

#[test]
fn one_that_came_while_the_subnet_was_away_stays_and_is_reported() {
    let network = Network::new(1);
    let (host, ip) = (&network.machines[0], both()[0]);
    let gateway = Gateway::start(host, Layer2Options::default());
    gateway.announce(ip);
    host.ip(&["addr del 192.0.2.1/24 dev eth0".into()]);
    eventually("it is off", || if shown(host, ip).is_empty() { Ok(()) } else { Err(shown(host, ip)) });
    host.ip(&[format!("addr add {V4}/32 dev eth0"), "addr add 192.0.2.1/24 dev eth0".into()]);
    assert_eq!(gateway.event("that it is not ours", not_ours), ip);
    assert_eq!(interfaces(&gateway, ip), [] as [&str; 0]);
    stays(host, "eth0");
    // Not even when it is given up.
    gateway.withdraw(ip);
    assert!(!on(host, "eth0").is_empty());
}

#[test]
fn one_that_replaces_an_announced_one_stays_and_is_reported() {
    let network = Network::new(1);
    let (host, ip) = (&network.machines[0], both()[0]);
    let gateway = Gateway::start(host, Layer2Options::default());
    gateway.announce(ip);
    // Before the gateway looks.
    gateway.run(|_| {
        for change in ["del", "add"] {
            let line = ["addr", change, "192.0.2.100/32", "dev", "eth0"];
            assert!(Command::new("ip").args(line).status().unwrap().success());
        }
    });
    assert_eq!(gateway.event("that it is not ours", not_ours), ip);
    assert_eq!(interfaces(&gateway, ip), [] as [&str; 0]);
    stays(host, "eth0");
    gateway.withdraw(ip);
    assert!(!on(host, "eth0").is_empty());
}
