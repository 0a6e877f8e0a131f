//! Test network: a client, a gateway and backends, connected by point-to-point links of both families.
//!
//! ```text
//! client ── 10.1.0.0/24, fd01::/64 ── gateway ──┬── 10.2.0.0/24, fd02:0:0:0::/64 ── backend 0
//!                                               └── 10.2.1.0/24, fd02:0:0:1::/64 ── backend 1 ...
//! ```
//! The default route of every host is the gateway, which does not forward, so that all traffic passes the program under
//! test. Backends are inside the cluster (their networks are Pod CIDRs), the client is outside.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host::Host;

/// Number of addresses per family of the client host, so that it can act as several clients.
pub const CLIENTS: u16 = 8;
/// Number of addresses per family that the gateway may serve.
pub const VIPS: u16 = 4;

/// Address family of a case.
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
    /// Both families.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Address of a client, by index.
    pub fn client(self, index: u16) -> IpAddr {
        self.pick([10, 1, 0, 2 + low(index)], [0xfd01, 0, 0, 0, 0, 0, 0, 2 + index])
    }

    /// Address of the gateway on the client's link.
    pub fn gateway(self) -> IpAddr {
        self.pick([10, 1, 0, 1], [0xfd01, 0, 0, 0, 0, 0, 0, 1])
    }

    /// Address of a backend.
    pub fn backend(self, index: u16) -> IpAddr {
        self.backend_address(index, 0)
    }

    /// Address of a backend by number; number 0 is [`Family::backend`].
    pub fn backend_address(self, index: u16, number: u16) -> IpAddr {
        self.pick([10, 2, low(index), 2 + low(number)], [0xfd02, 0, 0, index, 0, 0, 0, 2 + number])
    }

    /// Address of the gateway on a backend's link, which that backend sees as its peer.
    pub fn gateway_towards(self, index: u16) -> IpAddr {
        self.pick([10, 2, low(index), 1], [0xfd02, 0, 0, index, 0, 0, 0, 1])
    }

    /// Address that the gateway serves.
    pub fn vip(self, index: u16) -> IpAddr {
        self.pick([203, 0, 113, 10 + low(index)], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10 + index])
    }

    /// Address that drops all packets without an error.
    pub fn black_hole(self) -> IpAddr {
        self.pick([10, 66, 0, 1], [0xfd66, 0, 0, 0, 0, 0, 0, 1])
    }

    /// Networks inside the cluster.
    pub fn pod_cidr(self) -> &'static str {
        match self {
            Self::V4 => "10.2.0.0/16",
            Self::V6 => "fd02::/32",
        }
    }

    /// Length of a prefix for a single address.
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

/// Hosts with their links.
pub struct World {
    /// Host of clients.
    pub client: Host,
    /// Host of the gateway.
    pub gateway: Host,
    /// Hosts of endpoints.
    pub backends: Vec<Host>,
    /// Number of addresses per family of each backend.
    addresses: u16,
}

impl World {
    /// Network with this many backends, in which the gateway has all served addresses.
    pub fn new(backends: u16) -> Self {
        let world = Self::without_vips(backends);
        world.add_vips();
        world
    }

    /// Like [`World::new`], with this many addresses per family on each backend ([`Family::backend_address`]).
    pub fn with_addresses(backends: u16, addresses: u16) -> Self {
        let world = Self::sized(backends, addresses);
        world.add_vips();
        world
    }

    /// Network in which the served addresses are routed to the gateway, but not assigned yet.
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
            // Backend 0 does not have this address and does not forward, so it silently drops the packets.
            gateway.ip(&Family::BOTH
                .map(|f| format!("route add {}/{} via {}", f.black_hole(), f.host_prefix(), f.backend(0))));
        }
        Self { client, gateway, backends, addresses }
    }

    /// Host of a backend.
    pub fn backend(&self, index: usize) -> &Host {
        self.backends.get(index).expect("the world has that backend")
    }

    /// Takes down a backend's end of its link. Packets to it are lost silently, since the gateway's end has lost its
    /// carrier.
    pub fn cut(&self, index: u16) {
        self.backend(usize::from(index)).ip(&["link set eth0 down".to_owned()]);
    }

    /// Restores the link.
    pub fn mend(&self, index: u16) {
        let there = |family: Family| backend_addresses(family, index, self.addresses);
        set_up_far_end(self.backend(usize::from(index)), there, |family| family.gateway_towards(index));
    }

    /// Sets the MTU of a backend's link, at both ends.
    pub fn set_mtu(&self, index: u16, mtu: u32) {
        self.backend(usize::from(index)).ip(&[format!("link set eth0 mtu {mtu}")]);
        self.gateway.ip(&[format!("link set backend-{index} mtu {mtu}")]);
    }

    /// Recreates the link: the interfaces have the same names and addresses, but are new.
    pub fn replace(&self, index: u16) {
        self.gateway.ip(&[format!("link del backend-{index}")]);
        link_backend(&self.gateway, self.backend(usize::from(index)), index, self.addresses);
    }

    /// Assigns the served addresses to the gateway.
    pub fn add_vips(&self) {
        self.gateway.own(Family::BOTH.into_iter().flat_map(|family| (0..VIPS).map(move |n| family.vip(n))));
    }
}

fn link_backend(gateway: &Host, backend: &Host, index: u16, addresses: u16) {
    let here = |family: Family| family.gateway_towards(index);
    let there = |family: Family| backend_addresses(family, index, addresses);
    link(gateway, &format!("backend-{index}"), here, backend, there);
}

/// Connects two hosts: `name` is the interface of the near one, `eth0` that of the far one and its default route.
///
/// Link-local addresses are set explicitly, to be available at once: the kernel uses them in neighbor solicitations when
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
    near.wait_for_carrier(name);
}

/// Replaces what exists, since an interface that was down has lost its routes and IPv6 addresses.
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
}

fn backend_addresses(family: Family, index: u16, count: u16) -> Vec<IpAddr> {
    (0..count).map(|number| family.backend_address(index, number)).collect()
}

/// Line that adds an address without duplicate address detection, which would keep an IPv6 address unusable for a
/// second.
fn address(ip: IpAddr, interface: &str) -> String {
    let nodad = if ip.is_ipv6() { " nodad" } else { "" };
    format!("addr replace {ip}/{} dev {interface}{nodad}", Family::of(ip).link_prefix())
}
