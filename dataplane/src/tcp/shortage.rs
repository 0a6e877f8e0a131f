//! Running out of what sockets are made of: neither clients nor endpoints are to blame, so one waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use sheave_model::EndpointAddr;

use crate::sys::Errno;

/// How long to wait before trying again. The kernel's queues carry the clients meanwhile; HAProxy rests as long
/// (`src/listener.c`).
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Descriptors, memory or ephemeral ports have run out here (connect(2), socket(2)).
pub(crate) fn is_own_shortage(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .map(Errno::from_raw)
        .is_some_and(|errno| is_shortage(errno) || matches!(errno, Errno::EADDRNOTAVAIL | Errno::EAGAIN))
}

/// Whether all local ports towards the endpoint are in use (connect(2)); towards others there may be some.
pub(super) fn is_of_ports(error: &io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw) == Some(Errno::EADDRNOTAVAIL)
}

/// Endpoints towards which all local ports were in use a moment ago. The kernel looks at every port of its range to find that
/// out (`__inet_hash_connect` in net/ipv4/inet_hashtables.c), which thousands of clients must not make it do.
#[derive(Debug, Default)]
pub(crate) struct CrowdedEndpoints(RefCell<HashMap<EndpointAddr, Instant>>);

impl CrowdedEndpoints {
    /// Whether it is of no use to try this one now.
    pub(super) fn contains(&self, endpoint: EndpointAddr, now: Instant) -> bool {
        self.0.borrow().get(&endpoint).is_some_and(|since| now.saturating_duration_since(*since) < PAUSE)
    }

    pub(super) fn add(&self, endpoint: EndpointAddr, now: Instant) {
        let mut crowded = self.0.borrow_mut();
        crowded.retain(|_, since| now.saturating_duration_since(*since) < PAUSE);
        crowded.insert(endpoint, now);
    }
}

/// Whether the process or the machine is out of descriptors, memory or watched sockets (accept(2), socket(2), epoll_ctl(2)).
pub(super) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::ENOSPC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_crowded_for_a_moment() {
        let endpoint = |number| EndpointAddr::new([10, 0, 0, number].into(), 80);
        let (crowded, now) = (CrowdedEndpoints::default(), Instant::now());
        crowded.add(endpoint(1), now);
        assert!(crowded.contains(endpoint(1), now) && !crowded.contains(endpoint(2), now));
        assert!(!crowded.contains(endpoint(1), now + PAUSE));
        crowded.add(endpoint(2), now + PAUSE);
        assert_eq!(crowded.0.borrow().len(), 1);
    }

    #[test]
    fn an_endpoint_is_blamed_for_its_own_failures_only() {
        assert!(is_own_shortage(&Errno::EMFILE.into()) && is_own_shortage(&Errno::EADDRNOTAVAIL.into()));
        assert!(
            !is_own_shortage(&Errno::ECONNREFUSED.into()) && !is_own_shortage(&Errno::EHOSTUNREACH.into())
        );
        assert!(!is_own_shortage(&io::ErrorKind::TimedOut.into()));
    }
}
