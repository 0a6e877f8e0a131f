//! Running out of what sockets are made of: neither clients nor endpoints are to blame, so one waits.

use std::time::Duration;

use crate::sys::Errno;

/// How long to wait before trying again. The kernel's queues carry the clients meanwhile; HAProxy rests as long
/// (`src/listener.c`).
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Whether the process or the machine is out of descriptors or memory (accept(2), socket(2)).
pub(super) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
}
