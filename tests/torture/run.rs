//! Runs many scripts in parallel, each on its own lane, and shrinks the first one that fails.

use std::fmt::{Debug, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::road::Road;
use crate::support::length::by_length;
use crate::support::world::World;

/// Kind of torture with random scripts.
pub(crate) trait Torture {
    type Script: Debug;
    /// Number of concurrent scripts.
    const LANES: u16;

    fn any() -> impl Strategy<Value = Self::Script>;

    /// Plays a script on a lane, and returns its violations and the observations.
    fn attempt(world: &World, road: Road, lane: u16, script: &Self::Script) -> (Vec<String>, String);
}

/// Variable with the number of scripts.
const SCRIPTS: &str = "SHEAVE_TORTURE_SCRIPTS";
/// Variable with the seed of a run to repeat.
const SEED: &str = "SHEAVE_TORTURE_SEED";

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
