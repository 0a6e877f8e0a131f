//! For any sequence of changes, the guard only ever keeps too much, and never for longer than the hold.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// An event.
#[derive(Clone, Debug)]
enum Step {
    List(BTreeSet<usize>),
    Put(usize),
    Gone(usize),
    Pass(u64),
}

/// More than the rule needs, and few enough that steps interact.
const NAMES: usize = 24;

fn step() -> impl Strategy<Value = Step> {
    let few = prop::collection::btree_set(0..NAMES, 0..4);
    let many = prop::collection::btree_set(0..NAMES, 10..NAMES);
    prop_oneof![
        2 => few.prop_map(Step::List),
        1 => many.prop_map(Step::List),
        2 => (0..NAMES).prop_map(Step::Put),
        2 => (0..NAMES).prop_map(Step::Gone),
        2 => (1..40_u64).prop_map(Step::Pass),
    ]
}

/// True state of the source: the existing names, and since when a name is missing only from lists.
#[derive(Default)]
struct Truth {
    there: BTreeSet<usize>,
    missing_since: BTreeMap<usize, Instant>,
}

impl Truth {
    fn take(&mut self, step: &Step, now: Instant) {
        match step {
            Step::List(names) => {
                for name in self.there.difference(names) {
                    self.missing_since.insert(*name, now);
                }
                self.missing_since.retain(|name, _| !names.contains(name));
                self.there.clone_from(names);
            }
            Step::Put(name) => {
                self.there.insert(*name);
                self.missing_since.remove(name);
            }
            Step::Gone(name) => {
                self.there.remove(name);
                self.missing_since.remove(name);
            }
            Step::Pass(_) => {}
        }
    }
}

fn in_store(bench: &Bench) -> BTreeSet<usize> {
    let names = bench.store.objects().services.keys();
    names.map(|key| key.name.trim_start_matches('s').parse().unwrap()).collect()
}

proptest! {
    #[test]
    fn only_what_lists_lack_is_kept_and_only_for_its_time(steps in prop::collection::vec(step(), 1..60)) {
        let mut bench = Bench::with(0);
        let mut truth = Truth::default();
        for step in steps {
            match &step {
                Step::List(names) => drop(bench.apply(services(names.iter().copied()))),
                Step::Put(name) => drop(bench.apply(put(*name))),
                Step::Gone(name) => drop(bench.apply(gone(*name))),
                Step::Pass(seconds) => bench.pass(Duration::from_secs(*seconds)),
            }
            truth.take(&step, bench.now);
            let stored = in_store(&bench);
            prop_assert!(stored.is_superset(&truth.there), "what there is is never held back");
            let kept: BTreeSet<usize> = stored.difference(&truth.there).copied().collect();
            for name in &kept {
                let since = truth.missing_since.get(name);
                prop_assert!(since.is_some_and(|since| bench.now < *since + HOLD), "{name} kept since {since:?}");
            }
            let held = bench.guard.holding();
            prop_assert_eq!(held.iter().map(|held| held.kept).sum::<usize>(), kept.len());
            prop_assert_eq!(held.is_empty(), kept.is_empty());
            prop_assert_eq!(bench.guard.due(), held.first().map(|held| held.until));
            prop_assert!(held.iter().all(|held| held.until == held.since + HOLD && bench.now < held.until));
        }
        bench.pass(HOLD);
        prop_assert_eq!(in_store(&bench), truth.there);
    }
}
