//! Half an hour of everything: connections short, long and heavy, UDP flows, affinity, transparent sources and steered frontends, while
//! endpoints, Services and the process itself come and go. In the end the process uses as many resources as at the start, and every
//! connection, datagram and byte is accounted for.

mod ledger;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use self::ledger::Ledger;
use crate::load::{Client, Connections, Flows, ShortFlows, Talks};
use crate::servers::{Servers, Site};
use crate::support::gateway::{Gateway, Settings};
use crate::support::length::by_length;
use crate::support::load::Load;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::tcp::{self, Server};
use crate::support::world::{CLIENTS, Family, World};
use crate::timeline::{Tally, Timeline};

const FAMILY: Family = Family::V4;
const BACKENDS: u16 = 2;
const ADDRESSES: u16 = 4;
const PORT: u16 = 9000;
const BULK_PORT: u16 = 9001;

/// Bytes that a heavy connection sends and receives back.
const BULK: usize = 1 << 20;

/// Rates of all Services together.
fn rates() -> (f64, f64) {
    by_length((100.0, 100.0), (600.0, 600.0))
}

/// Duration with upgrades, and then without, so that one process has time to grow.
fn times() -> (Duration, Duration) {
    let (with, without) = by_length((2, 5), (600, 1230));
    (Duration::from_secs(with), Duration::from_secs(without))
}

fn web() -> SocketAddr {
    at(FAMILY.vip(0), 80)
}

fn clear() -> SocketAddr {
    at(FAMILY.vip(1), 80)
}

fn steered() -> SocketAddr {
    at(FAMILY.vip(2), 80)
}

fn sticky() -> SocketAddr {
    at(FAMILY.vip(3), 80)
}

fn bulk() -> SocketAddr {
    at(FAMILY.vip(0), 81)
}

fn endpoints() -> Vec<SocketAddr> {
    let of_backend =
        |index| (0..ADDRESSES).map(move |number| at(FAMILY.backend_address(index, number), PORT));
    (0..BACKENDS).flat_map(of_backend).collect()
}

/// Initially the only Service, so that only it is steered.
fn steered_app() -> App {
    both(App::new("steered", &[FAMILY.vip(2)])).all_ready(endpoints().iter().map(SocketAddr::ip))
}

fn both(app: App) -> App {
    app.tcp(80, PORT).udp(80, PORT)
}

/// All Services after this many changes: one endpoint of `web` is removed and one terminates, and another Service comes and goes.
fn apps(change: usize) -> Vec<App> {
    let ips: Vec<IpAddr> = endpoints().iter().map(SocketAddr::ip).collect();
    let (away, terminating) = (change % ips.len(), (change + 3) % ips.len());
    let web =
        ips.iter().enumerate().fold(
            both(App::new("web", &[FAMILY.vip(0)])),
            |app, (number, ip)| match number {
                _ if number == away => app,
                _ if number == terminating => app.terminating(*ip),
                _ => app.ready(*ip),
            },
        );
    let clear = both(App::new("clear", &[FAMILY.vip(1)])).local_policy();
    let clear = ips.iter().fold(clear, |app, ip| app.ready_here(*ip));
    let sticky = both(App::new("sticky", &[FAMILY.vip(3)])).affinity(600).all_ready(ips.iter().copied());
    let bulk = App::new("bulk", &[FAMILY.vip(0)]).tcp(81, BULK_PORT).ready(FAMILY.backend(0));
    let passing =
        App::new("passing", &[FAMILY.vip(change as u16 % 4)]).tcp(1000 + change as u16 % 1000, PORT);
    let mut apps = vec![web, clear, steered_app(), sticky, bulk];
    if change.is_multiple_of(2) {
        apps.push(passing.all_ready(ips));
    }
    apps
}

fn serve(world: &World) -> (Servers, Server) {
    let site = |(number, addr): (usize, SocketAddr)| Site {
        host: world.backend(number / usize::from(ADDRESSES)),
        addr,
        name: format!("endpoint-{number}"),
    };
    let sites: Vec<Site<'_>> = endpoints().into_iter().enumerate().map(site).collect();
    (Servers::start(&sites), Server::echo(world.backend(0), at(FAMILY.backend(0), BULK_PORT)))
}

/// All clients.
struct Everything {
    clients: Vec<Client>,
    talks: Client,
    bulk: Load,
}

/// Number of flows and of long-lived connections.
fn steady() -> (usize, usize) {
    by_length((8, 8), (200, 200))
}

impl Everything {
    fn start(world: &World) -> Self {
        let sources: Vec<IpAddr> = (0..CLIENTS).map(|number| FAMILY.client(number)).collect();
        let ((connections, flows), (lasting_flows, talks)) = (rates(), steady());
        let mut clients = Vec::new();
        for (to, share) in [(web(), 0.5), (clear(), 0.25), (steered(), 0.25)] {
            let visits =
                Connections { sources: sources.clone(), to, rate: connections * share, sticky: false };
            clients.push(Client::start(&world.client, move |shared| visits.run(shared)));
            let questions = ShortFlows { sources: sources.clone(), to, rate: flows * share };
            clients.push(Client::start(&world.client, move |shared| questions.run(shared)));
        }
        let loyal =
            Connections { sources: sources.clone(), to: sticky(), rate: f64::from(CLIENTS), sticky: true };
        clients.push(Client::start(&world.client, move |shared| loyal.run(shared)));
        let lasting = Flows { sources: sources.clone(), to: sticky(), count: lasting_flows };
        clients.push(Client::start(&world.client, move |shared| lasting.run(shared)));
        let talks = Talks { sources, to: web(), count: talks };
        let talks = Client::start(&world.client, move |shared| talks.run(shared));
        clients.iter().for_each(|client| client.wait_for_start(1));
        Self { clients, talks, bulk: Load::start(&world.client, 1, |_| heavy()) }
    }

    /// Stops all clients: their counts, and the number of heavy connections.
    fn stop(self) -> (Vec<Tally>, u64) {
        let tallies = self.clients.into_iter().chain([self.talks]).map(Client::stop).collect();
        (tallies, self.bulk.expect_no_failure())
    }
}

/// One heavy connection, which lasts a second.
fn heavy() -> io::Result<()> {
    const PIECE: usize = 128 << 10;
    let (mut stream, piece, mut echo) = (tcp::connect(bulk())?, vec![7; PIECE], vec![0; PIECE]);
    for _ in 0..BULK / PIECE {
        stream.write_all(&piece)?;
        stream.read_exact(&mut echo)?;
        if echo != piece {
            return Err(io::Error::other("other bytes came back"));
        }
    }
    stream.shutdown(Shutdown::Write)?;
    let rest = stream.read(&mut echo)?;
    let_pass(Duration::from_millis(900));
    if rest == 0 { Ok(()) } else { Err(io::Error::other("bytes that nobody asked for")) }
}

/// Changes objects once per second for `time`. Returns the process's memory after each change.
fn churn(gateway: &Gateway<'_>, everything: &Everything, time: Duration, changes: &mut usize) -> Vec<u64> {
    let (began, mut memory) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        *changes += 1;
        gateway.apply(&apps(*changes));
        everything.talks.renew(1);
        memory.push(gateway.usage().resident_kib);
        let next = Duration::from_secs(memory.len() as u64);
        let_pass(next.saturating_sub(began.elapsed()));
    }
    memory
}

fn wait_until_idle(gateway: &Gateway<'_>) {
    eventually_within(patience(30.0), "nothing is open any more", || {
        let gauges = ["sheave_gateway_tcp_connections", "sheave_gateway_udp_flows"];
        let open = gauges.map(|gauge| gateway.metric(gauge, &[]));
        if open == [0.0; 2] { Ok(()) } else { Err(format!("{open:?}")) }
    });
}

/// Growth of memory from the end of the warm-up to the end, as a share; each value is the median of a tenth of the samples.
fn growth(memory: &[u64]) -> f64 {
    let tenth = (memory.len() / 10).max(1);
    let median = |samples: &[u64]| {
        let mut samples = samples.to_vec();
        samples.sort_unstable();
        samples[samples.len() / 2] as f64
    };
    median(&memory[memory.len() - tenth..]) / median(&memory[2 * tenth..3 * tenth]) - 1.0
}

/// A gateway that steers one Service, if the machine allows it, and none of the others.
fn start(world: &World) -> Gateway<'_> {
    let settings = Settings {
        config: "steering: always\n",
        udp_idle: by_length("2s", "5s"),
        drain: "1h",
        ..Settings::default()
    };
    let mut gateway = Gateway::start_with(world, &[steered_app()], &settings);
    let steers = gateway.steering()["unavailable"].is_null();
    let config = gateway.state_folder().join("../config.yaml");
    let text = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, text.replace("steering: always", "steering: auto")).expect("a file is written");
    // A steered frontend stays steered.
    assert!(gateway.upgrade().wait().success());
    gateway.apply(&apps(0));
    let (steered, sockets) = ["steering", "sockets"]
        .map(|by| gateway.metric("sheave_frontends_open", &[&format!("by=\"{by}\"")]))
        .into();
    assert!(sockets > 2.0 && (!steers || steered == 2.0), "{steered} steered, {sockets} with sockets");
    gateway
}

#[test]
fn everything_is_accounted_for_in_the_end() {
    let world = World::with_addresses(BACKENDS, ADDRESSES);
    let (servers, _bulk) = serve(&world);
    let mut gateway = start(&world);
    let ((with_upgrades, without), upgrades) = (times(), by_length(1, 5));
    let (mut timeline, mut changes, mut former) = (Timeline::default(), 0, Vec::new());

    let everything = Everything::start(&world);
    for upgrade in 1..=upgrades {
        churn(&gateway, &everything, with_upgrades / (upgrades + 1), &mut changes);
        former.push(timeline.during(format!("upgrade {upgrade}"), || gateway.upgrade()));
    }
    churn(&gateway, &everything, with_upgrades / (upgrades + 1), &mut changes);
    let (first, _) = everything.stop();
    timeline.expect_no_failure(&first);
    wait_until_idle(&gateway);

    // A new process, whose counts start here.
    former.push(gateway.upgrade());
    former.iter_mut().for_each(|process| assert!(process.wait().success(), "{}", process.stderr()));
    let (ledger, descriptors) = (Ledger::open(&servers), gateway.open_files());
    let everything = Everything::start(&world);
    let began = changes;
    let memory = churn(&gateway, &everything, without, &mut changes);
    let (tallies, heavy) = everything.stop();
    timeline.expect_no_failure(&tallies);
    wait_until_idle(&gateway);
    ledger.expect_balanced(&gateway, &tallies, heavy, changes - began);
    let growth = growth(&memory);
    let (memory, limit) = (memory.last().copied().unwrap_or_default(), by_length(0.3, 0.05));
    assert!(growth <= limit, "memory grew by {:.1} % to {memory} KiB", growth * 100.0);
    eventually_within(patience(10.0), "descriptors are given back", || match gateway.open_files() {
        now if now <= descriptors => Ok(()),
        now => Err(format!("{now}, after {descriptors}")),
    });
    assert_eq!(gateway.warnings(), "");
    let done =
        |name| first.iter().chain(&tallies).filter(|it| it.name == name).map(|it| it.done).sum::<u64>();
    println!(
        "soak: {:?} with {upgrades} upgrades and {:?} without, {changes} changes: {} connections, {} UDP flows of one question, {} \
         messages on long-lived connections, {} datagrams of flows, none failed; every connection, datagram and byte accounted for; \
         memory {:+.1} % to {} MiB; {descriptors} descriptors before and after",
        with_upgrades,
        without,
        done("new connections") + done("connections with affinity"),
        done("UDP flows of one question"),
        done("messages on long-lived connections"),
        done("datagrams of flows"),
        growth * 100.0,
        memory / 1024,
    );
}
