//! Retries of sockets that could not be opened: their interval, and advice for the user.

use std::io;
use std::time::Duration;

/// Interval of retries.
pub const EVERY: Duration = Duration::from_secs(2);

/// EMFILE, which has no `ErrorKind`.
const TOO_MANY_OPEN_FILES: i32 = 24;
/// E2BIG and ENOSPC: errors of a full BPF map (bpf(2)).
const TABLE_FULL: [i32; 2] = [7, 28];

/// End of a Problem's message: the error, what to do, and that the gateway retries.
pub fn advice(error: &io::Error) -> String {
    format!("{}; retrying every {} s", what_to_do(error), EVERY.as_secs())
}

/// Like [`advice`], without retries: at an address of the node itself, its other processes have priority, even those that start
/// later.
pub fn advice_once(error: &io::Error) -> String {
    format!(
        "{}; it is an address of the node itself, so this is not tried again until the Service changes",
        what_to_do(error)
    )
}

fn what_to_do(error: &io::Error) -> String {
    let advice = match error.kind() {
        // A connection has the port, and the error says what to do.
        io::ErrorKind::ResourceBusy => return error.to_string(),
        io::ErrorKind::AddrInUse if error.raw_os_error().is_none() => "use another port for either",
        io::ErrorKind::AddrInUse => "another process has it; stop that one or use another address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE",
        io::ErrorKind::OutOfMemory => "the kernel has no memory for it; raise net.core.optmem_max",
        _ if error.raw_os_error() == Some(TOO_MANY_OPEN_FILES) => {
            "raise the limit of open files (ulimit -n), of which listening sockets, one per frontend and worker, get three \
             quarters, or let frontends beyond that be steered (`steering: auto` in the config, CAP_NET_ADMIN and CAP_BPF)"
        }
        _ if error.raw_os_error().is_some_and(|number| TABLE_FULL.contains(&number)) => {
            "131,072 frontends can be steered, with 1,048,576 source ranges in all"
        }
        _ => "see bind(2) for this error",
    };
    format!("{error}: {advice}")
}
