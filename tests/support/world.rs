//! The test network: a client, a gateway and backends, joined by point-to-point links of both families.
//!
//! ```text
//! client ── 10.1.0.0/24, fd01::/64 ── gateway ──┬── 10.2.0.0/24, fd02:0:0:0::/64 ── backend 0
//!                                               └── 10.2.1.0/24, fd02:0:0:1::/64 ── backend 1 ...
//! ```
//! Everyone's default route is the gateway, which does not forward: what arrives came through the program under test.
//! Backends are inside the cluster (their networks are pod CIDRs), the client is outside.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host::{Host, wait_for_address};

/// Addresses that the client host has per family, so that one host can be several clients.
pub const CLIENTS: u16 = 8;
/// Addresses per family that the gateway may serve.
pub const VIPS: u16 = 4;

/// The address family in which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl Family {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The client's addresses, counted from 0.
    pub fn client(self, index: u16) -> IpAddr {
        self.pick([10, 1, 0, 2 + low(index)], [0xfd01, 0, 0, 0, 0, 0, 0, 2 + index])
    }

    /// The gateway's address on the client's link.
    pub fn gateway(self) -> IpAddr {
        self.pick([10, 1, 0, 1], [0xfd01, 0, 0, 0, 0, 0, 0, 1])
    }

    /// A backend's address.
    pub fn backend(self, index: u16) -> IpAddr {
        self.backend_address(index, 0)
    }

    /// One of a backend's addresses; number 0 is [`Family::backend`].
    pub fn backend_address(self, index: u16, number: u16) -> IpAddr {
        self.pick([10, 2, low(index), 2 + low(number)], [0xfd02, 0, 0, index, 0, 0, 0, 2 + number])
    }

    /// The gateway's address on a backend's link: what that backend sees as its peer.
    pub fn gateway_towards(self, index: u16) -> IpAddr {
        self.pick([10, 2, low(index), 1], [0xfd02, 0, 0, index, 0, 0, 0, 1])
    }

    /// An address that the gateway serves.
    pub fn vip(self, index: u16) -> IpAddr {
        self.pick([203, 0, 113, 10 + low(index)], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10 + index])
    }

    /// An address that swallows whatever is sent there: no answer, no error.
    pub fn black_hole(self) -> IpAddr {
        self.pick([10, 66, 0, 1], [0xfd66, 0, 0, 0, 0, 0, 0, 1])
    }

    /// The networks that count as inside the cluster.
    pub fn pod_cidr(self) -> &'static str {
        match self {
            Self::V4 => "10.2.0.0/16",
            Self::V6 => "fd02::/32",
        }
    }

    /// The length of a prefix that holds one address.
    pub fn host_prefix(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    fn link_prefix(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }

    fn pick(self, v4: [u8; 4], v6: [u16; 8]) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from(v4).into(),
            Self::V6 => Ipv6Addr::from(v6).into(),
        }
    }
}

fn low(index: u16) -> u8 {
    u8::try_from(index).expect("test networks are small")
}

/// The hosts and their links.
pub struct World {
    /// Where clients run.
    pub client: Host,
    /// Where the gateway runs.
    pub gateway: Host,
    /// Where endpoints run.
    pub backends: Vec<Host>,
    /// How many addresses each backend has per family.
    addresses: u16,
}

impl World {
    /// A network with so many backends, in which the gateway has all served addresses.
    pub fn new(backends: u16) -> Self {
        let world = Self::without_vips(backends);
        world.add_vips();
        world
    }

    /// As [`World::new`]; each backend has so many addresses per family ([`Family::backend_address`]).
    pub fn with_addresses(backends: u16, addresses: u16) -> Self {
        let world = Self::sized(backends, addresses);
        world.add_vips();
        world
    }

    /// A network in which the served addresses are routed to the gateway, but nobody has them yet.
    pub fn without_vips(backends: u16) -> Self {
        Self::sized(backends, 1)
    }

    fn sized(backends: u16, addresses: u16) -> Self {
        let (client, gateway) = (Host::new("client"), Host::new("gateway"));
        let backends: Vec<Host> = (0..backends).map(|index| Host::new(&format!("backend-{index}"))).collect();
        let clients = |family: Family| (0..CLIENTS).map(|index| family.client(index)).collect();
        link(&gateway, "client", Family::gateway, &client, clients);
        for (index, backend) in (0..).zip(&backends) {
            link_backend(&gateway, backend, index, addresses);
        }
        if !backends.is_empty() {
            // Backend 0 has no such address and does not forward: it drops the packet and says nothing.
            gateway.ip(&Family::BOTH
                .map(|f| format!("route add {}/{} via {}", f.black_hole(), f.host_prefix(), f.backend(0))));
        }
        Self { client, gateway, backends, addresses }
    }

    /// A backend's host.
    pub fn backend(&self, index: usize) -> &Host {
        self.backends.get(index).expect("the world has that backend")
    }

    /// Takes down a backend's end of its link. What is sent there vanishes: the gateway's end has lost its carrier, and
    /// nobody says so to who sends.
    pub fn cut(&self, index: u16) {
        self.backend(usize::from(index)).ip(&["link set eth0 down".to_owned()]);
    }

    /// Takes the link up again.
    pub fn mend(&self, index: u16) {
        let there = |family: Family| backend_addresses(family, index, self.addresses);
        set_up_far_end(self.backend(usize::from(index)), there, |family| family.gateway_towards(index));
    }

    /// Sets how long packets on a backend's link may be, at both ends.
    pub fn set_mtu(&self, index: u16, mtu: u32) {
        self.backend(usize::from(index)).ip(&[format!("link set eth0 mtu {mtu}")]);
        self.gateway.ip(&[format!("link set backend-{index} mtu {mtu}")]);
    }

    /// Makes the link anew: the interfaces have the names and addresses of before, and are others.
    pub fn replace(&self, index: u16) {
        self.gateway.ip(&[format!("link del backend-{index}")]);
        link_backend(&self.gateway, self.backend(usize::from(index)), index, self.addresses);
    }

    /// Gives the gateway the served addresses.
    pub fn add_vips(&self) {
        self.gateway.own(Family::BOTH.into_iter().flat_map(|family| (0..VIPS).map(move |n| family.vip(n))));
    }
}

fn link_backend(gateway: &Host, backend: &Host, index: u16, addresses: u16) {
    let here = |family: Family| family.gateway_towards(index);
    let there = |family: Family| backend_addresses(family, index, addresses);
    link(gateway, &format!("backend-{index}"), here, backend, there);
}

/// Joins two hosts: `name` is the interface on the near one, `eth0` the one on the far side, whose default route it is.
///
/// Link-local addresses are given by hand, so that they are there at once: the kernel asks for neighbours from them when
/// a packet does not come from an address of the host (`ndisc_solicit` in net/ipv6/ndisc.c).
fn link(
    near: &Host,
    name: &str,
    near_ip: impl Fn(Family) -> IpAddr + Sync,
    far: &Host,
    far_ips: impl Fn(Family) -> Vec<IpAddr> + Sync,
) {
    let peer = far.namespace_path();
    near.ip(&[
        format!("link add {name} type veth peer name eth0 netns {peer}"),
        format!("link set {name} addrgenmode none up"),
        format!("addr add fe80::1/64 dev {name} nodad"),
    ]);
    near.ip(&Family::BOTH.map(|f| address(near_ip(f), name)));
    set_up_far_end(far, far_ips, &near_ip);
    near.run(|| Family::BOTH.iter().for_each(|&f| wait_for_address(near_ip(f))));
}

/// Whatever of it is there already, as after the interface was down, which takes away routes and IPv6 addresses.
fn set_up_far_end(
    far: &Host,
    far_ips: impl Fn(Family) -> Vec<IpAddr> + Sync,
    near_ip: impl Fn(Family) -> IpAddr,
) {
    far.ip(&[
        "link set eth0 addrgenmode none up".to_owned(),
        "addr replace fe80::2/64 dev eth0 nodad".to_owned(),
    ]);
    let addresses = Family::BOTH.iter().flat_map(|&f| far_ips(f)).map(|ip| address(ip, "eth0"));
    let routes = Family::BOTH.iter().map(|&f| format!("route replace default via {}", near_ip(f)));
    far.ip(&addresses.chain(routes).collect::<Vec<_>>());
    far.run(|| Family::BOTH.iter().flat_map(|&f| far_ips(f)).for_each(wait_for_address));
}

fn backend_addresses(family: Family, index: u16, count: u16) -> Vec<IpAddr> {
    (0..count).map(|number| family.backend_address(index, number)).collect()
}

/// Duplicate address detection would keep an IPv6 address unusable for a second.
fn address(ip: IpAddr, interface: &str) -> String {
    let nodad = if ip.is_ipv6() { " nodad" } else { "" };
    format!("addr replace {ip}/{} dev {interface}{nodad}", Family::of(ip).link_prefix())
}
