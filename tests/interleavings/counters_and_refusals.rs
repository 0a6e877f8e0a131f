//! Models of counts by workers, as seen concurrently by the control loop and scrapes.

use std::sync::Arc;

use loom::thread::spawn;
use sheave_model::test_util;

use crate::counters::{CloseReason, FrontendUse, ShedReason, TcpCounters, TcpTotals};
use crate::limits::refusals::Refusals;

/// Two workers count for one frontend, while a scrape adds up twice.
pub(crate) fn sums() {
    let usage = Arc::<FrontendUse>::default();
    let totals = [(); 2].map(|()| Arc::<TcpTotals>::default());
    let sum = |totals: &[Arc<TcpTotals>]| totals.iter().map(|it| it.counters.accepted.get()).sum::<u64>();
    let workers = totals.clone().map(|totals| {
        let counters = TcpCounters::new(Arc::clone(&usage), totals);
        spawn(move || {
            counters.add_accepted();
            counters.add_closed(CloseReason::Finished);
        })
    });
    let (first, second) = (sum(&totals), sum(&totals));
    assert!(first <= second && second <= 2);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!((sum(&totals), usage.open()), (2, 0));
    assert_eq!(totals.iter().map(|it| it.counters.closed(CloseReason::Finished)).sum::<u64>(), 2);
}

/// Two workers refuse connections while the control loop looks, and then looks again at the known refusals.
pub(crate) fn refusals() {
    let (refusals, usage) = (Arc::<Refusals>::default(), Arc::<FrontendUse>::default());
    let addr = test_util::frontend_addr(1);
    let workers = [(); 2].map(|()| {
        let (refusals, usage) = (Arc::clone(&refusals), Arc::clone(&usage));
        spawn(move || refusals.count(addr, &usage, ShedReason::Capacity))
    });
    let mut knows = false;
    let mut look = || {
        for _ in refusals.take() {
            refusals.watch(&usage);
            knows = true;
        }
    };
    look();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    look();
    assert!(knows && usage.shed(ShedReason::Capacity) == 2);
    refusals.count(addr, &usage, ShedReason::Capacity);
    assert!(refusals.take().contains(&addr), "it hears of the next one");
}
