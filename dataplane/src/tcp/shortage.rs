//! Running out of what sockets are made of: neither clients nor endpoints are to blame, so one waits.

use std::io;
use std::time::Duration;

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

/// Whether the process or the machine is out of descriptors, memory or watched sockets (accept(2), socket(2), epoll_ctl(2)).
pub(super) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::ENOSPC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_blamed_for_its_own_failures_only() {
        assert!(is_own_shortage(&Errno::EMFILE.into()) && is_own_shortage(&Errno::EADDRNOTAVAIL.into()));
        assert!(
            !is_own_shortage(&Errno::ECONNREFUSED.into()) && !is_own_shortage(&Errno::EHOSTUNREACH.into())
        );
        assert!(!is_own_shortage(&io::ErrorKind::TimedOut.into()));
    }
}
