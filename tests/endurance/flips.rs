//! Tests of endpoints that become ready, unready and terminating in random order, under load: no request
//! fails.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::load::{Client, Connections, Talks};
use crate::scale::Amount;
use crate::servers::Servers;
use crate::stage::{ENDPOINTS, Role, Stage};
use crate::support::cluster::Cluster;
use crate::support::length::by_length;
use crate::support::patience::let_pass;
use crate::timeline::Timeline;
use crate::town::{self, State, Town};

/// Changes the state of one endpoint, such that at least one is ready.
fn flip(states: &mut [State; ENDPOINTS.len()], random: &mut Rng) {
    loop {
        let mut next = *states;
        let state = [State::Ready, State::Unready, State::Terminating][random.usize(..3)];
        next[random.usize(..next.len())] = state;
        if next != *states && next.contains(&State::Ready) {
            *states = next;
            return;
        }
    }
}

#[test]
fn endpoints_that_change_all_the_time_fail_nobody() {
    let cluster = Cluster::simulated("flips");
    let stage = Stage::new(&cluster);
    let town = Town::new(&cluster, &stage, 0);
    let _servers: Vec<Servers> = (0..ENDPOINTS.len()).map(|number| town::serve(&stage, number)).collect();
    let road = stage.road();
    let gateway = stage.start(&stage.home(Role::Gateway, &road, ""));
    let amount = Amount::full();
    let targets = town::targets(&stage, amount);
    let rate = amount.connections_per_second / 2.0;
    let connections = Connections { sources: targets.sources.clone(), to: targets.web, rate, sticky: false };
    let talks = Talks { sources: targets.sources, to: targets.web, count: amount.long_lived };
    let talks = Client::start(&stage.host, move |shared| talks.run(shared));
    talks.wait_for_start(amount.long_lived);
    let connections = Client::start(&stage.host, move |shared| connections.run(shared));
    let generation = || gateway.page("/api/routes")["generation"].as_u64().unwrap_or_default();
    let (count, before, began) = (by_length(300, 10_000), generation(), Instant::now());
    let (mut states, mut random) = ([State::Ready; ENDPOINTS.len()], Rng::with_seed(7));
    let mut timeline = Timeline::default();
    timeline.during(format!("{count} flips"), || {
        for _ in 0..count {
            flip(&mut states, &mut random);
            town.set_endpoints(states);
            let_pass(Duration::from_millis(4));
        }
    });
    let took = began.elapsed().as_secs_f64();
    let tallies = [connections.stop(), talks.stop()];
    timeline.expect_no_failure(&tallies);
    println!(
        "endpoint flips: {count} in {took:.1} s, {} tables: {}, {}, none failed",
        generation() - before,
        tallies[0],
        tallies[1]
    );
}
