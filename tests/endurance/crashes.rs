//! Tests of processes that are killed under load: only unavoidable requests fail, and none after the next process
//! serves.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::load::{Mixed, Targets};
use crate::scale::Amount;
use crate::servers::Servers;
use crate::stage::{ENDPOINTS, Role, Sheave, Stage};
use crate::support::cluster::Cluster;
use crate::support::length::by_length;
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::road::Road;
use crate::support::tcp;
use crate::timeline::{Failure, Kind, Tally, Timeline};
use crate::town::{self, Town, WEB};

/// Half of everything, since all clients and endpoints are on one machine.
fn amount() -> Amount {
    let Amount { connections_per_second, long_lived, flows, affinity_clients } = Amount::full();
    Amount { connections_per_second: connections_per_second / 2.0, long_lived, flows, affinity_clients }
}

fn wait_for_snapshot(gateway: &Sheave<'_>) {
    town::wait_for_status(gateway, "the snapshot is written", |status| {
        !status["source"]["snapshot"]["writtenAt"].is_null()
    });
}

/// Time from `started` until a connection to `to` is served.
fn served_after(stage: &Stage<'_>, started: Instant, to: IpAddr) -> Duration {
    let greeting = || {
        let mut stream = tcp::connect(SocketAddr::new(to, 80))?;
        stream.read_exact(&mut [0])
    };
    stage.host.run(|| eventually_within(patience(30.0), "the Service is served", greeting));
    started.elapsed()
}

/// Time from the first to the last refused request.
fn refused_for(tally: &Tally) -> Duration {
    let refused = tally.failures.iter().filter(|failure| failure.kind == Kind::Refused);
    let (first, last) = (refused.clone().map(|it| it.since).min(), refused.map(|it| it.since).max());
    first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first)
}

fn totals(tallies: &[Tally]) -> String {
    tallies.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn is_new(tally: &Tally) -> bool {
    tally.name.contains("connections") && !tally.name.contains("long-lived")
}

/// Checks that no request fails that starts after the next process serves. Affinity is as before, since the
/// endpoints are.
fn expect_all_served_since(served: Instant, timeline: &Timeline, tallies: &[Tally]) {
    timeline.expect(tallies, |tally, failure| match failure.kind {
        Kind::Moved => !is_new(tally),
        Kind::Refused | Kind::Reset | Kind::Cut | Kind::Silent => !is_new(tally) || failure.since < served,
        // Flows of a process that is gone are new to the next one.
        Kind::Renumbered => true,
        Kind::Other => false,
    });
}

#[test]
fn a_killed_gateway_serves_again_from_its_snapshot_without_the_api_server() {
    let others = by_length(100, 9_998);
    let cluster = Cluster::simulated("killed");
    let stage = Stage::new(&cluster);
    let _town = Town::new(&cluster, &stage, others);
    let _servers: Vec<Servers> = (0..ENDPOINTS.len()).map(|number| town::serve(&stage, number)).collect();
    let road = stage.road();
    let home = stage.home(Role::Gateway, &road, "");
    let gateway = stage.start(&home);
    wait_for_snapshot(&gateway);
    let targets = town::targets(&stage, amount());
    let load = Mixed::start(&stage.host, amount(), targets);
    road.close();
    let (mut timeline, started) = (Timeline::default(), Instant::now());
    timeline.during("the kill".to_owned(), || gateway.kill());
    let relaunched = Instant::now();
    let _gateway = stage.launch(&home);
    let took = served_after(&stage, relaunched, IpAddr::V4(WEB));
    let served = Instant::now();
    let_pass(Duration::from_secs(by_length(1, 5)));
    let tallies = load.stop();
    expect_all_served_since(served, &timeline, &tallies);
    println!(
        "kill -9 of a gateway with {} Services, the API server away: a new process serves {} ms after its start; new connections \
         were refused for {} ms, {} ms after the kill all is served: {}",
        others + 2,
        took.as_millis(),
        refused_for(&tallies[0]).as_millis(),
        (served - started).as_millis(),
        totals(&tallies)
    );
}

/// Stage with all processes.
struct Play<'p> {
    stage: &'p Stage<'p>,
    targets: Targets,
    timeline: Timeline,
}

impl Play<'_> {
    /// Runs the load while something is killed, and returns the counts of the load.
    fn during<T>(&mut self, what: &str, act: impl FnOnce() -> T) -> (T, Vec<Tally>) {
        let load = Mixed::start(&self.stage.host, amount(), self.targets.clone());
        let done = self.timeline.during(what.to_owned(), act);
        let_pass(Duration::from_secs_f64(by_length(0.5, 5.0)));
        let tallies = load.stop();
        println!("kill -9 of {what}: {}", totals(&tallies));
        (done, tallies)
    }
}

/// Whether a failure is due to a killed endpoint: its connections, flows and clients fail, while new ones go
/// elsewhere.
fn goes_with_an_endpoint(killed: Instant, tally: &Tally, failure: &Failure) -> bool {
    match failure.kind {
        Kind::Moved => true,
        Kind::Reset | Kind::Cut => !is_new(tally) || failure.since <= killed,
        Kind::Refused | Kind::Silent | Kind::Renumbered => tally.name.contains("flows"),
        Kind::Other => false,
    }
}

fn kill_endpoints(play: &mut Play<'_>, servers: &mut [Option<Servers>]) {
    for (number, server) in servers.iter_mut().enumerate() {
        let (killed, tallies) = play.during(&format!("endpoint {number}"), || {
            drop(server.take());
            let killed = Instant::now();
            let_pass(Duration::from_millis(by_length(200, 1000)));
            *server = Some(town::serve(play.stage, number));
            killed
        });
        play.timeline.expect(&tallies, |tally, failure| goes_with_an_endpoint(killed, tally, failure));
    }
}

#[test]
fn everything_is_killed_in_turn() {
    let cluster = Cluster::simulated("turns");
    let stage = Stage::new(&cluster);
    let _town = Town::new(&cluster, &stage, 0);
    let mut servers: Vec<_> = (0..ENDPOINTS.len()).map(|number| Some(town::serve(&stage, number))).collect();
    let (road, other_road): (Road<'_>, Road<'_>) = (stage.road(), stage.road());
    let home = stage.home(Role::Gateway, &road, "");
    let controller_home = stage.home(Role::Controller, &other_road, "");
    let (gateway, controller) = (stage.start(&home), stage.start(&controller_home));
    wait_for_snapshot(&gateway);
    let targets = town::targets(&stage, amount());
    let mut play = Play { stage: &stage, targets, timeline: Timeline::default() };

    let (_controller, tallies) = play.during("the controller", || {
        controller.kill();
        stage.launch(&controller_home)
    });
    play.timeline.expect_no_failure(&tallies);

    let server = cluster.test_server().expect("the test API server");
    let ((), tallies) = play.during("the API server", || {
        server.stop();
        let_pass(Duration::from_millis(by_length(200, 2000)));
        server.resume();
    });
    play.timeline.expect_no_failure(&tallies);

    let ((_gateway, served), tallies) = play.during("the gateway", || {
        gateway.kill();
        let gateway = stage.launch(&home);
        served_after(&stage, Instant::now(), IpAddr::V4(WEB));
        (gateway, Instant::now())
    });
    expect_all_served_since(served, &play.timeline, &tallies);
    println!(
        "kill -9 of the gateway: new connections were refused for {} ms",
        refused_for(&tallies[0]).as_millis()
    );

    // Last, since their clients then have other endpoints than the first pick.
    kill_endpoints(&mut play, &mut servers);
}
