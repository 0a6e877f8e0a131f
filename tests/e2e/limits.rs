//! Tests of limits: idle connections, too few file descriptors, and the drain that ends the gateway itself.

use std::io::{ErrorKind, Read, Write as _};
use std::time::{Duration, Instant};

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::tcp::{self, Conversation, Server};
use crate::support::world::{Family, World};

for_both_families!(
    an_idle_connection_ends_and_a_busy_one_does_not,
    a_client_that_reads_what_waits_for_it_is_not_idle,
    too_few_descriptors_pass_by_themselves,
    a_terminated_gateway_lets_connections_finish,
    a_drain_ends_at_its_deadline,
    a_gateway_without_connections_ends_at_once,
    a_killed_gateway_is_replaced_at_once,
);

/// A world of one backend with its server, and the Service in front of it.
fn single(family: Family) -> (World, Server, App) {
    let world = World::new(1);
    let server = Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "backend-0");
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0));
    (world, server, app)
}

fn an_idle_connection_ends_and_a_busy_one_does_not(family: Family) {
    let (world, _server, app) = single(family);
    let settings = Settings { idle: "1s", ..Settings::default() };
    let _gateway = Gateway::start_with(&world, &[app], &settings);
    let open = || world.client.run(|| Conversation::open(vip(family))).unwrap();
    let (mut busy, mut idle) = (open(), open());
    let opened = Instant::now();
    for _ in 0..12 {
        busy.say("still busy").unwrap();
        let_pass(Duration::from_millis(200));
    }
    // A clean close or a reset: the client notices either.
    match idle.ended() {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(opened.elapsed() < Duration::from_secs(3) + patience(2.0), "after {:?}", opened.elapsed());
    busy.say("still busy").unwrap();
}

/// Bytes that the server sends at once. The client reads them in small parts, which takes several times the idle
/// timeout.
const QUEUED: usize = 3 << 20;
const PART: usize = 128 << 10;

/// The gateway relays nothing meanwhile: all data is in its kernel's queue and in the client's.
fn a_client_that_reads_what_waits_for_it_is_not_idle(family: Family) {
    let world = World::new(1);
    let _server = Server::start(world.backend(0), at(family.backend(0), 9000), |mut stream| {
        stream.write_all(&[7; QUEUED])?;
        stream.read_exact(&mut [0])
    });
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0));
    let settings = Settings { idle: "1s", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[app], &settings);
    let mut client = world.client.run(|| tcp::connect(vip(family))).unwrap();
    let mut part = vec![0; PART];
    for read in 0..QUEUED / PART {
        client.read_exact(&mut part).unwrap_or_else(|error| panic!("after {} bytes: {error}", read * PART));
        let_pass(Duration::from_millis(300));
    }
    // Now the connection is idle.
    let ended = client.read(&mut part);
    assert!(
        ended.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |read| *read == 0)
    );
    assert_eq!(gateway.metric("sheave_tcp_closed_total", &["reason=\"idle\""]), 1.0);
}

/// Limits of the gateway's descriptors, far fewer than the connections need. A connection takes two, so with one of
/// these numbers they run out at accept, with the other at connect.
const DESCRIPTORS: [u32; 2] = [128, 129];
/// Number of connections.
const CROWD: usize = 200;

fn too_few_descriptors_pass_by_themselves(family: Family) {
    for descriptors in DESCRIPTORS {
        let settings = Settings { open_files: Some(descriptors), connect: "500ms", ..Settings::default() };
        expect_recovery(family, &settings);
    }
}

fn expect_recovery(family: Family, settings: &Settings) {
    let (world, server, app) = single(family);
    let mut gateway = Gateway::start_with(&world, &[app], settings);
    let mut early = world.client.run(|| Conversation::open(vip(family))).unwrap();
    // Some connect although they will not be served: the kernel completes their handshakes until the listener is
    // closed.
    let connect = |_| world.client.run(|| tcp::connect(vip(family)));
    let crowd: Vec<_> = (0..CROWD).map(connect).collect();
    let (started, used) = (Instant::now(), gateway.usage().cpu);
    for _ in 0..10 {
        early.say("still there?").unwrap();
        let_pass(Duration::from_millis(100));
    }
    let (took, used) = (started.elapsed(), gateway.usage().cpu.saturating_sub(used));
    assert!(used < took / 2, "nothing can be accepted, and still {used:?} of CPU time in {took:?}");
    assert!(server.accepted() < CROWD, "the descriptors sufficed after all");
    drop(crowd);
    // A single success could be luck between two failures.
    eventually_within(patience(20.0), "twenty connections in a row are served", || {
        world.client.run(|| (0..20).try_for_each(|_| tcp::ask(vip(family)).map(drop)))
    });
    early.say("still there?").unwrap();
    gateway.expect_running();
}

fn a_terminated_gateway_lets_connections_finish(family: Family) {
    let (world, _server, app) = single(family);
    let mut gateway = Gateway::start(&world, &[app]);
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    gateway.terminate();
    tcp::until_refused(&world.client, vip(family));
    for _ in 0..5 {
        talk.say("still there?").unwrap();
        let_pass(Duration::from_millis(100));
    }
    gateway.expect_running();
    let ended = Instant::now();
    drop(talk);
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(ended.elapsed() < patience(5.0), "it ended {:?} after its last connection", ended.elapsed());
}

fn a_drain_ends_at_its_deadline(family: Family) {
    let (world, _server, app) = single(family);
    let settings = Settings { drain: "2s", ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &[app], &settings);
    let mut talk = world.client.run(|| tcp::connect(vip(family))).unwrap();
    talk.read_exact(&mut [0; 10]).unwrap();
    let told = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0));
    let took = told.elapsed();
    talk.read_to_end(&mut Vec::new()).expect("FIN, since it rests");
    assert!(took >= Duration::from_millis(1900), "the drain had its time: {took:?}");
    assert!(took < Duration::from_secs(2) + patience(4.0), "the drain had an end: {took:?}");
}

fn a_gateway_without_connections_ends_at_once(family: Family) {
    let (world, _server, app) = single(family);
    let mut gateway = Gateway::start(&world, &[app]);
    world.client.run(|| tcp::ask(vip(family))).unwrap();
    let told = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(told.elapsed() < patience(5.0), "it took {:?}", told.elapsed());
    assert!(!gateway.log().to_lowercase().contains("panicked"), "{}", gateway.log());
}

fn a_killed_gateway_is_replaced_at_once(family: Family) {
    let (world, _server, app) = single(family);
    let gateway = Gateway::start(&world, std::slice::from_ref(&app));
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    world.client.run(|| tcp::ask(vip(family))).unwrap();
    drop(gateway);
    drop(talk.ended());
    // Remains of old connections in the kernel do not block the address.
    let _gateway = Gateway::start(&world, &[app]);
    world.client.run(|| tcp::ask(vip(family))).expect("ready means serving");
}
