//! Models of the limits of a Service, which all workers check concurrently.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::spawn;
use sheave_model::{Algorithm, ServiceLimits, test_util};

use crate::limits::service::{Limiter, Limiters};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn limiter(limits: ServiceLimits) -> Arc<Limiter> {
    let mut frontend = test_util::frontend(1, Algorithm::Random, &[]);
    frontend.limits = limits;
    Limiters::default().get(&frontend).expect("there are limits")
}

/// Two workers admit one client each while there is room for one, and the room is free again in the end.
fn one_at_a_time(limits: ServiceLimits, client: Option<IpAddr>) {
    let (limiter, open) = (limiter(limits), Arc::new(AtomicUsize::new(0)));
    let workers = [(); 2].map(|()| {
        let (limiter, open) = (Arc::clone(&limiter), Arc::clone(&open));
        spawn(move || {
            if let Ok(_permit) = limiter.admit(client, Instant::now()) {
                assert_eq!(open.fetch_add(1, Ordering::Relaxed), 0);
                open.fetch_sub(1, Ordering::Relaxed);
            }
        })
    });
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert!(limiter.admit(client, Instant::now()).is_ok());
}

pub(crate) fn connections() {
    one_at_a_time(ServiceLimits { connections: NonZeroU32::new(1), ..ServiceLimits::default() }, None);
}

pub(crate) fn connections_of_a_client() {
    one_at_a_time(
        ServiceLimits { connections_per_client: NonZeroU32::new(1), ..ServiceLimits::default() },
        Some(CLIENT),
    );
}

pub(crate) fn rate() {
    let limiter = limiter(ServiceLimits { connection_rate: NonZeroU32::new(1), ..ServiceLimits::default() });
    let now = Instant::now();
    let other = Arc::clone(&limiter);
    let worker = spawn(move || other.admit(Some(CLIENT), now).is_ok());
    let own = limiter.admit(None, now).is_ok();
    assert_eq!(usize::from(own) + usize::from(worker.join().unwrap()), 1);
}
