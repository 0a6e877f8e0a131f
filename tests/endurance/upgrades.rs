//! Tests of hot upgrades under load: nothing is refused, reset, lost or sent elsewhere.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::load::{Mixed, Targets};
use crate::scale::Amount;
use crate::servers::{Servers, Site};
use crate::support::gateway::{Gateway, Settings};
use crate::support::length::by_length;
use crate::support::manifest::{App, at};
use crate::support::patience::let_pass;
use crate::support::process::Process;
use crate::support::world::{CLIENTS, Family, World};
use crate::timeline::Timeline;

pub(crate) const BACKENDS: u16 = 2;
pub(crate) const ADDRESSES: u16 = 4;
const PORT: u16 = 9000;
/// Number of upgrades after which a process has lost its long-lived connections.
const GENERATIONS: usize = 10;

/// Endpoints of a case. The second half is added when every client has reached one of the first, so that a client whose record is lost
/// would reach another one.
pub(crate) fn endpoints(family: Family) -> Vec<SocketAddr> {
    let of_backend = |number| (0..BACKENDS).map(move |index| at(family.backend_address(index, number), PORT));
    (0..ADDRESSES).flat_map(of_backend).collect()
}

/// Destinations of a load, after assigning the addresses of clients with affinity.
pub(crate) fn targets(world: &World, family: Family, amount: Amount) -> Targets {
    let sticky_sources: Vec<_> =
        (0..amount.affinity_clients).map(|number| family.client(CLIENTS + number)).collect();
    let nodad = if family == Family::V6 { " nodad" } else { "" };
    let add = |ip| format!("addr add {ip}/{} dev eth0{nodad}", family.host_prefix());
    world.client.ip(&sticky_sources.iter().map(add).collect::<Vec<_>>());
    Targets {
        web: at(family.vip(0), 80),
        dns: Some(at(family.vip(0), 53)),
        sticky: Some(at(family.vip(1), 80)),
        sources: (0..CLIENTS).map(|number| family.client(number)).collect(),
        sticky_sources,
    }
}

pub(crate) fn apps(family: Family, endpoints: &[SocketAddr], transparent: bool) -> [App; 2] {
    let app = |name: &str, vip| {
        let app = App::new(name, &[family.vip(vip)]).tcp(80, PORT).udp(53, PORT);
        let app = if transparent { app.local_policy() } else { app };
        endpoints.iter().fold(app, |app, endpoint| app.ready_here(endpoint.ip()))
    };
    [app("web", 0), app("sticky", 1).affinity(3600)]
}

pub(crate) fn serve(world: &World, family: Family) -> Servers {
    let sites: Vec<Site<'_>> = (0..)
        .zip(endpoints(family))
        .map(|(number, addr): (usize, _)| Site {
            host: world.backend(number % usize::from(BACKENDS)),
            addr,
            name: format!("endpoint-{number}"),
        })
        .collect();
    Servers::start(&sites)
}

/// How long a process paused before it served, from its log.
fn rest(log: &str) -> Option<&str> {
    let took_over = log.lines().find(|line| line.contains("took over"))?;
    took_over.split_whitespace().find_map(|field| field.strip_prefix("rest="))
}

fn upgrades(name: &str, count: usize, config: &'static str, transparent: bool) {
    let (world, family, amount) = (World::with_addresses(BACKENDS, ADDRESSES), Family::V4, Amount::full());
    let _servers = serve(&world, family);
    let endpoints = endpoints(family);
    let settings = Settings { config, drain: "1h", ..Settings::default() };
    let half = apps(family, &endpoints[..endpoints.len() / 2], transparent);
    let mut gateway = Gateway::start_with(&world, &half, &settings);
    let load = Mixed::start(&world.client, amount, targets(&world, family, amount));
    gateway.apply(&apps(family, &endpoints, transparent));
    let (mut timeline, mut former, mut rests) = (Timeline::default(), VecDeque::<Process>::new(), Vec::new());
    let began = Instant::now();
    for upgrade in 1..=count {
        former.push_back(timeline.during(format!("upgrade {upgrade}"), || gateway.upgrade()));
        rests.extend(rest(&gateway.log()).map(str::to_owned));
        load.renew(amount.long_lived.div_ceil(GENERATIONS));
        let_pass(Duration::from_millis(by_length(100, 800)));
        if former.len() > GENERATIONS + 2
            && let Some(mut process) = former.pop_front()
        {
            assert!(process.wait().success(), "{}", process.stderr());
        }
    }
    let took = began.elapsed().as_secs_f64();
    let tallies = load.stop();
    timeline.expect_no_failure(&tallies);
    for mut process in former {
        assert!(process.wait().success(), "{}", process.stderr());
    }
    let totals: Vec<String> = tallies.iter().map(ToString::to_string).collect();
    rests.sort_by_key(|rest| (rest.len(), rest.clone()));
    println!(
        "{name}: {count} upgrades in {took:.1} s, none noticed: {}; new traffic waited {} at most",
        totals.join(", "),
        rests.last().map_or("?", String::as_str)
    );
}

#[test]
fn upgrades_with_sockets_of_each_frontend() {
    upgrades("upgrades", by_length(3, 60), "", false);
}

#[test]
fn upgrades_with_steering() {
    upgrades("upgrades with steering", by_length(2, 20), "steering: always\n", false);
}

#[test]
fn upgrades_with_client_addresses() {
    upgrades("upgrades with client addresses", by_length(2, 20), "", true);
}
