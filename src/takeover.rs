//! Hot upgrade: a process takes over from the one that serves on the same node, over a Unix socket in the state directory. No connection or
//! datagram is lost, since both hold the same sockets for a moment (unix(7), SCM_RIGHTS).
//!
//! Messages in order (the successor is the new process):
//!
//! | from | message | meaning |
//! |---|---|---|
//! | successor | `Hello` | its protocol version, program version and place |
//! | predecessor | `Welcome` or `Refused` | number of workers, the token, the sockets of its HTTP servers |
//! | successor | `Begin` | its objects are loaded |
//! | predecessor | `Sockets`, `NodePorts`, `Steered`, `Affinity`, then `Listening` | sockets that accept new traffic; its table no longer changes |
//! | successor | `Prepared` | its table is in force, but its workers are held |
//! | predecessor | `Flows`, `Affinity`, then `Offer` | it is paused: new traffic waits in the sockets |
//! | successor | `Serving` | it has taken the token |
//! | predecessor | `Connections`, repeatedly | changed counts of the connections it still has for Services with limits |
//! | successor | `HandedOver` | another process has taken over from it |
//!
//! **Exactly one process serves.** The token is an eventfd with the value 1, and reading it is atomic: the process that has read it serves. The
//! successor takes the token when it is offered; the predecessor takes it back before it gives up. Any failure before that leaves the
//! predecessor as it was, and a successor must not send `Serving` without the token. If the successor's end of the connection closes without
//! `Serving`, the successor is dead, with or without the token, and the predecessor continues. If the predecessor's end closes and the token is
//! still there, the predecessor is dead, and the successor continues with what it has.
//!
//! **The successor is watched.** It keeps the connection open until it ends or is told to end. If the end of the predecessor is the end of its
//! container, the predecessor may outlive the successor, for example when a rollout is undone. It then ends, is restarted, and takes over from
//! the successor, which serves until then.

mod channel;
pub(crate) mod message;
pub(crate) mod predecessor;
pub(crate) mod successor;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;

pub(crate) use message::ServingPlace;

/// Limit of workers; a larger number is a typo, since no machine has as many cores.
pub(crate) const MOST_WORKERS: usize = 1024;

/// Protocol version that both processes must agree on. Fields and messages may be added without a new version, since unknown ones are ignored.
const PROTOCOL: u32 = 1;

/// Reason for a failed takeover.
#[derive(Debug, Error)]
pub(crate) enum TakeoverError {
    /// A socket operation failed.
    #[error("{0}")]
    Io(io::Error),
    /// The other process has ended or given up.
    #[error("the other process has closed the connection")]
    Closed,
    /// The other process took too long.
    #[error("the other process does not answer")]
    Silent,
    /// The other process sent an unexpected message.
    #[error("the other process said something unexpected: {0}")]
    Unexpected(String),
    /// The other process refuses this successor.
    #[error("the process that serves does not hand over: {0}")]
    Refused(String),
    /// The predecessor has resumed, since this process took too long.
    #[error("the process that serves has gone on by itself")]
    Revoked,
    /// A worker of this process is stuck.
    #[error("a worker does not answer")]
    Stuck,
}

impl From<io::Error> for TakeoverError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The peer closed with unread messages, or is gone.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl ServingPlace {
    /// Place of this process.
    pub(crate) fn of_process(node: &str, class: &str) -> Self {
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        Self { node: node.to_owned(), class: class.to_owned(), network: network.display().to_string() }
    }
}

/// Pod of this process, if it is in one and knows its name.
fn own_pod() -> Option<String> {
    std::env::var("POD_NAME").ok().filter(|name| !name.is_empty())
}

/// Whether this is process 1 of a container, which is restarted when it ends.
pub(crate) fn is_started_again() -> bool {
    std::process::id() == 1
}

/// Path of the socket in the state directory.
fn socket_path(state_dir: &Path) -> PathBuf {
    state_dir.join("takeover.sock")
}

/// Right to serve, which one process can take once.
#[derive(Debug)]
struct Token(OwnedFd);

impl Token {
    /// Creates a token that has not been taken.
    ///
    /// # Errors
    /// If eventfd(2) fails.
    fn new() -> io::Result<Self> {
        Ok(Self(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Takes the token; false if another process has taken it.
    fn take(&self) -> bool {
        // Reading resets the counter to zero atomically (eventfd(2)).
        rustix::io::read(self.0.as_fd(), &mut [0; 8]).is_ok()
    }
}
