//! The networks of these tests.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::host::Host;
use crate::support::patience::patience;
use crate::support::world::Family;
use sheave_trace::link::{Link, links};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn addr(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

/// Long enough for anything that happens at all.
pub(crate) fn soon() -> Duration {
    patience(5.0)
}

/// Connects two hosts by a link, whose addresses of both families end in these numbers.
pub(crate) fn connect(near: &Host, near_name: &str, far: &Host, far_name: &str, subnet: u8) {
    let peer = far.namespace_path();
    near.ip(&[format!("link add name {near_name} type veth peer name {far_name} netns {peer}")]);
    for (host, name, number) in [(near, near_name, 1), (far, far_name, 2)] {
        // Without duplicate address detection, which would keep the link-local address unusable for a second.
        host.ip(&[
            format!("link set dev {name} addrgenmode none up"),
            format!("addr add fe80::{number}/64 dev {name} nodad"),
        ]);
        host.ip(&Family::BOTH.map(|family| {
            let ip = on(family, subnet, number);
            if ip.is_ipv4() {
                format!("addr add {ip}/24 dev {name}")
            } else {
                format!("addr add {ip}/64 dev {name} nodad")
            }
        }));
    }
    near.wait_for_carrier(near_name);
}

/// The address with this number in a subnet.
pub(crate) fn on(family: Family, subnet: u8, number: u8) -> IpAddr {
    match family {
        Family::V4 => ip(&format!("10.9.{subnet}.{number}")),
        Family::V6 => ip(&format!("fd09:0:0:{subnet}::{number}")),
    }
}

/// A link of a host by name.
pub(crate) fn link_of(host: &Host, name: &str) -> Link {
    let all = host.run(links).unwrap();
    all.into_iter().find(|link| link.name == name).unwrap()
}
