//! Member clusters that run: cluster `m0` is backend 0, and its endpoints are the addresses of that host. Servers say which
//! endpoint of which cluster they are.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::tcp::{self, Server};
use super::world::{CLIENTS, Family, World};

/// A cluster's name.
pub fn name(cluster: u16) -> String {
    format!("m{cluster}")
}

/// The addresses of a cluster's first endpoints.
pub fn endpoints(family: Family, cluster: u16, count: u16) -> Vec<IpAddr> {
    (0..count).map(|number| family.backend_address(cluster, number)).collect()
}

/// A server on each of a cluster's first endpoints, named `m0-0`, `m0-1` and so on.
pub fn serve(world: &World, family: Family, cluster: u16, count: u16, port: u16) -> Vec<Server> {
    let host = world.backend(usize::from(cluster));
    let start = |(number, ip)| {
        Server::who_am_i(host, SocketAddr::new(ip, port), &format!("{}-{number}", name(cluster)))
    };
    (0..).zip(endpoints(family, cluster, count)).map(start).collect()
}

/// The cluster that a server is in.
pub fn cluster_of(server: &str) -> &str {
    server.split('-').next().unwrap_or(server)
}

/// How many of so many requests each cluster answered; each must be answered. The clients take turns.
pub fn tally(world: &World, family: Family, to: SocketAddr, requests: u16) -> BTreeMap<String, usize> {
    let mut answered = BTreeMap::new();
    for (answer, _) in ask_timed(world, family, to, requests) {
        let answer = answer.unwrap_or_else(|error| panic!("a request failed: {error}"));
        *answered.entry(cluster_of(&answer.name).to_owned()).or_insert(0) += 1;
    }
    answered
}

/// As [`tally`]: every answer, and how long it took.
pub fn ask_timed(
    world: &World,
    family: Family,
    to: SocketAddr,
    requests: u16,
) -> Vec<(io::Result<tcp::Answer>, Duration)> {
    let ask = |round| {
        let started = Instant::now();
        (tcp::ask_from(family.client(round % CLIENTS), to), started.elapsed())
    };
    world.client.run(|| (0..requests).map(ask).collect())
}
