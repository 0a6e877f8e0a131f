//! Tests of connections beyond the maximum age of their Service: how they end, and that others continue.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Duration;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::patience::let_pass;
use crate::support::tcp::{self, Conversation};
use crate::support::world::{Family, World};

for_both_families!(
    an_old_connection_ends_in_a_pause_and_its_client_reaches_a_new_endpoint,
    an_old_connection_without_a_pause_is_reset_after_its_grace,
    a_request_of_an_old_connection_is_answered_first,
);

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000)
}

fn aging(family: Family, age: &str, grace: &str) -> App {
    web(family)
        .annotation("sheave.dev/max-connection-age", age)
        .annotation("sheave.dev/max-connection-age-grace", grace)
}

fn expect_ended(gateway: &Gateway<'_>, connections: f64) {
    let ended = gateway.metric("sheave_tcp_closed_total", &["e2e/web", "reason=\"max_age\""]);
    assert!((ended - connections).abs() < 0.5, "{ended}");
}

fn an_old_connection_ends_in_a_pause_and_its_client_reaches_a_new_endpoint(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let other = App::new("other", &[family.vip(1)]).tcp(80, 9000).ready(family.backend(0));
    let old = aging(family, "1s", "1h");
    let gateway = Gateway::start(&world, &[old.clone().ready(family.backend(0)), other.clone()]);
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    let mut young = world.client.run(|| Conversation::open(at(family.vip(1), 80))).unwrap();
    assert_eq!(talk.with.name, "backend-0");
    gateway.apply(&[old.ready(family.backend(1)), other]);
    talk.say("goes on").unwrap();
    talk.ended().expect("FIN");
    expect_ended(&gateway, 1.0);
    assert_eq!(world.client.run(|| Conversation::open(vip(family))).unwrap().with.name, "backend-1");
    young.say("of another Service").unwrap();
}

fn an_old_connection_without_a_pause_is_reset_after_its_grace(family: Family) {
    let world = World::new(1);
    let _server = tcp::Server::endless(world.backend(0), at(family.backend(0), 9000));
    let gateway = Gateway::start(&world, &[aging(family, "1s", "1s").ready(family.backend(0))]);
    let mut stream = world.client.run(|| tcp::connect(vip(family))).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let end = loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("half an answer looks like a whole one"),
            Ok(_) => let_pass(Duration::from_millis(10)),
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    expect_ended(&gateway, 1.0);
}

fn a_request_of_an_old_connection_is_answered_first(family: Family) {
    let world = World::new(1);
    let (_server, connections) = tcp::Server::handing_over(world.backend(0), at(family.backend(0), 9000));
    let settings = Settings::default();
    let gateway =
        Gateway::start_with(&world, &[aging(family, "1s", "1h").ready(family.backend(0))], &settings);
    let mut client = world.client.run(|| tcp::connect(vip(family))).unwrap();
    let mut server = connections.recv().unwrap();
    client.write_all(b"?").unwrap();
    server.read_exact(&mut [0]).unwrap();
    // Longer than age, jitter, and several pauses.
    let_pass(Duration::from_secs(6));
    server.write_all(b"!").unwrap();
    client.read_exact(&mut [0]).unwrap();
    expect_ended(&gateway, 0.0);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "and the pause after the answer ends it");
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    expect_ended(&gateway, 1.0);
}
