//! Runs many scripts in parallel, each on its own lane, and shrinks the first one that fails.

use std::fmt::{Debug, Write as _};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::road::{Road, Roads, Source};
use crate::support::length::by_length;
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp;
use crate::support::world::{Family, World};

/// Kind of torture with random scripts.
pub(crate) trait Torture {
    type Script: Debug;
    /// Number of concurrent scripts.
    const LANES: u16;
    /// Number of scripts through the gateway with sockets, with steering, and by the kernel.
    const SCRIPTS: usize;
    /// Sources that the gateway can show to the server.
    const SOURCES: &'static [Source];

    fn any() -> impl Strategy<Value = Self::Script>;

    /// Plays a script on a lane, and returns its violations and the observations.
    fn attempt(world: &World, road: Road, lane: u16, script: &Self::Script) -> (Vec<String>, String);

    /// What else to print about a failure.
    fn hint(_world: &World) -> String {
        String::new()
    }
}

/// Variable with the number of scripts.
const SCRIPTS: &str = "SHEAVE_TORTURE_SCRIPTS";
/// Variable with the seed of a run to repeat.
const SEED: &str = "SHEAVE_TORTURE_SEED";

/// A port that nobody listens on.
const CLOSED: u16 = 9;

/// A script may fail only sometimes, so each smaller one is tried this often before it counts as correct.
const TRIES: usize = 20;
/// Number of smaller scripts that are tried.
const SMALLER: usize = 150;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")))
}

/// Number of scripts to run: `short` in `tests/run`.
pub(crate) fn count(short: usize) -> usize {
    let usual = by_length(short, 100_000);
    number(SCRIPTS).map_or(usual, |count| usize::try_from(count).expect("a number that fits"))
}

/// Seed of the scripts.
pub(crate) fn seed() -> u64 {
    number(SEED).unwrap_or_else(|| fastrand::u64(..))
}

/// Script `index` of a seed, with its shrinking.
fn tree<T: Torture>(seed: u64, index: usize) -> impl ValueTree<Value = T::Script> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    T::any().new_tree(&mut runner).expect("every choice makes a script")
}

/// Failures of a run.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    /// Number of scripts that failed.
    pub(crate) count: usize,
    /// The first of them, shrunk as far as possible.
    pub(crate) first: Option<String>,
}

/// Test of the rules: the kernel itself violates none.
pub(crate) fn directly<T: Torture>() {
    let world = World::new(1);
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        world.gateway.sysctl(name, "1");
    }
    expect_nothing_wrong::<T>(&world, &[Road::Direct], count(T::SCRIPTS) / 2);
}

pub(crate) fn by_kernel<T: Torture>() {
    let world = World::new(1);
    let _roads = Roads::by_kernel(&world);
    expect_nothing_wrong::<T>(&world, &Source::OF_KERNEL.map(Road::Gateway), count(T::SCRIPTS));
}

/// Runs scripts through a gateway with this configuration.
pub(crate) fn through_a_gateway<T: Torture>(steering: &'static str) {
    let world = World::new(1);
    let gateway = &Roads::new(&world, steering).gateway;
    let before = gateway.open_files();
    let roads: Vec<Road> = T::SOURCES.iter().copied().map(Road::Gateway).collect();
    expect_nothing_wrong::<T>(&world, &roads, count(T::SCRIPTS));
    eventually_within(patience(10.0), "nothing is left of connections and flows", || {
        let open = ["sheave_tcp_connections", "sheave_udp_flows"].map(|name| gateway.metric(name, &[]));
        let files = gateway.open_files();
        if open == [0.0; 2] && files <= before { Ok(()) } else { Err(format!("{open:?}, {files} files")) }
    });
    let opened = gateway.metric("sheave_tcp_connections_total", &[]);
    let closed = gateway.metric("sheave_tcp_closed_total", &[]);
    assert_eq!(opened, closed, "every connection is counted once at either end");
}

fn expect_nothing_wrong<T: Torture>(world: &World, roads: &[Road], count: usize) {
    find_neighbours(world);
    if let Some(first) = run::<T>(world, roads, seed(), count, true).first {
        panic!("{first}\n{}", T::hint(world));
    }
}

/// Has all hosts know their neighbours. Datagrams that wait for an answer of ARP or NDP are overtaken by those that are sent when it is there:
/// `neigh_update` makes the entry usable before it sends the queue.
fn find_neighbours(world: &World) {
    for family in Family::BOTH {
        let neighbours = [(&world.client, family.gateway()), (&world.gateway, family.backend(0))];
        for (host, neighbour) in neighbours {
            let refused =
                host.run(|| tcp::connect(SocketAddr::new(neighbour, CLOSED)).expect_err("it is closed"));
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{neighbour}");
        }
    }
}

/// Runs `count` scripts, distributed over `roads`. With `shrink`, stops at the first one that fails.
pub(crate) fn run<T: Torture>(world: &World, roads: &[Road], seed: u64, count: usize, shrink: bool) -> Wrong {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let wrong = Mutex::new(Wrong::default());
    let lane = |lane| {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let road = roads[index % roads.len()];
            let tree = tree::<T>(seed, index);
            let script = tree.current();
            let (complaints, outcome) = T::attempt(world, road, lane, &script);
            if complaints.is_empty() {
                continue;
            }
            let mut wrong = wrong.lock().expect("nobody panics with it");
            wrong.count += 1;
            if shrink && wrong.first.is_none() {
                stop.store(true, Ordering::Relaxed);
                let mut text = format!(
                    "{SEED}={seed}, script {index} over {road:?}: {complaints:?}\n{script:#?}\n{outcome}"
                );
                write!(text, "\n\nsmaller:\n{}", smaller::<T>(world, road, lane, tree))
                    .expect("strings take text");
                wrong.first = Some(text);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..T::LANES {
            let lane = &lane;
            scope.spawn(move || lane(number));
        }
    });
    wrong.into_inner().expect("nobody panicked with it")
}

/// The smallest failing script that was found, with its observations.
fn smaller<T: Torture>(
    world: &World,
    road: Road,
    lane: u16,
    mut tree: impl ValueTree<Value = T::Script>,
) -> String {
    let mut found = "none goes wrong again".to_owned();
    let mut more = true;
    for _ in 0..SMALLER {
        if !more {
            break;
        }
        let failed = (0..TRIES).find_map(|_| {
            let script = tree.current();
            let (complaints, outcome) = T::attempt(world, road, lane, &script);
            (!complaints.is_empty()).then(|| format!("{complaints:?}\n{script:#?}\n{outcome}"))
        });
        more = match failed {
            Some(text) => {
                found = text;
                tree.simplify()
            }
            None => tree.complicate(),
        };
    }
    found
}
