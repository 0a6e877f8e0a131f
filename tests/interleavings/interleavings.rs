//! Models of shared memory between threads of the data plane: the sources themselves, compiled with loom's atomics and locks instead of
//! those of the standard library. loom runs each model in every possible order of its threads, and lets relaxed loads read outdated
//! values.
//!
//! An example rather than a test, since the unit tests of those files cannot run with these locks: `tests/run` builds and runs it.
//! `interleavings FILTER` runs the models whose names contain it, `LOOM_MAX_PREEMPTIONS=9` in more orders.

// Each model needs only a part of its files, and stand-ins for the kernel never fail.
#![allow(dead_code, unreachable_pub, clippy::unnecessary_wraps, clippy::unwrap_used)]

mod capacity;
mod counters_and_refusals;
mod limiter;
mod ports;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use loom::sync;

#[path = "../../dataplane/src/counters"]
mod counters {
    mod counter;
    mod kernel_drops;
    mod shed;
    mod tcp;

    pub(crate) use shed::{FrontendUse, ShedReason};
    pub(crate) use tcp::{CloseReason, TcpCounters, TcpTotals};
}

#[path = "../../dataplane/src/limits"]
mod limits {
    pub(crate) mod capacity;
    pub(crate) mod refusals;
    pub(crate) mod service;
}

#[path = "../../dataplane/src/weak_map.rs"]
mod weak_map;

#[path = "../../dataplane/src/worker_port.rs"]
mod worker_port;

/// Stand-ins for the kernel.
mod sys {
    pub(crate) mod epoll {
        use std::io;

        use loom::sync::Notify;

        #[derive(Debug)]
        pub(crate) struct Waker(Notify);

        impl Waker {
            pub(crate) fn new() -> io::Result<Self> {
                Ok(Self(Notify::new()))
            }

            pub(crate) fn wake(&self) {
                self.0.notify();
            }

            /// Stands for epoll_wait(2), which may also return for another reason.
            pub(crate) fn wait(&self) {
                self.0.wait();
            }
        }
    }

    pub(crate) mod sockets {
        use std::io;

        use socket2::Socket;

        pub(crate) fn dropped_packets(_: impl std::os::fd::AsFd) -> io::Result<u32> {
            Ok(0)
        }

        pub(crate) fn reset_on_close(socket: &Socket) {
            socket.set_linger(Some(std::time::Duration::ZERO)).expect("a TCP socket");
        }
    }
}

/// Limit of preemptive context switches in a model. Nearly every fault needs at most two (Musuvathi and Qadeer, "Iterative context
/// bounding for systematic testing of multithreaded programs", 2007).
const PREEMPTIONS: usize = 3;
/// Time limit of a model.
const LONGEST: Duration = Duration::from_secs(10);

const MODELS: [(&str, fn()); 10] = [
    ("capacity::connections_exceed_the_limit_by_one_for_each_other_worker", capacity::limit),
    ("capacity::no_more_memory_is_given_back_than_is_wanted", capacity::relief),
    ("counters::sums_never_fall_and_miss_nothing", counters_and_refusals::sums),
    ("limiter::connections_of_a_service_never_exceed_its_limit", limiter::connections),
    ("limiter::connections_of_a_client_never_exceed_its_limit", limiter::connections_of_a_client),
    ("limiter::no_more_are_admitted_than_the_rate_allows", limiter::rate),
    ("ports::a_connection_left_for_a_worker_is_served_or_reset", ports::served_or_reset),
    ("ports::a_worker_sleeps_only_if_nothing_is_left_for_it", ports::woken),
    ("ports::who_has_drained_gets_nothing_more", ports::drained),
    ("refusals::a_refusal_is_seen_or_the_next_one_is_announced", counters_and_refusals::refusals),
];

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    for (name, model) in MODELS.iter().filter(|(name, _)| name.contains(&filter)) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(PREEMPTIONS);
        builder.max_duration.get_or_insert(LONGEST);
        let (began, orders) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&orders);
        builder.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            model();
        });
        println!("{name}: {} orders, {:.1?}", orders.load(Ordering::Relaxed), began.elapsed());
    }
}
