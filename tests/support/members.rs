//! Running member clusters: cluster `m0` is backend 0, and its endpoints are the addresses of that host. Servers answer
//! with their endpoint and cluster.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::tcp::{self, Server};
use super::world::{CLIENTS, Family, World};

/// Name of a cluster.
pub fn name(cluster: u16) -> String {
    format!("m{cluster}")
}

/// Addresses of a cluster's first endpoints.
pub fn endpoints(family: Family, cluster: u16, count: u16) -> Vec<IpAddr> {
    (0..count).map(|number| family.backend_address(cluster, number)).collect()
}

/// Starts a server on each of a cluster's first endpoints, named `m0-0`, `m0-1` and so on.
pub fn serve(world: &World, family: Family, cluster: u16, count: u16, port: u16) -> Vec<Server> {
    let host = world.backend(usize::from(cluster));
    let start = |(number, ip)| {
        Server::who_am_i(host, SocketAddr::new(ip, port), &format!("{}-{number}", name(cluster)))
    };
    (0..).zip(endpoints(family, cluster, count)).map(start).collect()
}

/// Cluster of a server.
pub fn cluster_of(server: &str) -> &str {
    server.split('-').next().unwrap_or(server)
}

/// Number of requests that each cluster answered, out of `requests`, all of which must be answered. The clients take turns.
pub fn tally(world: &World, family: Family, to: SocketAddr, requests: u16) -> BTreeMap<String, usize> {
    let mut answered = BTreeMap::new();
    for (answer, _) in ask_timed(world, family, to, requests) {
        let answer = answer.unwrap_or_else(|error| panic!("a request failed: {error}"));
        *answered.entry(cluster_of(&answer.name).to_owned()).or_insert(0) += 1;
    }
    answered
}

/// Like [`tally`]: every answer with its duration.
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
