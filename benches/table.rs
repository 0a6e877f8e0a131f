//! What a change of the routing table costs: comparing, preparing for picking, and the first pick's Maglev table.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sheave_dataplane::balance::hash;
use sheave_dataplane::balance::maglev::Maglev;
use sheave_dataplane::balance::weights::Weights;
use sheave_dataplane::select::ActiveTable;
use sheave_model::{Affinity, Algorithm, Frontend, RoutingTable, diff};

#[path = "support/frontends.rs"]
mod frontends;

use frontends::{endpoint_addr, frontend, frontend_addr, table};

const FRONTENDS: u32 = 10_000;

fn plain(number: u32) -> Frontend {
    frontend(number, Algorithm::LeastConnections, Affinity::None, 10)
}

/// The same table with one frontend changed and the others as they are.
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
}

fn maglev(criterion: &mut Criterion) {
    for (name, spread) in [("equal", 1), ("unequal", 7)] {
        for count in [3, 100, 1_000] {
            let weights: Vec<u32> = (0..count).map(|number| 1 + number % spread).collect();
            let identities: Box<[u64]> =
                (0..count).map(|number| hash::endpoint(endpoint_addr(number))).collect();
            let setup = || Weights::new(&weights).map(|weights| Maglev::new(weights, identities.clone()));
            criterion.bench_function(&format!("maglev/build/{count} endpoints, {name} weights"), |bencher| {
                bencher.iter_batched(setup, |maglev| maglev.inspect(Maglev::build), BatchSize::SmallInput);
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
criterion_main!(benches);
