//! Tests with more TCP clients than a gateway can hold: they are served as far as possible, and neither the process itself nor other
//! Services starve.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, eventually_within, let_pass, patience};
use crate::support::tcp::{self, Conversation, Server};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    a_crowd_leaves_descriptors_to_the_process_and_to_others,
    a_crowd_leaves_memory_to_the_process_and_to_others,
    a_flood_of_refused_clients_finds_the_door_closed_until_there_is_room,
    half_open_connections_cost_nothing,
    clients_that_do_not_read_cost_little,
    a_service_of_many_ports_has_one_share,
    clients_that_reset_while_their_endpoint_is_silent_give_back_what_they_had,
    ports_used_up_towards_one_endpoint_lead_to_another,
);

fn crowded(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

fn bystander(family: Family) -> SocketAddr {
    at(family.vip(1), 80)
}

/// A Service for the crowd, and another one.
fn apps(family: Family) -> [App; 2] {
    let app = |name: &str, vip: u16| {
        App::new(name, &[family.vip(vip)]).tcp(80, 9000).udp(53, 9053).ready(family.backend(0))
    };
    [app("crowded", 0), app("bystander", 1)]
}

fn servers(world: &World, family: Family) -> (Server, udp::Server) {
    let tcp = Server::who_am_i(world.backend(0), at(family.backend(0), 9000), "tcp");
    (tcp, udp::Server::who_am_i(world.backend(0), at(family.backend(0), 9053), "udp"))
}

/// Connections whose clients send nothing; those that are reset stay in the list. Stops at the first one without an answer, since
/// the listener is then closed and no others would get in.
fn silent(world: &World, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let met_silence = |error: &std::io::Error| error.kind() == ErrorKind::TimedOut;
    world.client.run(|| {
        let connecting = (0..count).map(|_| tcp::connect_from(None, to, patience(5.0)));
        let until_closed = connecting.take_while(|it| !it.as_ref().is_err_and(met_silence));
        until_closed.filter_map(Result::ok).collect()
    })
}

fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    loop {
        match stream.peek(&mut byte) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
            // The greeting of the server.
            Ok(read) => return read > 0,
        }
    }
}

fn expect_bystanders_served(world: &World, family: Family, gateway: &Gateway<'_>) {
    serve_bystanders(world, family, gateway).unwrap_or_else(|error| panic!("{error}"));
}

fn serve_bystanders(world: &World, family: Family, gateway: &Gateway<'_>) -> Result<(), String> {
    assert_eq!(gateway.ask("/readyz").status, 200);
    for _ in 0..20 {
        let asked = world.client.run(|| tcp::ask_from(family.client(1), bystander(family)));
        asked.map_err(|error| format!("another Service is not served: {error}"))?;
        let client = udp::Client::new(&world.client, family.client(1), at(family.vip(1), 53));
        // A datagram may be lost, and a flow may be refused just before room is made; real clients retry as well.
        let asked = (0..3).find_map(|_| client.ask_briefly().ok());
        asked.ok_or("another Service is not served over UDP")?;
    }
    assert_eq!(gateway.ask("/api/routes").status, 200);
    Ok(())
}

const FEW: u32 = 512;
const CROWD: usize = 700;

fn a_crowd_leaves_descriptors_to_the_process_and_to_others(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let settings = Settings { open_files: Some(FEW), ..Settings::default() };
    let gateway = Gateway::start_with(&world, &apps(family), &settings);
    let mut early = world.client.run(|| Conversation::open(crowded(family))).unwrap();
    let crowd = silent(&world, crowded(family), CROWD);
    expect_bystanders_served(&world, family, &gateway);
    early.say("still there?").unwrap();
    let open = crowd.iter().filter(|stream| is_open(stream)).count();
    assert!((50..FEW as usize / 2).contains(&open), "{open} of the crowd are served");
    eventually("those who are refused are told", || {
        let problems = gateway.problems().join("\n");
        let told = problems.contains("Overloaded") && problems.contains("Service e2e/crowded");
        if told { Ok(()) } else { Err(problems) }
    });
    assert!(gateway.metric("sheave_shed_total", &["e2e/crowded", "reason=\"capacity\""]) > 0.0);
    assert!(!gateway.log().contains("cannot accept"), "{}", gateway.log());
    // Changes take effect meanwhile, even with sockets of their own.
    let late = App::new("late", &[family.vip(2)]).tcp(80, 9000).ready(family.backend(0));
    gateway.apply(&[&apps(family)[..], &[late]].concat());
    world.client.run(|| tcp::ask(at(family.vip(2), 80))).expect("a new Service is served");
    drop(crowd);
    eventually("the crowd's places are free again", || {
        world.client.run(|| (0..20).try_for_each(|_| tcp::ask(crowded(family)).map(drop)))
    });
}

/// Far more than fit into the gateway's memory.
const THRONG: usize = 5000;

fn a_crowd_leaves_memory_to_the_process_and_to_others(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let settings = Settings { config: "limits: {memory: 96Mi}\n", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &apps(family), &settings);
    let crowd = silent(&world, crowded(family), THRONG);
    // Without a cgroup of its own, the gateway counts the socket buffers of the whole machine, including those of other cases, which
    // last a while.
    eventually_within(patience(60.0), "others are served beside the crowd", || {
        serve_bystanders(&world, family, &gateway)
    });
    let open = crowd.iter().filter(|stream| is_open(stream)).count();
    assert!((100..THRONG * 9 / 10).contains(&open), "{open} of the crowd are served");
    assert!(gateway.metric("sheave_shed_total", &["e2e/crowded", "reason=\"memory\""]) > 0.0);
    assert!(gateway.usage().resident_kib < 96 << 10, "{} KiB", gateway.usage().resident_kib);
    drop(crowd);
    eventually("there is memory again", || {
        world.client.run(|| (0..20).try_for_each(|_| tcp::ask(crowded(family)).map(drop)))
    });
}

fn a_flood_of_refused_clients_finds_the_door_closed_until_there_is_room(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let [app, other] = apps(family);
    let gateway = Gateway::start(&world, &[app.annotation("sheave.dev/max-connections", "2"), other]);
    let talks = [(); 2].map(|()| world.client.run(|| Conversation::open(crowded(family))).unwrap());
    let knock = || tcp::connect_from(None, crowded(family), Duration::from_millis(300));
    let silence = world.client.run(|| {
        std::thread::scope(|scope| {
            let knocking = [(); 4].map(|()| {
                scope.spawn(|| {
                    (0..20_000)
                        .find_map(|_| knock().err().filter(|error| error.kind() == ErrorKind::TimedOut))
                })
            });
            knocking.into_iter().filter_map(|thread| thread.join().unwrap()).count()
        })
    });
    assert!(silence > 0, "the door stays open");
    expect_bystanders_served(&world, family, &gateway);
    let shed = || gateway.metric("sheave_shed_total", &["e2e/crowded", "reason=\"max_connections\""]);
    let accepted = gateway.metric("sheave_tcp_connections_total", &["e2e/crowded"]);
    let before = shed();
    assert!(world.client.run(knock).is_err(), "it stays closed while there is no room");
    if gateway.metric("sheave_frontends_open", &["by=\"sockets\""]) > 0.0 {
        eventually("who finds it closed is counted", || {
            if shed() > before { Ok(()) } else { Err(shed().to_string()) }
        });
    }
    assert_eq!(gateway.metric("sheave_tcp_connections_total", &["e2e/crowded"]), accepted);
    talks.into_iter().for_each(|mut talk| talk.say("still there?").unwrap());
    eventually("it opens as soon as there is room", || world.client.run(|| tcp::ask(crowded(family))));
}

/// Handshakes without the last packet: far more than the kernel keeps for a listening socket (`net.core.somaxconn`).
const HALF_OPEN: usize = 20_000;

fn half_open_connections_cost_nothing(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let gateway = Gateway::start(&world, &apps(family));
    expect_bystanders_served(&world, family, &gateway);
    // Packets to one client address are dropped, as for a spoofed source.
    let (ip, mute) = (if family == Family::V4 { "ip" } else { "ip6" }, family.client(CLIENTS - 1));
    for rule in [
        "add table inet mute".to_owned(),
        "add chain inet mute in { type filter hook input priority 0; }".to_owned(),
        format!("add rule inet mute in {ip} daddr {mute} meta l4proto tcp drop"),
    ] {
        world.client.finish("nft", &rule.split(' ').collect::<Vec<_>>()).expect_success();
    }
    let before = (gateway.open_files(), gateway.usage().resident_kib);
    world.client.run(|| {
        for _ in 0..HALF_OPEN {
            begin(SocketAddr::new(mute, 0), crowded(family)).unwrap();
        }
    });
    // With a full queue the kernel keeps no state for a handshake (tcp_syncookies), so all clients get in.
    for _ in 0..20 {
        let asked = world.client.run(|| tcp::ask_from(family.client(1), crowded(family)));
        asked.expect("clients of the same Service are served");
    }
    expect_bystanders_served(&world, family, &gateway);
    let after = (gateway.open_files(), gateway.usage().resident_kib);
    // UDP flows of the clients that were served meanwhile remain.
    assert!(after.0 <= before.0 + 30 && after.1 <= before.1 + 4096, "{before:?} became {after:?}");
}

/// Sends a SYN and closes the socket.
fn begin(from: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.bind(&from.into())?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

const SLOW: usize = 400;

fn clients_that_do_not_read_cost_little(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let _endless = Server::endless(world.backend(0), at(family.backend(0), 9001));
    let [_, other] = apps(family);
    let app = App::new("crowded", &[family.vip(0)]).tcp(80, 9001).ready(family.backend(0));
    let gateway = Gateway::start(&world, &[app, other]);
    let before = (gateway.open_files(), gateway.usage().resident_kib);
    let crowd = silent(&world, crowded(family), SLOW);
    assert_eq!(crowd.len(), SLOW);
    let bytes = || gateway.metric("sheave_tcp_bytes_total", &["e2e/crowded"]);
    eventually_within(patience(30.0), "all buffers are full", || {
        let before = bytes();
        let_pass(Duration::from_millis(500));
        if bytes() == before { Ok(()) } else { Err("bytes still pass") }
    });
    let used = gateway.usage().cpu;
    expect_bystanders_served(&world, family, &gateway);
    let_pass(Duration::from_secs(1));
    let used = gateway.usage().cpu.saturating_sub(used);
    assert!(used < patience(0.5), "{used:?} of CPU time for clients that wait");
    let after = (gateway.open_files(), gateway.usage().resident_kib);
    let each = (after.1.saturating_sub(before.1)) / SLOW as u64;
    assert!(each <= 80, "{each} KiB of the process for each");
    // Two descriptors each, and pipes for some of them.
    assert!(after.0 <= before.0 + 2 * SLOW + 2 * 2 * 64 + 10, "{before:?} became {after:?}");
    drop(crowd);
    eventually("nothing of them is left", || {
        match gateway.metric("sheave_tcp_connections", &["e2e/crowded"]) {
            0.0 => Ok(()),
            open => Err(open.to_string()),
        }
    });
}

/// Number of ports of one Service.
const MANY: u16 = 30;

fn a_service_of_many_ports_has_one_share(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let [_, other] = apps(family);
    let app = App::new("crowded", &[family.vip(0)]).ready(family.backend(0));
    let app = (0..MANY).fold(app, |app, port| app.tcp(80 + port, 9000));
    let settings = Settings { open_files: Some(FEW), ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[app, other], &settings);
    let each = CROWD / usize::from(MANY) + 1;
    let ports = (0..MANY).map(|port| at(family.vip(0), 80 + port));
    let crowd: Vec<TcpStream> = ports.flat_map(|to| silent(&world, to, each)).collect();
    expect_bystanders_served(&world, family, &gateway);
    let open = crowd.iter().filter(|stream| is_open(stream)).count();
    assert!(open > 30, "{open} of the crowd are served");
}

fn clients_that_reset_while_their_endpoint_is_silent_give_back_what_they_had(family: Family) {
    let world = World::new(1);
    let app = App::new("crowded", &[family.vip(0)]).tcp(80, 9000).ready(family.black_hole());
    let settings = Settings { connect: "60s", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[app], &settings);
    let before = gateway.open_files();
    let crowd = silent(&world, crowded(family), 300);
    assert_eq!(crowd.len(), 300);
    eventually("they wait for the endpoint", || match gateway.open_files() {
        // A connection of the admin server may have been among the earlier ones.
        open if open >= before + 590 => Ok(()),
        open => Err(format!("{open} descriptors")),
    });
    for stream in &crowd {
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop(crowd);
    eventually("their descriptors are back", || match gateway.open_files() {
        open if open <= before => Ok(()),
        open => Err(format!("{open} descriptors, before there were {before}")),
    });
    assert_eq!(gateway.metric("sheave_tcp_closed_total", &["reason=\"client_reset\""]), 300.0);
}

/// Number of local ports of the gateway.
const PORTS: usize = 8;

fn ports_used_up_towards_one_endpoint_lead_to_another(family: Family) {
    let world = World::new(2);
    let servers = Server::on_every_backend(&world, family, 9000);
    world.gateway.sysctl("ipv4/ip_local_port_range", "40000 40007");
    // Ports of ended connections would otherwise be available again after a minute.
    world.gateway.sysctl("ipv4/tcp_tw_reuse", "1");
    let app = App::new("crowded", &[family.vip(0)]).tcp(80, 9000);
    let app = app.all_ready([family.backend(0), family.backend(1)]);
    // The shared sockets of steered frontends use ports of the range, too.
    let settings = Settings { connect: "300ms", config: "steering: never\n", ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &[app], &settings);
    let open = || world.client.run(|| Conversation::open(crowded(family)));
    let mut talks: Vec<Conversation> = (0..2 * PORTS)
        .map(|number| open().unwrap_or_else(|error| panic!("connection {number}: {error}")))
        .collect();
    assert_eq!(servers.iter().map(Server::accepted).collect::<Vec<_>>(), [PORTS; 2]);
    let error = open().err().expect("there is no port left");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    assert!(gateway.metric("sheave_tcp_closed_total", &["reason=\"connect_failed\""]) > 0.0);
    gateway.wait_for_log("all local ports towards an endpoint are in use", 1..);
    talks.iter_mut().for_each(|talk| talk.say("still there?").unwrap());
    // Waiting connections are cheap: the kernel is not called for each of them.
    let used = gateway.usage().cpu;
    let crowd = silent(&world, crowded(family), 200);
    let_pass(Duration::from_millis(500));
    let used = gateway.usage().cpu.saturating_sub(used);
    assert!(used < patience(0.5), "{used:?} of CPU time for clients that wait");
    drop((crowd, talks));
    eventually("ports are there again", open);
    gateway.expect_running();
}
