//! Tests of the log of ended connections: the contents of a line, and that a slow reader delays no traffic.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};

use serde_json::Value;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::patience::eventually;
use crate::support::tcp;
use crate::support::world::{Family, World};

for_both_families!(
    a_line_tells_how_a_connection_ended,
    only_the_services_that_ask_for_it_are_logged,
    what_is_open_when_a_gateway_ends_is_logged,
    clients_do_not_wait_for_a_reader_that_is_stuck,
);

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0))
}

fn logged(family: Family) -> App {
    web(family).annotation("sheave.dev/connection-log", "100%")
}

/// The lines so far, once there are this many.
fn lines(gateway: &Gateway<'_>, count: usize) -> Vec<Value> {
    let mut lines = Vec::new();
    eventually("connections are logged", || {
        let output = gateway.output();
        lines = output.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        if lines.len() >= count { Ok(()) } else { Err(output) }
    });
    assert_eq!(lines.len(), count, "{lines:?}");
    lines
}

/// Sends this many bytes, receives them back, and closes the connection normally.
fn echo(to: SocketAddr, bytes: usize) {
    let mut stream = tcp::connect(to).expect("connected");
    stream.write_all(&vec![7; bytes]).expect("sent");
    stream.shutdown(Shutdown::Write).expect("ended");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("received");
    assert_eq!(back.len(), bytes);
}

fn a_line_tells_how_a_connection_ended(family: Family) {
    let world = World::new(1);
    let _server = tcp::Server::echo(world.backend(0), at(family.backend(0), 9000));
    // Its port has no listener.
    let broken = App::new("broken", &[family.vip(1)])
        .tcp(80, 9001)
        .ready(family.backend(0))
        .annotation("sheave.dev/connection-log", "100%");
    let gateway = Gateway::start(&world, &[logged(family), broken]);
    let client = world.client.run(|| {
        echo(vip(family), 50_000);
        let mut stream = tcp::connect(vip(family)).expect("connected");
        let client = stream.local_addr().expect("an address");
        stream.write_all(b"hello").expect("sent");
        stream.read_exact(&mut [0; 5]).expect("received");
        tcp::reset(stream);
        tcp::connect(at(family.vip(1), 80)).and_then(|mut stream| stream.read(&mut [0])).unwrap_err();
        client
    });
    let lines = lines(&gateway, 3);
    let of = |reason: &str| lines.iter().find(|line| line["reason"] == reason).expect(reason);
    let finished = of("finished");
    assert_eq!((&finished["clientBytes"], &finished["endpointBytes"]), (&50_000.into(), &50_000.into()));
    assert_eq!(finished["service"], "e2e/web");
    assert_eq!(finished["frontend"], vip(family).to_string());
    assert_eq!(finished["endpoint"], at(family.backend(0), 9000).to_string());
    assert_eq!(finished["cluster"], "local");
    let seconds = |key: &str| finished[key].as_f64().expect(key);
    assert!(seconds("durationSeconds") >= seconds("connectSeconds"), "{finished}");
    let reset = of("client_reset");
    assert_eq!(reset["client"], client.to_string());
    assert_eq!((&reset["clientBytes"], &reset["endpointBytes"]), (&5.into(), &5.into()));
    let failed = of("connect_failed");
    assert_eq!((&failed["service"], failed.get("connectSeconds")), (&"e2e/broken".into(), None));
    assert_eq!(failed["endpoint"], at(family.backend(0), 9001).to_string(), "the one that was tried");
    let written = gateway.metric("sheave_connection_log_lines_total", &["outcome=\"written\""]);
    assert!((written - 3.0).abs() < 0.5, "{written}");
}

fn only_the_services_that_ask_for_it_are_logged(family: Family) {
    let world = World::new(1);
    let _server = tcp::Server::echo(world.backend(0), at(family.backend(0), 9000));
    let quiet = App::new("quiet", &[family.vip(1)])
        .tcp(80, 9000)
        .ready(family.backend(0))
        .annotation("sheave.dev/connection-log", "0%");
    let settings = Settings { config: "connectionLog: {sample: 100%}", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[web(family), quiet.clone()], &settings);
    let both = || {
        world.client.run(|| {
            echo(at(family.vip(1), 80), 10);
            echo(vip(family), 10);
        });
    };
    both();
    assert_eq!(lines(&gateway, 1)[0]["service"], "e2e/web");
    gateway.reconfigure(&Settings::default());
    both();
    gateway.apply(&[logged(family), quiet]);
    both();
    assert_eq!(lines(&gateway, 2)[1]["service"], "e2e/web");
}

fn what_is_open_when_a_gateway_ends_is_logged(family: Family) {
    let world = World::new(1);
    let _server = tcp::Server::echo(world.backend(0), at(family.backend(0), 9000));
    let settings = Settings { drain: "1ms", ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &[logged(family)], &settings);
    let open: Vec<_> = world.client.run(|| {
        let open = |_| {
            let mut stream = tcp::connect(vip(family)).expect("connected");
            stream.write_all(b"x").expect("sent");
            stream.read_exact(&mut [0]).expect("received");
            stream
        };
        (0..20).map(open).collect()
    });
    gateway.terminate();
    assert!(gateway.wait().success());
    assert!(lines(&gateway, 20).iter().all(|line| line["reason"] == "aborted"), "{}", gateway.output());
    drop(open);
}

fn clients_do_not_wait_for_a_reader_that_is_stuck(family: Family) {
    let world = World::new(1);
    let _server = tcp::Server::echo(world.backend(0), at(family.backend(0), 9000));
    // Opening a FIFO in both directions does not wait for a reader; the pipe holds 64 KiB.
    let script = r#"fifo=$(mktemp -u) && mkfifo "$fifo" && exec 1<>"$fifo" && rm "$fifo" && exec "$0" "$@""#;
    let behind = ["sh", "-c", script].map(str::to_owned).to_vec();
    let config = "connectionLog: {linesPerService: 1000000}";
    let settings = Settings { behind, config, drain: "1ms", ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &[logged(family)], &settings);
    world.client.run(|| (0..600).for_each(|_| echo(vip(family), 100)));
    let written = gateway.metric("sheave_connection_log_lines_total", &["outcome=\"written\""]);
    assert!((1.0..600.0).contains(&written), "{written}");
    gateway.terminate();
    assert!(gateway.wait().success());
}
