//! Tests of `top` on a terminal and for programs: it shows what is forwarded, and restores the terminal, however it
//! ends.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::host::Host;
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::tcp::{self, Conversation};
use crate::support::terminal::Terminal;
use crate::support::udp;
use crate::support::world::{Family, World};
use sheave_test_support::program;

for_both_families!(
    connections_are_shown_by_service_endpoint_and_cluster,
    networks_of_clients_are_shown_with_what_they_have,
    a_gateway_that_dies_is_waited_for,
);

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).ready(family.backend(0))
}

fn db(family: Family) -> App {
    App::new("db", &[family.vip(1)]).tcp(80, 9000).ready(family.backend(0))
}

fn once(host: &Host, arguments: &[&str]) -> Value {
    let arguments = [&["top", "--once", "-o", "json"], arguments].concat();
    serde_json::from_str(&host.finish(program::path(), &arguments).expect_success()).expect("it is JSON")
}

fn connections_are_shown_by_service_endpoint_and_cluster(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, &[web(family)]);
    let vip = at(family.vip(0), 80);
    let _talk = world.client.run(|| Conversation::open(vip)).unwrap();
    let view = once(&world.gateway, &[]);
    let service = &view["services"][0];
    assert_eq!(
        (service["service"].as_str(), service["state"].as_str()),
        (Some("e2e/web"), Some("ok")),
        "{view}"
    );
    assert_eq!((&service["open"], &view["total"]["open"]), (&1.into(), &1.into()), "{view}");
    let seconds = view["seconds"].as_f64().unwrap();
    assert!(seconds >= 0.9, "{view}");
    let view = once(&world.gateway, &["--view", "endpoints"]);
    let endpoint = &view["endpoints"][0];
    assert_eq!(endpoint["endpoint"], at(family.backend(0), 9000).to_string(), "{view}");
    assert_eq!((&endpoint["open"], &endpoint["state"]), (&1.into(), &"Ready".into()), "{view}");
    let view = once(&world.gateway, &["--view", "clusters"]);
    assert_eq!(
        (&view["clusters"][0]["open"], &view["clusters"][0]["services"]),
        (&1.into(), &1.into()),
        "{view}"
    );

    // Two counts give a rate if they are of the same frontends.
    let traffic: Value = serde_json::from_str(&gateway.get("/api/traffic?services=e2e/web")).unwrap();
    let frontends = ["TCP", "UDP"].map(|protocol| format!("{vip}/{protocol}"));
    assert_eq!(traffic["services"][0]["frontends"], serde_json::json!(frontends), "{traffic}");

    // Rates reflect what is opened during the count.
    eventually("a rate", || {
        let load = || (0..50).for_each(|_| drop(tcp::ask(vip)));
        let view = std::thread::scope(|scope| {
            scope.spawn(|| world.client.run(load));
            once(&world.gateway, &["--filter", "E2E ok"])
        });
        let service = &view["services"][0];
        let rate = |key: &str| service[key].as_f64().is_some_and(|rate| rate > 0.0);
        let all = ["openedPerSecond", "clientBytesPerSecond", "endpointBytesPerSecond"];
        if all.into_iter().all(rate) { Ok(()) } else { Err(view) }
    });
    let text =
        world.gateway.finish(program::path(), &["top", "--once", "--filter", "nothing"]).expect_success();
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// An address of the client's host in another network, and that network.
fn elsewhere(world: &World, family: Family) -> (IpAddr, &'static str) {
    let (ip, network) = match family {
        Family::V4 => ("192.0.2.77", "192.0.2.0/24"),
        Family::V6 => ("2001:db8:77:12ff::1", "2001:db8:77:1200::/56"),
    };
    let address: IpAddr = ip.parse().unwrap();
    world.client.own([address]);
    world.gateway.ip(&[format!("route add {ip}/{} via {}", family.host_prefix(), family.client(0))]);
    (address, network)
}

/// What `top` shows while `load` repeats on the client.
fn once_under(load: &mut (dyn FnMut() + Send), world: &World, arguments: &[&str]) -> Value {
    std::thread::scope(|scope| {
        let viewing = scope.spawn(|| once(&world.gateway, arguments));
        world.client.run(|| {
            while !viewing.is_finished() {
                load();
            }
        });
        viewing.join().unwrap()
    })
}

/// Directions of bytes.
const BYTES: [&str; 2] = ["clientBytesPerSecond", "endpointBytesPerSecond"];

fn moves(row: &Value, key: &str) -> bool {
    row[key].as_f64().is_some_and(|rate| rate > 0.0)
}

fn moved_bytes_are_those_of_endpoints_and_clusters(world: &World, long: &mut Conversation) {
    eventually("bytes of endpoints and clusters", || {
        let mut view = once_under(
            &mut || long.say("something").unwrap(),
            world,
            &["--view", "endpoints", "--filter", "e2e/web"],
        );
        let endpoint = view["endpoints"][0].take();
        let mut view = once_under(&mut || long.say("something").unwrap(), world, &["--view", "clusters"]);
        let cluster = view["clusters"][0].take();
        let all = BYTES.iter().all(|key| moves(&endpoint, key) && moves(&cluster, key));
        if all { Ok(()) } else { Err(format!("{endpoint}, {cluster}")) }
    });
}

fn networks_of_clients_are_shown_with_what_they_have(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let _gateway = Gateway::start(&world, &[web(family), db(family)]);
    let (own, vip) = (family.client(0), at(family.vip(0), 80));
    let own_network = if family == Family::V4 { "10.1.0.0/24" } else { "fd01::/56" };
    let (far, far_network) = elsewhere(&world, family);
    let mut long = world.client.run(|| Conversation::open_from(own, vip)).unwrap();
    let _idle = world.client.run(|| Conversation::open_from(own, at(family.vip(1), 80))).unwrap();
    let flow = udp::Client::new(&world.client, far, vip);
    eventually("a flow is open", || flow.ask_briefly());
    let row = |view: &Value, network: &str| {
        let rows = view["clients"].as_array().unwrap();
        rows.iter().find(|row| row["prefix"] == network).cloned().unwrap_or_default()
    };
    let view = once(&world.gateway, &["--view", "clients"]);
    assert_eq!(
        (&row(&view, own_network)["open"], &row(&view, far_network)["open"]),
        (&2.into(), &1.into()),
        "{view}"
    );
    assert_eq!(view.get("otherClients"), None);
    let served: BTreeSet<&str> = ["e2e/db", "e2e/web"].into();
    let rows = view["clients"].as_array().unwrap();
    assert!(rows.iter().all(|row| served.contains(row["service"].as_str().unwrap())), "{view}");

    // A long connection, short ones, and a flow: each changes the figures of its own network.
    let watched = |load: &mut (dyn FnMut() + Send), arguments: &[&str]| once_under(load, &world, arguments);
    let clients = ["--view", "clients"];
    eventually("the long connection's bytes", || {
        let view = watched(&mut || long.say("something").unwrap(), &clients);
        let (own, far) = (row(&view, own_network), row(&view, far_network));
        let said = BYTES.iter().all(|key| moves(&own, key)) && own["service"] == "e2e/web";
        let quiet = !moves(&own, "openedPerSecond") && !BYTES.iter().any(|key| moves(&far, key));
        if said && quiet { Ok(()) } else { Err(view) }
    });
    eventually("short connections", || {
        let view = watched(&mut || drop(tcp::ask_from(far, at(family.vip(1), 80)).unwrap()), &clients);
        let (own, far) = (row(&view, own_network), row(&view, far_network));
        let rates = BYTES.iter().chain(&["openedPerSecond"]).all(|key| moves(&far, key));
        let quiet = !moves(&own, "openedPerSecond") && !BYTES.iter().any(|key| moves(&own, key));
        if rates && quiet && far["service"] == "e2e/db" { Ok(()) } else { Err(view) }
    });
    eventually("a flow's bytes", || {
        let view = watched(&mut || drop(flow.ask().unwrap()), &clients);
        let far = row(&view, far_network);
        let rates = BYTES.iter().all(|key| moves(&far, key)) && far["service"] == "e2e/web";
        if rates { Ok(()) } else { Err(view) }
    });
    moved_bytes_are_those_of_endpoints_and_clusters(&world, &mut long);
}

fn a_gateway_that_dies_is_waited_for(family: Family) {
    let world = World::new(1);
    let mut gateway = Gateway::start(&world, &[web(family)]);
    let mut terminal = Terminal::start(&world.gateway, program::path(), &["top"]);
    terminal.until_drawn(81, "e2e/web");
    terminal.press("\r");
    terminal.until_drawn(82, "explained");
    terminal.until_drawn(160, "ENDPOINT");
    terminal.press("G");
    terminal.until_drawn(161, "Changes");
    terminal.press("t");
    terminal.until_drawn(120, "traced");
    terminal.until_drawn(121, "STOPPED:");
    gateway.kill();
    gateway.wait();
    terminal.press("r");
    terminal.until_drawn(140, "since");
    terminal.until_drawn(141, "Connection");
    terminal.press("q");
    terminal.until_drawn(82, "since");
    let next = gateway.successor(&[]);
    drop(gateway.adopt(next));
    eventually("it is live again", || {
        let output = terminal.output();
        let last = |text: &str| output.rfind(text);
        if last("Services:") > last("since") { Ok(()) } else { Err(output) }
    });
    terminal.press("q");
    assert_eq!(terminal.wait_until_restored().code(), Some(0));
}

#[test]
fn the_terminal_is_as_before_after_keys_and_signals() {
    let host = Host::new("terminal");
    let mut demo = host.start(program::path(), &["demo"]);
    let admin = eventually("the demo says what to try", || {
        demo.expect_running();
        let text = demo.stdout();
        let page = text.lines().find_map(|line| line.trim().strip_prefix("PAGE"));
        page.map(|url| url.trim().to_owned()).ok_or(text)
    });
    let start = || {
        let mut terminal = Terminal::start(&host, program::path(), &["top", "--admin", &admin]);
        terminal.until_drawn(81, "mcs/demo/shop");
        terminal
    };
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut terminal = start();
        terminal.signal(signal);
        assert_eq!(terminal.wait_until_restored().code(), Some(0), "{signal}");
    }
    for keys in ["q", "\u{3}", "/web\u{3}"] {
        let mut terminal = start();
        terminal.press(keys);
        assert_eq!(terminal.wait_until_restored().code(), Some(0), "{keys:?}");
    }
    let mut terminal = start();
    terminal.press("\t");
    terminal.until_drawn(100, "127.0.0.31:");
    terminal.press("3");
    terminal.until_drawn(80, "SHARE");
    terminal.press("q");
    assert_eq!(terminal.wait_until_restored().code(), Some(0));

    let without = host.finish(program::path(), &["top", "--admin", &admin]);
    assert!(without.stderr.contains("needs a terminal; --once prints"), "{}", without.stderr);
    assert_eq!(without.code(), Some(64));
    let away = host.finish(program::path(), &["top", "--once", "--admin", "http://127.0.0.1:1"]);
    assert!(away.stderr.contains("does not answer: Connection refused"), "{}", away.stderr);
    assert_eq!(away.code(), Some(69));
    let sorted = host.finish(program::path(), &["top", "--once", "--sort", "nwe", "--admin", &admin]);
    assert!(
        sorted.stderr.contains("there is no column \"nwe\"; sort by service, state"),
        "{}",
        sorted.stderr
    );
    assert_eq!(sorted.code(), Some(64));
}
