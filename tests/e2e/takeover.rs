//! Tests of hot upgrades: another process takes over unnoticed by clients, and one that cannot leaves everything as it was.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::gateway::{Gateway, Settings};
use crate::support::http;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, let_pass};
use crate::support::process::Process;
use crate::support::tcp::{self, Conversation, Server};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    an_upgrade_is_noticed_by_nobody,
    what_changes_with_the_upgrade_is_served_by_the_new_process,
    an_endpoint_that_fails_is_avoided_after_the_upgrade,
    a_process_that_has_handed_over_keeps_its_connections_through_a_first_sigterm,
    connections_left_in_the_former_process_count_against_a_limit,
    a_process_that_is_to_end_waits_for_who_is_about_to_take_over,
    a_process_that_cannot_take_over_changes_nothing,
    a_process_that_dies_on_the_way_changes_nothing,
    a_process_that_stops_on_the_way_is_not_waited_for,
    without_a_process_to_take_over_from_it_simply_starts,
    who_asks_the_former_process_is_answered,
    a_signal_has_another_process_take_over_and_the_service_manager_is_told,
    a_signal_that_leads_to_nothing_changes_nothing,
);

const ENDPOINTS: u16 = 3;
const UPGRADES: usize = 4;
const FLOWS: u16 = 60;

fn web(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

fn sticky(family: Family) -> SocketAddr {
    at(family.vip(1), 80)
}

fn apps(family: Family) -> [App; 2] {
    let endpoints: Vec<_> = (0..ENDPOINTS).map(|index| family.backend(index)).collect();
    let app = |name: &str, vip| {
        App::new(name, &[family.vip(vip)]).tcp(80, 9000).udp(53, 9053).all_ready(endpoints.clone())
    };
    [app("web", 0), app("sticky", 1).affinity(600)]
}

struct Servers {
    _tcp: Vec<Server>,
    _udp: Vec<udp::Server>,
}

fn servers(world: &World, family: Family) -> Servers {
    Servers {
        _tcp: Server::on_every_backend(world, family, 9000),
        _udp: udp::Server::on_every_backend(world, family, 9053),
    }
}

/// Also after a panic, which would otherwise wait for the clients.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens connections until `during` returns. Returns its result and the number of connections. None may fail.
fn beside_new_connections<T>(world: &World, family: Family, during: impl FnOnce() -> T) -> (T, usize) {
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ended = std::thread::scope(|scope| {
        let clients = [(); 3].map(|()| {
            scope.spawn(|| {
                world.client.run(|| {
                    while !over.load(Ordering::Relaxed) {
                        tcp::ask(web(family)).expect("a new connection is served");
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
        });
        let ended = {
            let _over = SetOnDrop(&over);
            during()
        };
        clients.into_iter().for_each(|client| client.join().unwrap());
        ended
    });
    (ended, asked.into_inner())
}

fn an_upgrade_is_noticed_by_nobody(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let mut gateway = Gateway::start(&world, &apps(family));
    let mut talks: Vec<Conversation> =
        (0..20).map(|_| world.client.run(|| Conversation::open(web(family))).unwrap()).collect();
    let flow = |number: u16| {
        let client = udp::Client::new(&world.client, family.client(number % CLIENTS), at(family.vip(0), 53));
        let answer = client.ask().unwrap();
        (client, answer.name, answer.peer)
    };
    let flows: Vec<_> = (0..FLOWS).map(flow).collect();
    let ask_sticky =
        |number| world.client.run(|| tcp::ask_from(family.client(number), sticky(family))).unwrap().name;
    let stuck: Vec<(u16, String)> = (0..CLIENTS).map(|number| (number, ask_sticky(number))).collect();
    let mut former: Vec<Process> = Vec::new();
    let ((), asked) = beside_new_connections(&world, family, || {
        for upgrade in 0..UPGRADES {
            former.push(gateway.upgrade());
            for (client, name, peer) in &flows {
                let answer = client.ask().unwrap_or_else(|error| panic!("after {upgrade} upgrades: {error}"));
                assert_eq!(
                    (&answer.name, answer.peer),
                    (name, *peer),
                    "the flow keeps its endpoint and its port"
                );
            }
            for (number, name) in &stuck {
                assert_eq!(ask_sticky(*number), *name, "affinity is kept");
            }
            talks.iter_mut().for_each(|talk| talk.say("still there?").unwrap());
        }
    });
    assert!(asked > UPGRADES, "{asked} new connections");
    assert_eq!(gateway.ask("/readyz").status, 200);
    assert!(gateway.metric("sheave_udp_flows", &["e2e/web"]) >= f64::from(FLOWS));
    // Unused connections end on their own, and the last process closes what was handed from process to process.
    drop(talks);
    for mut process in former {
        assert!(process.wait().success(), "{}", process.stderr());
    }
    world.client.run(|| tcp::ask(web(family))).unwrap();
    gateway.interrupt();
    gateway.wait();
    tcp::until_refused(&world.client, web(family));
}

fn what_changes_with_the_upgrade_is_served_by_the_new_process(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let [first, second] = apps(family);
    let mut gateway = Gateway::start(&world, &[first.clone(), second]);
    let _former = gateway.upgrade();
    let third = App::new("third", &[family.vip(2)]).tcp(80, 9000).ready(family.backend(2));
    gateway.apply(&[first, third]);
    let asked = world.client.run(|| tcp::ask(at(family.vip(2), 80))).unwrap();
    assert_eq!(asked.name, "backend-2");
    // Whatever state the former process had.
    tcp::until_refused(&world.client, sticky(family));
}

fn an_endpoint_that_fails_is_avoided_after_the_upgrade(family: Family) {
    let world = World::new(ENDPOINTS);
    let servers = servers(&world, family);
    let [web_app, sticky] = apps(family);
    let app = web_app.annotation("sheave.dev/balance", "round-robin");
    let mut gateway = Gateway::start(&world, &[app, sticky]);
    let Servers { _tcp: mut listening, _udp } = servers;
    listening.pop();
    let unhealthy =
        |gateway: &Gateway<'_>| gateway.metric("sheave_endpoints_unhealthy", &["protocol=\"TCP\""]);
    eventually("it is ejected", || {
        world.client.run(|| tcp::ask(web(family))).expect("another endpoint serves");
        let unhealthy = unhealthy(&gateway);
        if unhealthy == 1.0 { Ok(()) } else { Err(format!("{unhealthy} endpoints are unhealthy")) }
    });
    let _former = gateway.upgrade();
    assert_eq!(unhealthy(&gateway), 1.0);
    for _ in 0..2 * ENDPOINTS {
        world.client.run(|| tcp::ask(web(family))).unwrap();
    }
    assert_eq!(gateway.metric("sheave_tcp_connect_retries_total", &[]), 0.0, "nobody is sent there");
}

/// A kubelet deletes the Pod as soon as the next one is ready.
fn a_process_that_has_handed_over_keeps_its_connections_through_a_first_sigterm(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let mut gateway = Gateway::start(&world, &apps(family));
    let mut talk = world.client.run(|| Conversation::open(web(family))).unwrap();
    let mut former = gateway.upgrade();
    former.signal(Signal::SIGTERM);
    let_pass(Duration::from_millis(500));
    talk.say("still there?").unwrap();
    former.signal(Signal::SIGTERM);
    assert!(former.wait().success());
    talk.say("still there?").unwrap_err();
}

fn connections_left_in_the_former_process_count_against_a_limit(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let [web_app, other] = apps(family);
    let mut gateway = Gateway::start(&world, &[web_app.annotation("sheave.dev/max-connections", "2"), other]);
    let open = || world.client.run(|| Conversation::open(web(family))).unwrap();
    let (talk, mut stays) = (open(), open());
    let mut former = gateway.upgrade();
    let ask = || world.client.run(|| tcp::ask(web(family)));
    eventually("the former process has both", || ask().map_or(Ok(()), |answer| Err(answer.name)));
    drop(talk);
    eventually("there is room for one", ask);
    stays.say("still there?").unwrap();
    drop(stays);
    assert!(former.wait().success());
    eventually("there is room for two", || ask().map(|_| drop((open(), open()))));
}

/// A kubelet may delete the Pod before the next one has taken over.
fn a_process_that_is_to_end_waits_for_who_is_about_to_take_over(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let mut gateway = Gateway::start(&world, &apps(family));
    let client = udp::Client::new(&world.client, family.client(1), at(family.vip(0), 53));
    let answer = client.ask().unwrap();
    let ((), _) = beside_new_connections(&world, family, || {
        let mut successor = gateway.successor(&[]);
        eventually("it has said hello", || {
            if gateway.log().contains("about to take over") { Ok(()) } else { Err(gateway.log()) }
        });
        gateway.terminate();
        assert!(gateway.wait().success());
        successor.expect_running();
        let again = client.ask().unwrap();
        assert_eq!((again.name, again.peer), (answer.name.clone(), answer.peer));
        drop(gateway.adopt(successor));
    });
}

fn a_process_that_cannot_take_over_changes_nothing(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let gateway = Gateway::start(&world, &apps(family));
    let config = gateway.state_folder().join("broken.yaml");
    std::fs::write(&config, "workers: many\n").unwrap();
    let ((), _) = beside_new_connections(&world, family, || {
        let mut other = gateway.successor(&[("--node", "other")]);
        assert_eq!(other.wait().code(), Some(69));
        assert!(other.stderr().contains("node"), "{}", other.stderr());
        assert_eq!(gateway.metric("sheave_takeover_failures_total", &[]), 1.0);
        assert!(gateway.ask("/api/status").body.contains("\"failures\": 1"));
        let mut broken = gateway.successor(&[("--config", &config.display().to_string())]);
        assert_eq!(broken.wait().code(), Some(78), "{}", broken.stderr());
    });
    assert_eq!(gateway.ask("/readyz").status, 200);
}

fn a_process_that_dies_on_the_way_changes_nothing(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    // On a busy machine, the first one may have taken over before it is killed.
    let died = (0..5).any(|_| dies_on_the_way(&world, family));
    assert!(died, "none died before it had taken over");
}

/// Kills successors, each a little later than the previous one, until one has taken over. Returns whether any had not.
fn dies_on_the_way(world: &World, family: Family) -> bool {
    let mut gateway = Gateway::start(world, &apps(family));
    let client = udp::Client::new(&world.client, family.client(1), at(family.vip(0), 53));
    let name = client.ask().unwrap().name;
    let mut died = 0;
    for step in 0..20 {
        let mut successor = gateway.successor(&[]);
        let_pass(Duration::from_millis(3 * step));
        successor.signal(Signal::SIGKILL);
        successor.wait();
        if gateway.log().contains("HandedOver") {
            // It was the process that served.
            break;
        }
        died += 1;
        gateway.expect_running();
        for _ in 0..5 {
            world.client.run(|| tcp::ask(web(family))).expect("the gateway goes on");
        }
        assert_eq!(client.ask().unwrap().name, name);
    }
    died > 0
}

fn a_process_that_stops_on_the_way_is_not_waited_for(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let gateway = Gateway::start(&world, &apps(family));
    let successor = gateway.successor(&[]);
    eventually("it has said hello", || {
        if gateway.log().contains("about to take over") { Ok(()) } else { Err(gateway.log()) }
    });
    successor.signal(Signal::SIGSTOP);
    for _ in 0..5 {
        let asked = world.client.run(|| tcp::ask(web(family)));
        if gateway.log().contains("HandedOver") {
            return;
        }
        asked.expect("the gateway goes on");
    }
}

/// For a moment both processes accept connections to the admin server, and a client may send its request later.
fn who_asks_the_former_process_is_answered(family: Family) {
    let world = World::new(ENDPOINTS);
    let mut gateway = Gateway::start(&world, &apps(family));
    let connections = [(); 2].map(|()| gateway.connect());
    // Whoever connects later is accepted later.
    gateway.get("/readyz");
    let former = gateway.upgrade();
    for (connection, path) in connections.into_iter().zip(["/api/status", "/readyz"]) {
        let answer = http::get_on(connection, path).expect("it is answered");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(!answer.body.contains(r#""draining": true"#), "the node serves: {}", answer.body);
    }
    drop(former);
}

fn without_a_process_to_take_over_from_it_simply_starts(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let mut gateway = Gateway::start_with(&world, &apps(family), &Settings::default());
    gateway.kill();
    gateway.wait();
    let mut successor = gateway.successor(&[]);
    eventually("it serves", || {
        successor.expect_running();
        world.client.run(|| tcp::ask(web(family)))
    });
}

fn a_signal_has_another_process_take_over_and_the_service_manager_is_told(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let settings = Settings { managed: true, ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &apps(family), &settings);
    assert_eq!(gateway.notification(), "READY=1");
    let (told, _) = beside_new_connections(&world, family, || {
        gateway.reload();
        assert!(gateway.notification().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        // The other process reports that it is ready, which counts only from the main one.
        std::iter::repeat_with(|| gateway.notification()).find(|it| it.starts_with("MAINPID=")).unwrap()
    });
    let (main, ready) = told.split_once('\n').unwrap();
    assert_eq!(ready, "READY=1");
    assert!(gateway.wait().success());
    world.client.run(|| tcp::ask(web(family))).expect("the other process serves");
    let main: i32 = main.trim_start_matches("MAINPID=").parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(main), Signal::SIGINT).unwrap();
    tcp::until_refused(&world.client, web(family));
}

fn a_signal_that_leads_to_nothing_changes_nothing(family: Family) {
    let world = World::new(ENDPOINTS);
    let _servers = servers(&world, family);
    let settings = Settings { managed: true, ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &apps(family), &settings);
    assert_eq!(gateway.notification(), "READY=1");
    std::fs::write(gateway.state_folder().join("../config.yaml"), "workers: many\n").unwrap();
    let ((), _) = beside_new_connections(&world, family, || {
        gateway.reload();
        assert!(gateway.notification().starts_with("RELOADING=1"));
        assert_eq!(gateway.notification(), "READY=1", "the reload is over");
    });
    gateway.expect_running();
    eventually("it says why", || {
        if gateway.log().contains("no other process has taken over") { Ok(()) } else { Err(gateway.log()) }
    });
}
