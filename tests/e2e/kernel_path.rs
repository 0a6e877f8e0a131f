//! Tests of the kernel path: what only it can do (a process that is killed refuses nobody), a change between the paths under open
//! connections, and what a node lacks. That clients see no difference is tested by other cases, which run on it, too.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::slice::from_ref;
use std::time::Duration;

use serde_json::Value;

use crate::explain::{endpoint, explain_flow, has_reason};
use crate::support::gateway::{Gateway, Settings, forward};
use crate::support::length::by_length;
use crate::support::manifest::{App, vip};
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::tcp::Conversation;
use crate::support::world::{CLIENTS, Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    a_process_that_is_killed_refuses_nobody_and_its_successor_adopts_the_rules,
    a_process_that_is_killed_while_it_tells_the_kernel_leaves_one_table_or_the_other,
    a_service_changes_its_path_under_open_connections_and_flows,
    the_end_of_the_process_takes_away_its_frontends_and_nothing_else,
    without_what_it_needs_the_proxy_serves_and_it_is_said_why,
    an_upgrade_leaves_connections_and_rules_alone,
    endpoints_that_a_check_finds_failing_get_nothing,
    endpoints_that_clients_cannot_reach_get_nothing,
    connections_are_counted_for_frontends_and_endpoints,
    connections_of_a_removed_service_end_after_the_drain,
    narrowed_source_ranges_silence_flows_of_both_paths,
    flows_to_an_endpoint_that_left_while_no_process_ran_choose_anew,
    what_other_programs_remove_is_restored,
    explain_knows_where_the_kernel_has_a_client,
);

fn web(family: Family, path: &str) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).annotation("sheave.dev/path", path)
}

/// A network whose gateway forwards, with servers of both protocols on every backend.
fn served(backends: u16, family: Family) -> (World, (Vec<tcp::Server>, Vec<udp::Server>)) {
    let world = World::new(backends);
    forward(&world.gateway);
    let tcp = tcp::Server::on_every_backend(&world, family, 9000);
    let udp = udp::Server::on_every_backend(&world, family, 9000);
    (world, (tcp, udp))
}

/// Waits until the gateway has handed the frontend over to the kernel.
fn until_carried(world: &World, family: Family) {
    eventually("the kernel has the frontend", || {
        let listed = rules(world, family);
        let carried = listed.matches("random_").count() > 1 || listed.contains("hash_");
        if carried { Ok(()) } else { Err(listed) }
    });
}

/// The tables of the gateway's kernel.
fn rules(world: &World, family: Family) -> String {
    let table = if family == Family::V4 { "ip" } else { "ip6" };
    world.gateway.finish("nft", &["list", "table", table, "sheave"]).stdout
}

fn ask(world: &World, family: Family, client: u16) -> std::io::Result<String> {
    world.client.run(|| tcp::ask_from(family.client(client), vip(family))).map(|answer| answer.name)
}

fn ask_by_datagram(world: &World, family: Family, client: u16) -> std::io::Result<String> {
    udp::Client::new(&world.client, family.client(client), vip(family)).ask().map(|answer| answer.name)
}

fn path_of(gateway: &Gateway<'_>) -> Value {
    gateway.routes()["frontends"][0]["path"].clone()
}

fn a_process_that_is_killed_refuses_nobody_and_its_successor_adopts_the_rules(family: Family) {
    let (world, _servers) = served(2, family);
    let app = web(family, "kernel").all_ready((0..2).map(|n| family.backend(n)));
    let mut gateway = Gateway::start(&world, from_ref(&app));
    until_carried(&world, family);
    assert_eq!(path_of(&gateway)["name"], "kernel");
    let mut open =
        world.client.run(|| Conversation::open_from(family.client(0), vip(family))).expect("served");
    gateway.kill();
    gateway.wait();
    let answers: BTreeSet<String> =
        (0..40).map(|round| ask(&world, family, round % CLIENTS).expect("the kernel serves")).collect();
    assert_eq!(answers.len(), 2, "{answers:?}");
    for client in 0..CLIENTS {
        ask_by_datagram(&world, family, client).expect("the kernel serves");
    }
    let _gateway = Gateway::start(&world, &[app]);
    world.client.run(|| open.say("still here")).expect("the connection goes on");
    ask(&world, family, 0).expect("the kernel serves");
}

/// Each table has all ports with the same endpoint, which another one has with another.
fn a_process_that_is_killed_while_it_tells_the_kernel_leaves_one_table_or_the_other(family: Family) {
    let (world, _servers) = served(2, family);
    let app = web(family, "kernel").all_ready((0..2).map(|n| family.backend(n)));
    let many = |endpoint: u16| {
        let app = App::new("many", &[family.vip(1)]).annotation("sheave.dev/path", "kernel");
        (0..500).fold(app, |app, port| app.tcp(1000 + port, 9000)).ready(family.backend(endpoint))
    };
    let served_by = |endpoint: u16| {
        let chosen = format!(" : {} . 9000", family.backend(endpoint));
        let of_many = format!("{} . tcp . 1", family.vip(1));
        let listed = rules(&world, family);
        let slots = listed.split([',', '{', '}']).filter(|element| element.contains(&of_many));
        slots.filter(|element| element.contains(&chosen)).count()
    };
    for round in 0..by_length(5, 100) {
        let [before, after] = [round % 2, (round + 1) % 2];
        let mut gateway = Gateway::start(&world, &[app.clone(), many(before)]);
        eventually("the kernel has the ports", || {
            if served_by(before) == 500 { Ok(()) } else { Err(rules(&world, family)) }
        });
        gateway.apply(&[app.clone(), many(after)]);
        let_pass(Duration::from_millis(fastrand::u64(0..120)));
        gateway.kill();
        gateway.wait();
        let left = [served_by(before), served_by(after)];
        assert!(left == [500, 0] || left == [0, 500], "{left:?} in round {round}");
        ask(&world, family, 0).expect("the kernel serves");
    }
}

fn a_service_changes_its_path_under_open_connections_and_flows(family: Family) {
    let (world, _servers) = served(2, family);
    let other = App::new("other", &[family.vip(1)]).tcp(80, 9000).ready(family.backend(0));
    let other = other.annotation("sheave.dev/path", "kernel");
    let app = |path| web(family, path).all_ready((0..2).map(|n| family.backend(n)));
    // The other Service has connections tracked from the start.
    let gateway = Gateway::start(&world, &[app("proxy"), other.clone()]);
    until_carried(&world, family);
    let mut conversations = Vec::new();
    let mut flows = Vec::new();
    for path in ["kernel", "proxy", "kernel"] {
        let opened = (0..CLIENTS).map(|client| {
            let open = || Conversation::open_from(family.client(client), vip(family));
            world.client.run(open).expect("the connection is served")
        });
        conversations.extend(opened.collect::<Vec<_>>());
        let opened = (0..CLIENTS).map(|client| {
            let flow = udp::Client::new(&world.client, family.client(client), vip(family));
            let home = flow.ask().expect("the datagram is answered").name;
            (flow, home)
        });
        flows.extend(opened.collect::<Vec<_>>());
        gateway.apply(&[app(path), other.clone()]);
        for _ in 0..20 {
            ask(&world, family, 0).expect("somebody accepts at every moment");
            let_pass(Duration::from_millis(100));
        }
        for (number, conversation) in conversations.iter_mut().enumerate() {
            let said = world.client.run(|| conversation.say("still here"));
            said.unwrap_or_else(|error| panic!("connection {number}, now {path}: {error}"));
        }
        for (number, (flow, home)) in flows.iter().enumerate() {
            let now = flow.ask().unwrap_or_else(|error| panic!("flow {number}, now {path}: {error}")).name;
            assert_eq!(now, *home, "flow {number}, now {path}");
        }
    }
    assert_eq!(gateway.problems(), [""; 0]);
}

fn the_end_of_the_process_takes_away_its_frontends_and_nothing_else(family: Family) {
    let (world, _servers) = served(1, family);
    let nft = |arguments: &[&str]| world.gateway.finish("nft", arguments).stdout;
    nft(&["add", "table", "ip", "sheave-else"]);
    let mut gateway = Gateway::start(&world, &[web(family, "kernel").ready(family.backend(0))]);
    until_carried(&world, family);
    let mut open =
        world.client.run(|| Conversation::open_from(family.client(0), vip(family))).expect("served");
    gateway.terminate();
    gateway.wait();
    let refused = ask(&world, family, 0).expect_err("nobody serves any more");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    world.client.run(|| open.say("still here")).expect("the connection goes on");
    // A gateway that has nothing for the kernel removes what is left, once nothing needs it.
    let _gateway = Gateway::start(&world, &[web(family, "proxy").ready(family.backend(0))]);
    let_pass(Duration::from_secs(2));
    world.client.run(|| open.say("still here")).expect("the connection goes on");
    ask(&world, family, 0).expect("the proxy serves");
    drop(open);
    world.gateway.finish("conntrack", &["-F"]).expect_success();
    eventually("only the table of somebody else is left", || {
        let left = nft(&["list", "tables"]);
        if left.trim() == "table ip sheave-else" { Ok(()) } else { Err(left) }
    });
}

fn without_what_it_needs_the_proxy_serves_and_it_is_said_why(family: Family) {
    let (world, _servers) = served(1, family);
    let app = web(family, "kernel").ready(family.backend(0));
    let (file, forwarding) = match family {
        Family::V4 => ("ipv4/ip_forward", "net.ipv4.ip_forward"),
        Family::V6 => ("ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding"),
    };
    world.gateway.sysctl(file, "0");
    let without = Settings { without: &["net_admin"], ..Settings::default() };
    for (settings, why) in [(without, "CAP_NET_ADMIN"), (Settings::default(), forwarding)] {
        let mut gateway = Gateway::start_with(&world, from_ref(&app), &settings);
        eventually("it is said why", || {
            let problems = gateway.problems().join("\n");
            let told = problems.contains("KernelPathUnavailable") && problems.contains(why);
            if told { Ok(()) } else { Err(problems) }
        });
        ask(&world, family, 0).expect("the proxy serves");
        ask_by_datagram(&world, family, 0).expect("the proxy serves");
        assert_eq!(path_of(&gateway)["name"], "proxy");
        gateway.interrupt();
        gateway.wait();
    }
}

fn an_upgrade_leaves_connections_and_rules_alone(family: Family) {
    let (world, _servers) = served(2, family);
    let app = web(family, "kernel").all_ready((0..2).map(|n| family.backend(n)));
    let mut gateway = Gateway::start(&world, &[app]);
    until_carried(&world, family);
    let mut open =
        world.client.run(|| Conversation::open_from(family.client(0), vip(family))).expect("served");
    for _ in 0..by_length(3, 100) {
        let mut former = gateway.upgrade();
        former.signal(nix::sys::signal::Signal::SIGTERM);
        former.wait();
        for client in 0..CLIENTS {
            ask(&world, family, client).expect("somebody accepts at every moment");
        }
        world.client.run(|| open.say("still here")).expect("the connection goes on");
    }
    eventually("the last process has the rules", || {
        let problems = gateway.problems();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    });
}

fn endpoints_that_a_check_finds_failing_get_nothing(family: Family) {
    let (world, (mut tcp, _udp)) = served(2, family);
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).annotation("sheave.dev/path", "kernel");
    let app = app.annotation("sheave.dev/health-check", "tcp interval=1s failures=1");
    let _gateway = Gateway::start(&world, &[app.all_ready((0..2).map(|n| family.backend(n)))]);
    until_carried(&world, family);
    tcp.remove(0);
    eventually("only the other endpoint is chosen", || {
        let answers: Vec<_> = (0..20).map(|round| ask(&world, family, round % CLIENTS)).collect();
        let all = answers.iter().all(|answer| answer.as_deref().is_ok_and(|name| name == "backend-1"));
        if all { Ok(()) } else { Err(format!("{answers:?}")) }
    });
}

/// One refuses, one on the gateway's own host refuses, and one never answers. No Service has a check.
fn endpoints_that_clients_cannot_reach_get_nothing(family: Family) {
    let (world, (mut tcp, _udp)) = served(5, family);
    tcp.pop();
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).annotation("sheave.dev/path", "kernel");
    let elsewhere = [family.gateway_towards(0), family.black_hole()];
    let endpoints = (0..5).map(|number| family.backend(number)).chain(elsewhere);
    let gateway = Gateway::start(&world, &[app.all_ready(endpoints)]);
    until_carried(&world, family);
    // A SYN is sent again after a second.
    let reach = |client| {
        let from = Some(family.client(client % CLIENTS));
        world.client.run(|| tcp::connect_from(from, vip(family), Duration::from_millis(1500))).is_ok()
    };
    eventually_within(patience(60.0), "the three are avoided", || {
        let reached = (0..8).filter(|client| reach(*client)).count();
        let unhealthy = gateway.metric("sheave_endpoints_unhealthy", &["protocol=\"TCP\""]);
        if reached == 8 && unhealthy == 3.0 { Ok(()) } else { Err(format!("{reached} of 8, {unhealthy}")) }
    });
    for client in 0..5 * CLIENTS {
        ask(&world, family, client % CLIENTS).expect("only those that serve are chosen");
    }
}

fn connections_are_counted_for_frontends_and_endpoints(family: Family) {
    let (world, _servers) = served(1, family);
    let gateway = Gateway::start(&world, &[web(family, "kernel").ready(family.backend(0))]);
    until_carried(&world, family);
    let reached = "Reached: 0 by sockets of their own, 0 by steering (mode auto), 2 by the kernel path.";
    eventually("the status says who carries the frontends", || {
        let status = world.gateway.finish(sheave_test_support::program::path(), &["status"]).stdout;
        if status.contains(reached) && !status.contains("Not reached") { Ok(()) } else { Err(status) }
    });
    for client in 0..CLIENTS {
        ask(&world, family, client).expect("the kernel serves");
    }
    eventually("each connection is counted once", || {
        let counted = gateway.metric("sheave_tcp_connections_total", &[]);
        if counted == f64::from(CLIENTS) { Ok(()) } else { Err(counted) }
    });
}

fn connections_of_a_removed_service_end_after_the_drain(family: Family) {
    let (world, _servers) = served(1, family);
    let app = web(family, "kernel").ready(family.backend(0));
    let gateway =
        Gateway::start_with(&world, from_ref(&app), &Settings { drain: "2s", ..Settings::default() });
    until_carried(&world, family);
    let mut open = world.client.run(|| Conversation::open(vip(family))).expect("the kernel serves");
    let mut other = world.client.run(|| Conversation::open(vip(family))).expect("the kernel serves");
    gateway.apply(&[]);
    tcp::until_refused(&world.client, vip(family));
    world.client.run(|| open.say("still here")).expect("it has not ended yet");
    gateway.apply(from_ref(&app));
    until_carried(&world, family);
    let_pass(Duration::from_secs(5));
    world.client.run(|| open.say("still here")).expect("the Service came back");
    gateway.apply(&[]);
    eventually("the connection has ended", || {
        world.client.run(|| open.say("still here")).err().ok_or("it goes on")
    });
    world.client.run(|| other.say("still here")).expect_err("as has the one that was idle");
}

fn narrowed_source_ranges_silence_flows_of_both_paths(family: Family) {
    let (world, _servers) = served(1, family);
    let other = App::new("other", &[family.vip(1)]).tcp(80, 9000).ready(family.backend(0));
    let other = other.annotation("sheave.dev/path", "kernel");
    let app = |path| web(family, path).ready(family.backend(0));
    // The other Service has connections tracked from the start.
    let gateway = Gateway::start(&world, &[app("proxy"), other.clone()]);
    until_carried(&world, family);
    let open = |client: u16| {
        let flow = udp::Client::new(&world.client, family.client(client), vip(family));
        flow.ask().expect("the datagram is answered");
        flow
    };
    let proxied = [0, 1].map(open);
    gateway.apply(&[app("kernel"), other.clone()]);
    eventually("the kernel has the frontend", || {
        let listed = rules(&world, family);
        listed.contains(&format!("{} . udp . 80", family.vip(0))).then_some(()).ok_or(listed)
    });
    let carried = [0, 1].map(open);
    let listed = [format!("{}/{}", family.client(1), family.host_prefix())];
    gateway.apply(&[app("kernel").source_ranges(&listed), other]);
    for ([outside, inside], path) in [(&carried, "kernel"), (&proxied, "proxy")] {
        eventually(&format!("the {path} is silent"), || outside.ask_briefly().err().ok_or("an answer"));
        outside.expect_silence(patience(0.5));
        inside.ask().unwrap_or_else(|error| panic!("a client of the {path} that is listed: {error}"));
    }
}

fn flows_to_an_endpoint_that_left_while_no_process_ran_choose_anew(family: Family) {
    for kills in [false, true] {
        let (world, _servers) = served(2, family);
        let [left, stays] = [0, 1].map(|n| family.backend(n));
        let mut gateway = Gateway::start(&world, &[web(family, "kernel").ready(left)]);
        until_carried(&world, family);
        let flow = udp::Client::new(&world.client, family.client(0), vip(family));
        assert_eq!(flow.ask().expect("the kernel serves").name, "backend-0");
        // The tables have nothing of an endpoint that terminates.
        gateway.apply(&[web(family, "kernel").terminating(left).ready(stays)]);
        eventually("new flows go to the other endpoint", || match ask_by_datagram(&world, family, 1) {
            Ok(name) if name == "backend-1" => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert_eq!(flow.ask().expect("its endpoint serves").name, "backend-0");
        if kills {
            gateway.kill();
        } else {
            gateway.terminate();
        }
        gateway.wait();
        let _gateway = Gateway::start(&world, &[web(family, "kernel").ready(stays)]);
        eventually("the flow goes to the other endpoint", || match flow.ask() {
            Ok(answer) if answer.name == "backend-1" => Ok(()),
            other => Err(format!("{:?}", other.map(|answer| answer.name))),
        });
    }
}

fn what_other_programs_remove_is_restored(family: Family) {
    let (world, _servers) = served(1, family);
    let _gateway = Gateway::start(&world, &[web(family, "kernel").ready(family.backend(0))]);
    until_carried(&world, family);
    world.gateway.finish("nft", &["flush", "ruleset"]);
    let table = if family == Family::V4 { "ip" } else { "ip6" };
    world.gateway.finish("nft", &["delete", "table", table, "sheave"]);
    until_carried(&world, family);
    ask(&world, family, 0).expect("the kernel serves");
}

fn explain_knows_where_the_kernel_has_a_client(family: Family) {
    let (world, _servers) = served(2, family);
    let gateway =
        Gateway::start(&world, &[web(family, "kernel").all_ready((0..2).map(|n| family.backend(n)))]);
    until_carried(&world, family);
    for client in 0..CLIENTS {
        let flow = udp::Client::new(&world.client, family.client(client), vip(family));
        let home = flow.ask().expect("the kernel serves").name;
        let explained = explain_flow(&gateway, &flow);
        assert_eq!(endpoint(family, &explained), home, "{explained}");
        assert!(has_reason(&explained, "connection tracking has the client"), "{explained}");
    }
}
