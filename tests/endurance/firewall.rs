//! Tests of others that change filters and routing of the kernel that Sheave needs, or fill its connection table.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use crate::clients::{Clients, apps, servers, web};
use crate::support::gateway::Gateway;
use crate::support::host::Host;
use crate::support::load::Load;
use crate::support::manifest::App;
use crate::support::patience::{eventually, let_pass};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    what_transparent_sources_need_comes_back_before_connections_fail,
    a_full_connection_table_keeps_new_clients_out_until_there_is_room,
);

fn what_transparent_sources_need_comes_back_before_connections_fail(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).local_policy();
    let gateway = Gateway::start(&world, &[app.ready_here(family.backend(0))]);
    let client = family.client(1);
    let ask = move || tcp::ask_from(client, web(family));
    let mut talk = world.client.run(|| Conversation::open_from(client, web(family))).unwrap();
    let flow = udp::Client::new(&world.client, client, web(family));
    assert_eq!([flow.ask().unwrap().peer.ip(), talk.with.peer.ip()], [client; 2]);
    let load = Load::start(&world.client, 2, move |_| ask().map(drop));
    for _ in 0..2 {
        world.gateway.finish("nft", &["flush", "ruleset"]).expect_success();
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        for removal in ["rule del priority 60", "rule del priority 61", "route flush table 7432"] {
            let arguments: Vec<&str> = std::iter::once(flag).chain(removal.split(' ')).collect();
            world.gateway.finish("ip", &arguments).expect_success();
        }
        load.wait_for(10);
        talk.say("still there?").expect("the connection goes on");
        assert_eq!(eventually("the flow goes on", || flow.ask_briefly()).peer.ip(), client);
        eventually("endpoints see clients again", || match world.client.run(ask).map(|it| it.peer.ip()) {
            Ok(ip) if ip == client => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    load.expect_no_failure();
    assert_eq!(gateway.metric("sheave_gateway_endpoint_ejections_total", &[]), 0.0);
}

fn a_full_connection_table_keeps_new_clients_out_until_there_is_room(family: Family) {
    let world = World::new(3);
    let _servers = servers(&world, family);
    for rule in [
        "add table inet track",
        "add chain inet track in { type filter hook prerouting priority 0; }",
        "add rule inet track in ct state new counter",
        // As the documents recommend.
        "add chain inet track out { type filter hook output priority raw; }",
        "add rule inet track out oif lo notrack",
    ] {
        world.gateway.finish("nft", &rule.split(' ').collect::<Vec<_>>()).expect_success();
    }
    let gateway = Gateway::start(&world, &apps(&world, family));
    let mut clients = Clients::open(&world, family);
    // The kernel keeps a UDP flow as confirmed after two seconds (`nf_conntrack_udp_packet`); before, it can be evicted.
    let_pass(Duration::from_millis(2100));
    clients.expect_undisturbed();
    fill_connection_table(&world.gateway);
    clients.expect_open_undisturbed();
    let refused = world.client.run(|| tcp::connect_from(None, web(family), Duration::from_millis(500)));
    assert_eq!(refused.expect_err("there is no room").kind(), ErrorKind::TimedOut);
    let late = udp::Client::new(&world.client, family.client(1), web(family));
    late.expect_silence(Duration::from_millis(300));
    let traced = gateway.get(&format!("/api/trace?service=e2e/web&client={}", family.client(0)));
    let verdict: serde_json::Value = serde_json::from_str(&traced).expect("a trace");
    let verdict = &verdict["verdict"];
    let names_it =
        verdict["step"] == "conntrack" && verdict["text"].to_string().contains("the table is full");
    assert!(verdict["state"] == "stopped" && names_it, "{traced}");
    assert_eq!(gateway.ask("/readyz").status, 200);
    world.gateway.finish("conntrack", &["-F"]).expect_success();
    world.client.run(|| tcp::ask(web(family))).expect("there is room");
    late.ask().expect("there is room");
    clients.expect_undisturbed();
    assert_eq!(gateway.metric("sheave_gateway_endpoint_ejections_total", &[]), 0.0);
}

/// Fills the table with connections that the kernel does not evict, in place of those that are closing: it gives these up
/// for others when the table is nearly full (`gc_worker_can_early_drop`).
fn fill_connection_table(host: &Host) {
    for closing in ["FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"] {
        host.finish("conntrack", &["-D", "-p", "tcp", "--state", closing]);
    }
    let limit =
        fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").expect("connections are tracked");
    let limit: u32 = limit.trim().parse().expect("a number");
    let mut commands = String::new();
    for number in 0..=limit {
        let (address, port) = (number >> 16, number & 0xffff);
        writeln!(
            commands,
            "-I -s 198.51.100.1 -d 198.{}.{}.1 -p tcp --sport {port} --dport 9 -t 600 --state ESTABLISHED \
             -u SEEN_REPLY,ASSURED",
            18 + (address >> 8),
            address & 0xff,
        )
        .expect("strings take text");
    }
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), commands).expect("a file is written");
    let filled = host.finish("conntrack", &["-R", &file.path().display().to_string()]);
    assert!(filled.stderr.contains("not enough memory"), "{}", filled.stderr);
}
