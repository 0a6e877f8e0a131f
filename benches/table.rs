//! Cost of changing the routing table: the diff, and the preparation for picking with Maglev tables. Also the memory of a large table.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group};
use sheave_dataplane::balance::hash;
use sheave_dataplane::balance::maglev::Maglev;
use sheave_dataplane::balance::weights::Weights;
use sheave_dataplane::select::ActiveTable;
use sheave_model::{Affinity, Algorithm, Frontend, RoutingTable, diff};
use sheave_test_support::usage;

#[path = "support/frontends.rs"]
mod frontends;

use frontends::{endpoint_addr, frontend, frontend_addr, named_frontend, named_target, table, with_targets};

const FRONTENDS: u32 = 10_000;

fn plain(number: u32) -> Frontend {
    frontend(number, Algorithm::LeastConnections, Affinity::None, 10)
}

/// Copy of a table with one changed frontend.
fn with_one_change(old: &RoutingTable) -> RoutingTable {
    let changed = frontend(FRONTENDS / 2, Algorithm::LeastConnections, Affinity::None, 9);
    let mut frontends = old.frontends().to_vec();
    let place = frontends.iter_mut().find(|frontend| frontend.addr == frontend_addr(FRONTENDS / 2));
    place.into_iter().for_each(|place| *place = Arc::new(changed.clone()));
    RoutingTable::new(2, frontends, Arc::clone(old.internal_clients()))
}

fn tables(criterion: &mut Criterion) {
    let old = table((0..FRONTENDS).map(plain));
    let new = with_one_change(&old);
    let same_values = table((0..FRONTENDS).map(plain));
    let active = ActiveTable::compile(old.clone(), &ActiveTable::default());

    criterion.bench_function("table/diff/10,000 frontends, one changed", |bencher| {
        bencher.iter(|| black_box(diff(black_box(&old), &new)));
    });
    criterion.bench_function("table/diff/10,000 frontends, equal but all allocated anew", |bencher| {
        bencher.iter(|| black_box(diff(black_box(&old), &same_values)));
    });
    criterion.bench_function("table/compile/10,000 frontends, one changed", |bencher| {
        let setup = || new.clone();
        bencher.iter_batched(setup, |new| ActiveTable::compile(new, &active), BatchSize::LargeInput);
    });
    criterion.bench_function("table/compile/10,000 frontends, all new", |bencher| {
        let setup = || old.clone();
        let empty = ActiveTable::default();
        bencher.iter_batched(setup, |old| ActiveTable::compile(old, &empty), BatchSize::LargeInput);
    });
    names(criterion);
    for (frontends, endpoints) in [(FRONTENDS, 10), (FRONTENDS / 10, 100)] {
        let all = table((0..frontends).map(|number| hashed(number, endpoints)));
        let name = format!("table/compile/{frontends} Maglev frontends of {endpoints} endpoints, all new");
        criterion.bench_function(&name, |bencher| {
            let empty = ActiveTable::default();
            bencher.iter_batched(
                || all.clone(),
                |all| ActiveTable::compile(all, &empty),
                BatchSize::LargeInput,
            );
        });
    }
}

/// One frontend with 10,000 server names, one of which gets another endpoint. The other targets are shared, as the control loop shares
/// them.
fn names(criterion: &mut Criterion) {
    let whole = named_frontend(1, FRONTENDS);
    let mut targets: Vec<Arc<Frontend>> =
        whole.server_names.iter().flat_map(|names| names.targets()).cloned().collect();
    if let Some(target) = targets.get_mut(FRONTENDS as usize / 2) {
        Arc::make_mut(target).split = named_target(FRONTENDS / 2, 2 * FRONTENDS + 1).split;
    }
    let after = with_targets(&whole, targets);
    let [before, after] = [whole, after].map(|whole| table([whole]));
    let empty = ActiveTable::default();
    let active = ActiveTable::compile(before.clone(), &empty);
    criterion.bench_function("table/compile/10,000 server names, all new", |bencher| {
        let setup = || before.clone();
        bencher.iter_batched(setup, |before| ActiveTable::compile(before, &empty), BatchSize::LargeInput);
    });
    criterion.bench_function("table/compile/10,000 server names, one changed", |bencher| {
        let setup = || after.clone();
        bencher.iter_batched(setup, |after| ActiveTable::compile(after, &active), BatchSize::LargeInput);
    });
}

/// Frontend whose endpoints are chosen by the hash of the client, which needs the most memory.
fn hashed(number: u32, endpoints: u32) -> Frontend {
    frontend(number, Algorithm::Maglev, Affinity::None, endpoints)
}

/// Prints the growth of the process through what is compiled from the table, without the table itself.
fn memory() {
    let table = table((0..FRONTENDS).map(|number| hashed(number, 10)));
    let resident = || usage::of(std::process::id()).resident_kib * 1024;
    let before = resident();
    let active = ActiveTable::compile(table, &ActiveTable::default());
    let grown = resident().saturating_sub(before) as f64 / 1e6;
    println!("table/memory/{FRONTENDS} Maglev frontends of 10 endpoints: {grown:.1} MB");
    drop(active);
}

fn maglev(criterion: &mut Criterion) {
    for (name, spread) in [("equal", 1), ("unequal", 7)] {
        for count in [33, 100, 1_000] {
            let identities: Box<[u64]> =
                (0..count).map(|number| hash::endpoint(endpoint_addr(number))).collect();
            let setup = || Weights::new((0..u64::from(count)).map(|number| 1 + number % spread));
            criterion.bench_function(&format!("maglev/build/{count} endpoints, {name} weights"), |bencher| {
                let build = |weights: Option<Weights>| weights.map(|it| Maglev::new(it, identities.clone()));
                bencher.iter_batched(setup, build, BatchSize::SmallInput);
            });
        }
    }
}

fn config() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
}

criterion_group! {name = benches; config = config(); targets = tables, maglev}

fn main() {
    // Must come first, before freed memory is reused.
    memory();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
