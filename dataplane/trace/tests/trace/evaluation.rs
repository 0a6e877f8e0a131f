//! What rules do with a client's first packet, compared with what the kernel does with it: packets are sent, and counted before and behind the
//! rules. An answer other than "not known" must be the kernel's.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use sheave_model::Protocol;
use sheave_trace::packet_filter::{ChainVerdict, DroppedBy, FirstPacket, Way, base_chains, evaluate};
use sheave_trace::route::Interface;
use socket2::{Domain, Socket, Type};

use crate::network::{connect, ip, link_of, on, soon};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::{eventually, let_pass, patience};
use crate::support::world::Family;

for_both_families!(
    common_rules_are_decided_as_the_kernel_does,
    rules_made_at_random_are_never_decided_wrongly,
    packets_on_their_way_through_are_decided,
);

/// Ports of the frontend that are tried.
const PORTS: [(Protocol, u16); 6] = [
    (Protocol::Tcp, 22),
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 443),
    (Protocol::Tcp, 8080),
    (Protocol::Udp, 53),
    (Protocol::Udp, 80),
];

/// A gateway and a client, which know each other's hardware addresses: rules must not stop the question for them.
struct Network {
    family: Family,
    gateway: Host,
    client: Host,
}

impl Network {
    fn new(family: Family) -> Self {
        let [gateway, client] = ["gateway", "client"].map(Host::new);
        connect(&gateway, "client", &client, "eth0", 1);
        client.own([Self::far(family)]);
        for (host, name, peer, peer_name, number) in
            [(&gateway, "client", &client, "eth0", 2), (&client, "eth0", &gateway, "client", 1)]
        {
            let mac = link_of(peer, peer_name).mac.unwrap();
            host.ip(&[format!("neigh add {} lladdr {mac} dev {name} nud permanent", on(family, 1, number))]);
            host.sysctl("ipv4/conf/all/rp_filter", "0");
        }
        gateway.sysctl("ipv4/conf/client/rp_filter", "0");
        gateway.ip(&[format!("route add {} via {}", Self::far(family), on(family, 1, 2))]);
        Self { family, gateway, client }
    }

    /// Another address of the client.
    fn far(family: Family) -> IpAddr {
        ip(if family == Family::V4 { "198.51.100.7" } else { "2001:db8:51::7" })
    }

    fn frontend(&self) -> IpAddr {
        on(self.family, 1, 1)
    }

    /// All packets that are tried: client, protocol and port.
    fn packets(&self) -> Vec<(IpAddr, Protocol, u16)> {
        let clients = [on(self.family, 1, 2), Self::far(self.family)];
        clients
            .into_iter()
            .flat_map(|client| PORTS.map(|(protocol, port)| (client, protocol, port)))
            .collect()
    }

    /// Loads rules, and around them rules of tables with names of Sheave, which mark each packet at its arrival and count it at the end of
    /// its way, at this hook.
    fn load(&self, rules: &str, hook: &str) {
        let family = if self.family == Family::V4 { "ip" } else { "ip6" };
        let line = |(number, (client, protocol, port)): (usize, &(IpAddr, Protocol, u16))| {
            let protocol = protocol.to_string().to_lowercase();
            let mark = number + 1;
            let arrives =
                format!("{family} saddr {client} {protocol} dport {port} counter meta mark set {mark}\n");
            (arrives, format!("meta mark {mark} counter\n"))
        };
        let (arrive, leave): (String, String) = self.packets().iter().enumerate().map(line).unzip();
        let all = format!(
            "flush ruleset\n\
             table netdev sheave-first {{ chain c {{ type filter hook ingress device \"client\" priority -500\n{arrive}}}\n}}\n\
             table inet sheave-last {{ chain c {{ type filter hook {hook} priority 1000\n{leave}}}\n}}\n{}",
            rules.replace("IP", family)
        );
        self.gateway.finish("nft", &[all.as_str()]).expect_success();
    }

    /// Packets that each rule of a chain has counted.
    fn counted(&self, table: &str) -> Vec<u64> {
        let listed = self.gateway.finish("nft", &[format!("list chain {table} c")]);
        let count = |line: &str| line.split_once("counter packets ")?.1.split(' ').next()?.parse().ok();
        listed.expect_success().lines().filter_map(count).collect()
    }

    /// Sends each packet. Returns from which port, and whether it came to the end of its way.
    fn send(&self) -> Vec<(u16, bool)> {
        let frontend = self.frontend();
        let packets = self.packets();
        let sockets: Vec<Socket> = self.client.run(|| {
            let send = |(client, protocol, port): &(IpAddr, Protocol, u16)| {
                let (from, to) = (SocketAddr::new(*client, 0), SocketAddr::new(frontend, *port));
                if *protocol == Protocol::Udp {
                    let socket = UdpSocket::bind(from).unwrap();
                    socket.send_to(b"?", to).unwrap();
                    return socket.into();
                }
                let socket = Socket::new(Domain::for_address(from), Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket.bind(&from.into()).unwrap();
                // It is under way.
                socket.connect(&to.into()).unwrap_err();
                socket
            };
            packets.iter().map(send).collect()
        });
        eventually("all packets arrive", || match self.counted("netdev sheave-first") {
            counts if counts.iter().all(|count| *count > 0) => Ok(()),
            counts => Err(format!("{counts:?}")),
        });
        // What has arrived goes through all rules at once.
        let_pass(patience(0.01));
        let passed = self.counted("inet sheave-last").into_iter().map(|count| count > 0);
        let port = |socket: &Socket| socket.local_addr().unwrap().as_socket().unwrap().port();
        sockets.iter().map(port).zip(passed).collect()
    }

    /// The answer for a packet; `None`: it is not known.
    fn answer(&self, packet: &FirstPacket, way: Way) -> (Option<bool>, Vec<Option<ChainVerdict>>) {
        let verdicts = self.gateway.run(|| {
            let chains = base_chains(packet.frontend.ip(), soon()).unwrap();
            evaluate(&chains, packet, way, &[], soon())
        });
        let is = |wanted: fn(&ChainVerdict) -> bool| verdicts.iter().flatten().any(wanted);
        let answer = match () {
            () if is(|it| matches!(it, ChainVerdict::Drops(_))) => Some(false),
            () if is(|it| matches!(it, ChainVerdict::Unknown { .. })) => None,
            () => Some(true),
        };
        (answer, verdicts)
    }

    /// Compares the answers for all packets with what the kernel does. Returns how many are known.
    fn compare(&self, rules: &str, hook: &str, way: Way) -> usize {
        self.load(rules, hook);
        let link = link_of(&self.gateway, "client");
        let mut decided = 0;
        for ((client, protocol, port), (client_port, passed)) in self.packets().into_iter().zip(self.send()) {
            let packet = FirstPacket {
                protocol,
                client: Some(client),
                client_port: Some(client_port),
                frontend: SocketAddr::new(self.frontend(), port),
                interface: Some(Interface { index: link.index, name: link.name.clone() }),
            };
            let (answer, verdicts) = self.answer(&packet, way);
            let what = format!("{client} to {protocol} {port} with\n{rules}\n{verdicts:?}");
            assert!(
                answer.is_none_or(|answer| answer == passed),
                "the kernel: {passed}, {answer:?} for {what}"
            );
            decided += usize::from(answer.is_some());
            // Whoever knows less of the packet must not be wrong either.
            for less in [
                FirstPacket { client_port: None, ..packet.clone() },
                FirstPacket { client_port: None, interface: None, ..packet.clone() },
                FirstPacket { client: None, ..packet.clone() },
            ] {
                let (answer, verdicts) = self.answer(&less, way);
                let wrong = answer.is_some_and(|answer| answer != passed);
                assert!(!wrong, "the kernel: {passed}, {less:?}: {verdicts:?} for {what}");
            }
        }
        decided
    }
}

/// Sets of rules, of which all answers are known. `IP` stands for the family.
fn common(family: Family) -> Vec<String> {
    let (far, near, other) = match family {
        Family::V4 => ("198.51.100.0/24", "10.9.1.2", "192.0.2.1"),
        Family::V6 => ("2001:db8:51::/48", "fd09:0:0:1::2", "2001:db8::9"),
    };
    let kind = if family == Family::V4 { "ipv4_addr" } else { "ipv6_addr" };
    let table = |policy: &str, rules: &str| {
        format!(
            "table inet t {{ chain i {{ type filter hook input priority 0; policy {policy}\n{rules}\n}}\n}}"
        )
    };
    let with = |before: &str, rules: &str| format!("table inet t {{\n{before}\n}}\n{}", table("drop", rules));
    vec![
        table("accept", ""),
        table("drop", ""),
        table("drop", "tcp dport { 22, 80 } accept"),
        table("accept", "ct state established,related accept\niifname \"lo\" accept\ndrop"),
        table("accept", &format!("iifname \"client\" IP saddr {far} tcp dport 80 drop")),
        table("accept", "ct state invalid drop\nct state new tcp dport 80-443 counter log accept\nreject"),
        table("accept", "ct status dnat accept\nct direction reply accept\nudp dport != 53 counter drop"),
        table("drop", "ct state vmap { established : accept, related : accept, invalid : drop }\ntcp dport 22 accept"),
        table("drop", "meta nfproto ipv4 accept\nip6 nexthdr tcp accept"),
        table("drop", "meta l4proto { tcp, udp } th dport { 50-60, 70-90 } accept"),
        table("drop", "tcp flags & (fin|syn|rst|ack) == syn accept\ntcp flags syn / fin,syn accept"),
        table("accept", "meta pkttype { broadcast, multicast } drop\ntcp dport != 1-1023 drop\nmeta protocol arp drop"),
        table("accept", &format!("IP saddr . tcp dport {{ {near} . 80, {other} . 22 }} drop")),
        table("drop", &format!("IP saddr . th dport {{ {far} . 400-500, {near} . 53 }} accept")),
        table("drop", "iifname { \"client\", \"eth7\" } tcp dport 80 accept\niifname \"cl*\" udp dport 53 accept"),
        table("accept", "tcp dport vmap { 22 : drop, 400-500 : accept, 8080 : drop }"),
        with("chain web { accept\n}", "tcp dport vmap { 80 : jump web, 443 : goto web, 22 : drop }"),
        with("chain none { return\n}\nchain web { tcp dport 80 accept\n}", "jump none\nmeta l4proto tcp goto web\naccept"),
        with(
            &format!("set good {{ type {kind}; flags interval; elements = {{ {far}, {other} }}\n}}"),
            "IP saddr @good tcp dport 80 accept\nIP saddr != @good udp dport 53 accept",
        ),
        with(
            "map to { type inet_service : verdict; elements = { 80 : accept, * : drop }\n}\nset none { type inet_service\n}",
            "th dport @none accept\nth dport vmap @to",
        ),
        format!("{}\n{}", table("drop", "tcp dport 80 accept"), table("accept", "").replace("inet t", "inet u")),
        "table IP t { chain p { type filter hook prerouting priority -150; policy accept\ntcp dport 22 ct state new drop\n}\n}".into(),
        "table IP t { chain p { type filter hook prerouting priority -300; policy accept\ntcp dport 22 drop\nnotrack\n}\n}".into(),
        "table netdev t { chain c { type filter hook ingress device \"client\" priority 0; policy accept\n\
         meta protocol IP tcp dport 80 drop\n}\n}"
            .into(),
        "table inet t { chain c { type filter hook ingress device \"client\" priority 0; policy accept\n\
         udp dport 53 drop\n}\n}"
            .into(),
        "table IP t { flags dormant\nchain c { type filter hook input priority 0; policy drop\n}\n}".into(),
        "table IP t { chain n { type nat hook prerouting priority -100\ntcp dport 8080 redirect to :443\n}\n\
         chain i { type filter hook input priority 0; policy accept\nudp dport 53 drop\n}\n}"
            .into(),
    ]
}

fn common_rules_are_decided_as_the_kernel_does(family: Family) {
    let network = Network::new(family);
    for rules in common(family) {
        let decided = network.compare(&rules, "input", Way::ToThisMachine);
        assert_eq!(decided, network.packets().len(), "{rules}");
    }
}

/// Numbers that are the same in each run (Numerical Recipes).
struct Numbers(u32);

impl Numbers {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        from[(self.0 >> 8) as usize % from.len()]
    }
}

const CONDITIONS: [&str; 30] = [
    "",
    "tcp dport 80",
    "tcp dport != 22",
    "tcp dport { 22, 80, 443 }",
    "tcp dport != 80-443",
    "udp dport 53",
    "th dport { 50-90, 8080 }",
    "th sport 1024-65535",
    "tcp sport { 1-9, 60000-65535 }",
    "meta l4proto tcp",
    "meta l4proto != { tcp, icmp }",
    "iifname \"client\"",
    "iifname != \"cl*\"",
    "iif lo",
    "ct state new",
    "ct state established,related",
    "ct state != invalid",
    "ct status != dnat",
    "ct mark 0",
    "tcp flags & (fin|syn|rst|ack) == syn",
    "tcp flags & (syn|rst) == syn|rst",
    "meta pkttype != unicast",
    "meta mark 3-9",
    "limit rate 1000/second",
    "fib daddr type local",
    "tcp option maxseg size > 100",
    "IP saddr FAR",
    "IP saddr != { NEAR, OTHER }",
    "IP saddr @some",
    "IP saddr . th dport { FAR . 1-100, NEAR . 443 }",
];
const VERDICTS: [&str; 10] =
    ["accept", "drop", "accept", "drop", "return", "counter", "jump a", "goto b", "reject", "notrack"];

/// Rules that need not make sense.
fn made_up(family: Family, seed: u32) -> String {
    let mut numbers = Numbers(seed);
    let mut rules = |chain: &str| -> String {
        let mut rule = || {
            let mut condition = numbers.pick(&CONDITIONS).to_owned();
            if numbers.pick(&["one", "two"]) == "two" {
                condition = format!(
                    "{condition} {}",
                    numbers.pick(&["counter", "iifname \"client\"", "th dport 50-500"])
                );
            }
            match numbers.pick(&VERDICTS) {
                // Chains lead to later ones alone.
                "jump a" if chain != "i" => format!("{condition} drop\n"),
                "goto b" if chain == "b" => format!("{condition} accept\n"),
                // At another hook.
                "notrack" => "th dport vmap { 22 : drop, 53 : accept, 60-90 : return }\n".to_owned(),
                verdict => format!("{condition} {verdict}\n"),
            }
        };
        (0..5).map(|_| rule()).collect()
    };
    let (b, a, i) = (rules("b"), rules("a"), rules("i"));
    let policy = numbers.pick(&["accept", "drop"]);
    let (far, near, other, kind) = match family {
        Family::V4 => ("198.51.100.0/24", "10.9.1.2", "192.0.2.1", "ipv4_addr"),
        Family::V6 => ("2001:db8:51::/48", "fd09:0:0:1::2", "2001:db8::9", "ipv6_addr"),
    };
    format!(
        "table inet t {{\nset some {{ type {kind}; flags interval; elements = {{ NEAR, OTHER }}\n}}\n\
         chain b {{\n{b}}}\nchain a {{\n{a}}}\n\
         chain i {{ type filter hook input priority 0; policy {policy}\n{i}}}\n}}"
    )
    .replace("FAR", far)
    .replace("NEAR", near)
    .replace("OTHER", other)
}

fn rules_made_at_random_are_never_decided_wrongly(family: Family) {
    let network = Network::new(family);
    let all = (0..24).map(|seed| network.compare(&made_up(family, seed), "input", Way::ToThisMachine));
    let decided: usize = all.sum();
    // Some of the conditions cannot be decided.
    assert!(decided * 2 > 24 * network.packets().len(), "{decided} are known");
}

fn packets_on_their_way_through_are_decided(family: Family) {
    let network = Network::new(family);
    let gateway = &network.gateway;
    let endpoint = Host::new("endpoint");
    connect(gateway, "endpoint", &endpoint, "eth0", 2);
    gateway.sysctl("ipv4/ip_forward", "1");
    gateway.sysctl("ipv6/conf/all/forwarding", "1");
    let to = SocketAddr::new(on(family, 2, 2), 9000);
    let translate = format!(
        "table IP sheave {{ chain p {{ type nat hook prerouting priority -110\n\
         meta l4proto {{ tcp, udp }} dnat to {to}\n}}\n}}\n"
    );
    let chain = |rules: &str| {
        format!(
            "{translate}table inet t {{ chain f {{ type filter hook forward priority 0; policy drop\n{rules}\n}}\n\
             chain i {{ type filter hook input priority 0; policy drop\n}}\n}}"
        )
    };
    for rules in [
        "accept".to_owned(),
        format!("IP daddr {} tcp dport 9000 accept", to.ip()),
        format!("IP daddr {} tcp dport 80 accept", network.frontend()),
        "ct state established,related accept\nct status dnat iifname \"client\" udp dport 9000 accept"
            .to_owned(),
        format!("IP saddr {} accept", Network::far(family)),
    ] {
        let rules = chain(&rules);
        let decided = network.compare(&rules, "forward", Way::Through(Some(to)));
        assert_eq!(decided, network.packets().len(), "{rules}");
        network.compare(&rules, "forward", Way::Through(None));
    }
}

#[test]
fn a_rule_that_drops_is_named() {
    let network = Network::new(Family::V4);
    network.load(
        "table inet corp { chain web { counter\ntcp dport 80 drop\n}\n\
         chain in { type filter hook input priority -5; policy drop\nIP saddr 198.51.100.0/24 jump web\nmeta mark 7 accept\n}\n}",
        "input",
    );
    let packet = |client: &str| FirstPacket {
        protocol: Protocol::Tcp,
        client: Some(ip(client)),
        client_port: None,
        frontend: SocketAddr::new(network.frontend(), 80),
        interface: None,
    };
    let dropped = network.answer(&packet("198.51.100.7"), Way::ToThisMachine).1;
    let [Some(ChainVerdict::Drops(DroppedBy { chain, rule: Some(handle) }))] = dropped.as_slice() else {
        panic!("{dropped:?}")
    };
    let listed = network.gateway.finish("nft", &["-a", "list", "chain", "inet", "corp", chain]);
    let line = format!("tcp dport 80 drop # handle {handle}");
    assert_eq!(chain, "web");
    let listed = listed.expect_success();
    assert!(listed.contains(&line), "{handle}: {listed}");
    let unknown = network.answer(&packet("192.0.2.1"), Way::ToThisMachine).1;
    assert_eq!(unknown, [Some(ChainVerdict::Unknown { rules: 1 })]);
    network.load("table IP t { chain c { type filter hook input priority 0; policy drop\n}\n}", "input");
    let by_policy = network.answer(&packet("192.0.2.1"), Way::ToThisMachine).1;
    let by = DroppedBy { chain: "c".to_owned(), rule: None };
    assert_eq!(by_policy, [Some(ChainVerdict::Drops(by))]);
}
