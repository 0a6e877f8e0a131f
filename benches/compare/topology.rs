//! Three hosts on one machine: client, gateway and server. Independent of what is measured.

use std::net::{IpAddr, Ipv4Addr};

use sheave_test_support::host::Host;

/// Address of the server, which the client reaches through the gateway.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

/// `10.66.0.0/16`, the server's as a whole: as many endpoints.
pub(crate) fn endpoint(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x0A42_0000 + u32::from(number))
}

/// Address of a frontend in `198.18.0.0/15`, which is local to the gateway as a whole (RFC 2544 reserves the block for
/// benchmarks).
pub(crate) fn frontend(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0xC612_0000 + number % (1 << 17))
}

/// Address of a client in `10.64.0.0/15`, which is local to the client host as a whole.
pub(crate) fn client(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0A40_0000 + number % (1 << 17))
}

/// Main address of the client.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const GATEWAY_TO_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const GATEWAY_TO_SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);

/// The same on every host: limits, so that none of the subjects meets the kernel's small defaults, and a congestion control
/// that leaves the pace to the receivers. It is the one that the kernel lets every namespace choose; what is inherited may
/// be one that paces by timers (bbr), which over links without loss or delay halves every rate and doubles its cost.
const SYSCTLS: [(&str, &str); 4] = [
    ("ipv4/tcp_congestion_control", "reno"),
    ("core/somaxconn", "65535"),
    ("ipv4/tcp_max_syn_backlog", "65535"),
    // Without an offset for each pair of addresses: behind rules that translate, the server sees a port again that it
    // remembers from the routed path, and takes a timestamp with another offset for an old duplicate (RFC 7323, 5.2).
    ("ipv4/tcp_timestamps", "2"),
];

/// Local ports that no load exhausts.
const PLENTIFUL_PORTS: [(&str, &str); 2] =
    [("ipv4/ip_local_port_range", "10000 65000"), ("ipv4/tcp_tw_reuse", "1")];

/// Which local ports the gateway has towards each endpoint. The other hosts stand for many, and have plenty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LocalPorts {
    /// Like the other hosts.
    #[default]
    Plentiful,
    /// Default of a namespace: 28,232 ports, each of them for a minute in TIME_WAIT where the gateway closed first.
    Default,
    /// Default ports, where a port in TIME_WAIT can be reused after a second (`tcp_tw_reuse`).
    Reused,
}

impl LocalPorts {
    fn sysctls(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Plentiful => &PLENTIFUL_PORTS,
            Self::Default => &[],
            Self::Reused => &PLENTIFUL_PORTS[1..],
        }
    }
}

/// Network: client 10.1.0.2 - 10.1.0.1 gateway 10.2.0.1 - 10.2.0.2 server.
pub(crate) struct Topology {
    /// Generates the load.
    pub(crate) client: Host,
    /// Routes, and runs the proxies.
    pub(crate) gateway: Host,
    /// Answers.
    pub(crate) server: Host,
}

impl Topology {
    /// Builds the hosts and gives the gateway every address of `virtual_addresses`.
    pub(crate) fn build(virtual_addresses: &[Ipv4Addr], ports: LocalPorts) -> Self {
        let [client, gateway, server] = ["client", "gateway", "server"].map(Host::new);
        let plenty = LocalPorts::Plentiful;
        for (host, ports) in [(&client, plenty), (&gateway, ports), (&server, plenty)] {
            SYSCTLS.iter().chain(ports.sysctls()).for_each(|(key, value)| host.sysctl(key, value));
        }
        gateway.sysctl("ipv4/ip_forward", "1");
        connect(&gateway, "to-client", GATEWAY_TO_CLIENT, &client, CLIENT);
        connect(&gateway, "to-server", GATEWAY_TO_SERVER, &server, SERVER);
        gateway.own(virtual_addresses.iter().copied().map(IpAddr::from));
        client.ip(&["route add local 10.64.0.0/15 dev lo".to_owned()]);
        server.ip(&["route add local 10.66.0.0/16 dev lo".to_owned()]);
        gateway.ip(&[
            "route add local 198.18.0.0/15 dev lo".to_owned(),
            format!("route add 10.64.0.0/15 via {CLIENT}"),
            format!("route add 10.66.0.0/16 via {SERVER}"),
        ]);
        Self { client, gateway, server }
    }
}

/// Creates a veth pair from the gateway to `end`, which uses it as its default route.
fn connect(gateway: &Host, device: &str, near: Ipv4Addr, end: &Host, far: Ipv4Addr) {
    gateway.ip(&[
        format!("link add {device} type veth peer name uplink netns {}", end.namespace_path()),
        format!("address add {near}/24 dev {device}"),
        format!("link set {device} up"),
    ]);
    end.ip(&[
        format!("address add {far}/24 dev uplink"),
        "link set uplink up".to_owned(),
        format!("route add default via {near}"),
    ]);
    gateway.wait_for_carrier(device);
}
