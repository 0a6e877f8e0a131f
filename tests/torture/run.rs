//! Runs scripts: many at a time, each on a lane of its own, and finds the least script that still goes wrong.

use std::fmt::{Debug, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::road::Road;
use crate::support::length::by_length;
use crate::support::world::World;

/// What can be tried with random scripts.
pub(crate) trait Torture {
    type Script: Debug;
    /// Scripts at a time.
    const LANES: u16;

    /// Any script.
    fn any() -> impl Strategy<Value = Self::Script>;

    /// Plays a script on a lane: all that is wrong with what came of it, and what that was.
    fn attempt(world: &World, road: Road, lane: u16, script: &Self::Script) -> (Vec<String>, String);
}

/// So many scripts instead of the usual number.
const SCRIPTS: &str = "SHEAVE_TORTURE_SCRIPTS";
/// Repeats the scripts of a run.
const SEED: &str = "SHEAVE_TORTURE_SEED";

/// A script goes wrong only at times: each smaller one is tried so often before it is taken for right.
const TRIES: usize = 20;
/// Smaller scripts that are tried.
const SMALLER: usize = 150;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")))
}

/// How many scripts to run: `short` in `tests/run`.
pub(crate) fn count(short: usize) -> usize {
    let usual = by_length(short, 100_000);
    number(SCRIPTS).map_or(usual, |count| usize::try_from(count).expect("a number that fits"))
}

/// What decides the scripts.
pub(crate) fn seed() -> u64 {
    number(SEED).unwrap_or_else(|| fastrand::u64(..))
}

/// The `index`-th script of a seed, and how to make it smaller.
fn tree<T: Torture>(seed: u64, index: usize) -> impl ValueTree<Value = T::Script> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    T::any().new_tree(&mut runner).expect("every choice makes a script")
}

/// What went wrong in a run.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    /// Scripts that went wrong.
    pub(crate) count: usize,
    /// The first of them, made as small as possible.
    pub(crate) first: Option<String>,
}

/// Runs `count` scripts, spread over `roads`. Stops at the first that goes wrong if `shrink` says so.
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

/// The smallest script found that goes wrong, with what was observed.
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
