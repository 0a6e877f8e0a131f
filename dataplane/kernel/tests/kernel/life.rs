//! Who has the tables, and what becomes of them.

use sheave_kernel::{
    Error, Flows, KernelTable, LeftOver, Obstacle, Options, Present, Tracked, TranslatedFlow, obstacles,
    ruleset,
};
use sheave_model::Protocol;

use crate::ruleset::{Ruleset, frontend, of_every_kind};
use crate::support::host::Host;

fn open(host: &Host) -> Result<(KernelTable, Present), Error> {
    host.run(|| KernelTable::open(&Options::default(), || Ok(())))
}

fn nft(host: &Host, arguments: &str) -> String {
    host.finish("nft", &Vec::from_iter(arguments.split(' '))).expect_success()
}

#[test]
fn a_living_process_alone_changes_its_tables() {
    let host = Host::new("gateway");
    let (mut table, _) = open(&host).unwrap();
    table.apply(&of_every_kind(true).whole()).unwrap();
    assert!(matches!(open(&host), Err(Error::OwnedBy { .. })));
    assert_eq!(host.run(|| KernelTable::left_over("")).unwrap(), LeftOver::Owned);
    nft(&host, "flush ruleset");
    table.verify().unwrap();
    assert_ne!(host.finish("nft", &["delete", "table", "ip", "sheave"]).code(), Some(0));
}

#[test]
fn tables_of_a_process_that_died_stay_and_are_adopted_once() {
    let host = Host::new("gateway");
    let (mut table, _) = open(&host).unwrap();
    let first = table.apply(&of_every_kind(true).whole()).unwrap();
    // The kernel cannot tell this from the end of a process.
    drop(table);
    let (mut table, present) = open(&host).unwrap();
    assert_eq!(present.elements.len(), of_every_kind(true).elements.len());
    table.verify().unwrap();
    let second = table.apply(&of_every_kind(true).changes_to(&Ruleset::default())).unwrap();
    assert_eq!(second.generation, first.generation + 1);
    assert!(matches!(open(&host), Err(Error::OwnedBy { .. })));
    drop(table);
    nft(&host, "flush ruleset");
    assert_eq!(open(&host).unwrap().1, Present::default());
}

#[test]
fn tables_of_another_format_stay_until_the_first_change_replaces_them() {
    let host = Host::new("gateway");
    for family in ["ip", "ip6"] {
        nft(&host, &format!("add table {family} sheave"));
        nft(&host, &format!("add set {family} sheave state {{ type mark; }}"));
        nft(&host, &format!("add chain {family} sheave old"));
        host.finish(
            "nft",
            &[format!("add element {family} sheave state {{ 0 comment \"format 0 generation 7\" }}")],
        )
        .expect_success();
    }
    let (mut table, present) = open(&host).unwrap();
    assert_eq!(present, Present::default());
    assert!(nft(&host, "list table ip sheave").contains("chain old"));
    assert_eq!(table.apply(&of_every_kind(true).whole()).unwrap().generation, 8);
    assert!(!nft(&host, "list table ip sheave").contains("chain old"));
    table.verify().unwrap();
}

#[test]
fn a_table_of_somebody_else_is_left_alone() {
    let host = Host::new("gateway");
    nft(&host, "add table ip6 sheave");
    assert!(matches!(open(&host), Err(Error::Foreign)));
    assert_eq!(host.run(|| KernelTable::left_over("")).unwrap(), LeftOver::Nothing);
    assert_eq!(nft(&host, "list tables"), "table ip6 sheave\n");
}

/// Its next process adopts them.
#[test]
fn tables_of_another_installation_are_left_alone() {
    let host = Host::new("gateway");
    let of = |installation: &str| Options { installation: installation.to_owned(), ..Options::default() };
    let open = |installation: &str| host.run(|| KernelTable::open(&of(installation), || Ok(())));
    let (mut table, _) = open("sheave.dev/l4").unwrap();
    table.apply(&of_every_kind(true).whole()).unwrap();
    table.verify().unwrap();
    drop(table);
    let refused = open("example.com/other").unwrap_err();
    assert!(
        matches!(&refused, Error::OfAnother { installation } if installation == "sheave.dev/l4"),
        "{refused}"
    );
    assert_eq!(host.run(|| KernelTable::left_over("example.com/other")).unwrap(), LeftOver::Nothing);
    assert_eq!(host.run(|| KernelTable::left_over("sheave.dev/l4")).unwrap(), LeftOver::Tables);
    let (table, present) = open("sheave.dev/l4").unwrap();
    assert_eq!(present.elements.len(), of_every_kind(true).elements.len());
    table.remove().unwrap();
    open("example.com/other").unwrap();
}

#[test]
fn removal_takes_away_exactly_ours() {
    let host = Host::new("gateway");
    nft(&host, "add table ip other");
    let (table, _) = open(&host).unwrap();
    table.remove().unwrap();
    assert_eq!(nft(&host, "list tables"), "table ip other\n");
    drop(open(&host).unwrap());
    assert_eq!(host.run(|| KernelTable::left_over("")).unwrap(), LeftOver::Tables);
    open(&host).unwrap().0.remove().unwrap();
    assert_eq!(host.run(|| KernelTable::left_over("")).unwrap(), LeftOver::Nothing);
    assert_eq!(nft(&host, "list tables"), "table ip other\n");
}

#[test]
fn interfaces_and_a_setting_of_connection_tracking_are_followed() {
    let host = Host::new("gateway");
    let (mut table, _) = open(&host).unwrap();
    let hairpin = || nft(&host, "list set ip6 sheave hairpin");
    assert!(!host.run(|| table.follow_interfaces()).unwrap());
    host.ip(&["link add more type veth peer name far".into()]);
    assert!(host.run(|| table.follow_interfaces()).unwrap());
    assert!(hairpin().contains(r#""more" . "more""#), "{}", hairpin());
    host.ip(&["link del more".into()]);
    assert!(host.run(|| table.follow_interfaces()).unwrap());
    assert!(!hairpin().contains("more"), "{}", hairpin());

    let forward = || nft(&host, "list chain ip sheave forward");
    assert!(forward().contains("ct state invalid"), "{}", forward());
    host.sysctl("netfilter/nf_conntrack_tcp_be_liberal", "1");
    assert!(host.run(|| table.follow_liberal()).unwrap());
    assert!(!forward().contains("ct state invalid"), "{}", forward());
    assert!(!host.run(|| table.follow_liberal()).unwrap());
}

#[test]
fn what_stands_in_the_way_is_told() {
    let host = Host::new("gateway");
    let told = || host.run(obstacles).unwrap();
    let neither = [ruleset::Family::Ipv4, ruleset::Family::Ipv6].map(Obstacle::NotForwarding);
    assert_eq!(told(), neither);
    host.sysctl("ipv4/ip_forward", "1");
    host.sysctl("ipv6/conf/all/forwarding", "1");
    assert!(told().is_empty(), "{:?}", told());
    let _table = open(&host).unwrap();
    assert!(told().is_empty(), "{:?}", told());
    nft(&host, "add table inet strict");
    let chain = "add chain inet strict forward { type filter hook forward priority 0; policy drop; }";
    host.finish("nft", &[chain]).expect_success();
    assert_eq!(told(), [Obstacle::ForwardDropped { chain: "inet strict forward".to_owned() }]);
}

/// Makes an entry of connection tracking; `answers` says from where.
fn track(host: &Host, protocol: &str, client: &str, service: &str, port: u16, answers: &str) {
    let state = if protocol == "tcp" { "--state ESTABLISHED" } else { "" };
    let line = format!(
        "-I -p {protocol} -t 60 -s {client} -d {service} --sport {port} --dport 53 {state} {answers}"
    );
    host.finish("conntrack", &Vec::from_iter(line.split_whitespace())).expect_success();
}

fn tracked(host: &Host) -> u64 {
    host.run(|| Tracked::read().unwrap().count)
}

/// Flows that others have to the same endpoint stay.
#[test]
fn flows_of_endpoints_that_left_end() {
    let host = Host::new("gateway");
    // Connection tracking begins with the hooks.
    let _table = open(&host).unwrap();
    let insert = |protocol: &str, v6: bool, service: &str, endpoint: &str, port: u16| {
        let client = if v6 { "fd01::2" } else { "10.1.0.2" };
        let answers = format!("-r {endpoint} -q {client} --reply-port-src 5353 --reply-port-dst {port}");
        track(&host, protocol, client, service, port, &answers);
    };
    for port in 1000..1010 {
        insert("udp", false, "192.0.2.1", "10.2.0.2", port);
        insert("udp", true, "2001:db8::1", "fd02::2", port);
    }
    insert("udp", false, "192.0.2.2", "10.2.0.2", 3000);
    insert("udp", false, "192.0.2.1", "10.2.0.3", 2000);
    insert("tcp", false, "192.0.2.1", "10.2.0.2", 1000);
    assert_eq!(tracked(&host), 23);
    let mut flows = host.run(Flows::open).unwrap();
    let pair = |service: &str, endpoint: &str| {
        (frontend(service.parse().unwrap(), 53, Protocol::Udp), endpoint.parse().unwrap())
    };
    let gone = [pair("192.0.2.1", "10.2.0.2:5353"), pair("192.0.2.1", "10.2.0.9:5353")];
    assert!(flows.end(gone, 10).unwrap());
    assert_eq!(tracked(&host), 13);
    // No more than asked for at a time.
    let gone = [pair("2001:db8::1", "[fd02::2]:5353")];
    assert!(!flows.end(gone, 4).unwrap());
    assert_eq!(tracked(&host), 9);
    assert!(flows.end(gone, 10).unwrap());
    assert_eq!(tracked(&host), 3);
}

/// Too many pairs to have the kernel look for each.
#[test]
fn flows_of_many_endpoints_that_left_end_in_passes() {
    let host = Host::new("gateway");
    let _table = open(&host).unwrap();
    let (v4, v6) = (|n| format!("192.0.2.{n}"), |n| format!("2001:db8::{n:x}"));
    for n in 1..=12 {
        track(&host, "udp", "10.1.0.2", &v4(n), 1000, "--dst-nat 10.2.0.2:5353");
        track(&host, "udp", "fd01::2", &v6(n), 1000, "--dst-nat [fd02::2]:5353");
        // What the proxy had.
        track(&host, "udp", "10.1.0.3", &v4(n), 1000, "");
        track(&host, "tcp", "10.1.0.2", &v4(n), 1000, "--dst-nat 10.2.0.2:5353");
    }
    let pair = |service: String, endpoint: &str| {
        (frontend(service.parse().unwrap(), 53, Protocol::Udp), endpoint.parse().unwrap())
    };
    // The last three stay, and what goes to other endpoints.
    let translated = (1..=9).flat_map(|n| [pair(v4(n), "10.2.0.2:5353"), pair(v6(n), "[fd02::2]:5353")]);
    let others = (1..=12).map(|n| pair(v4(n), "10.2.0.9:5353"));
    let gone: Vec<_> = translated.chain(others).collect();
    let mut flows = host.run(Flows::open).unwrap();
    assert!(!flows.end(gone.iter().copied(), 10).unwrap());
    assert_eq!(tracked(&host), 38);
    assert!(flows.end(gone, 10).unwrap());
    assert_eq!(tracked(&host), 30);
    let closed = (1..=12).map(|n| {
        let frontend = frontend(v4(n).parse().unwrap(), 53, Protocol::Udp);
        (frontend, frontend.socket_addr())
    });
    assert!(flows.end(closed, 100).unwrap());
    assert_eq!(tracked(&host), 18);
}

#[test]
fn translated_flows_end_by_their_client_or_endpoint_and_connections_by_their_frontend() {
    let host = Host::new("gateway");
    let _table = open(&host).unwrap();
    for (client, service, answers) in [
        ("10.1.0.2", "192.0.2.1", "--dst-nat 10.2.0.2:5353"),
        ("10.1.0.3", "192.0.2.1", "--dst-nat 10.2.0.2:5353"),
        ("10.1.0.5", "192.0.2.1", "--dst-nat 10.2.0.3:5353"),
        ("fd01::2", "2001:db8::1", "--dst-nat [fd02::2]:5353"),
        // What is not translated is the proxy's.
        ("10.1.0.4", "192.0.2.1", ""),
    ] {
        track(&host, "udp", client, service, 1000, answers);
        track(&host, "tcp", client, service, 1000, answers);
    }
    let mut flows = host.run(Flows::open).unwrap();
    let mut seen = Vec::new();
    let all = std::cell::RefCell::new(&mut seen);
    let look = |flow: &TranslatedFlow| {
        all.borrow_mut().push(format!("{} {} {}", flow.client, flow.frontend, flow.endpoint));
        flow.client.ip().to_string() == "10.1.0.3"
    };
    assert!(flows.end_flows(look, 10).unwrap());
    seen.sort();
    assert_eq!(
        seen,
        [
            "10.1.0.2:1000 192.0.2.1:53/UDP 10.2.0.2:5353",
            "10.1.0.3:1000 192.0.2.1:53/UDP 10.2.0.2:5353",
            "10.1.0.5:1000 192.0.2.1:53/UDP 10.2.0.3:5353",
            "[fd01::2]:1000 [2001:db8::1]:53/UDP [fd02::2]:5353",
        ]
    );
    assert_eq!(tracked(&host), 9);
    // No more than asked for at a time.
    assert!(!flows.end_flows(|_| true, 1).unwrap());
    assert!(flows.end_flows(|_| true, 10).unwrap());
    assert_eq!(tracked(&host), 6);
    let gone = [frontend("192.0.2.1".parse().unwrap(), 53, Protocol::Tcp)].into();
    assert!(flows.end_connections(&gone, 10).unwrap());
    assert_eq!(tracked(&host), 3);
}
