//! What becomes of packets to a steered frontend, while workers let go of it.

use std::sync::Arc;

use loom::thread::spawn;
use sheave_model::test_util;

use super::verdicts::{Verdict, VerdictMap};

/// A frontend leaves and comes back while a worker still has to let go of it.
pub(crate) fn late_verdict() {
    let verdicts = Arc::new(VerdictMap::new().unwrap());
    let addr = test_util::frontend_addr(1);
    verdicts.put(addr, Verdict::Ignore).unwrap();
    let before = verdicts.map().values();
    let deferred = [verdicts.refuse_later(addr, None), verdicts.remove_later(addr, None)];
    let workers = deferred.map(|verdict| spawn(move || drop(verdict)));
    verdicts.put(addr, Verdict::Ignore).unwrap();
    assert_eq!(verdicts.map().values(), before);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(verdicts.map().values(), before);
}
