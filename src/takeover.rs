//! Hot upgrade: a process takes over from the one that serves on the same node, over a Unix socket in the state directory. Neither a
//! connection nor a datagram is lost, since both hold the same sockets for a moment (unix(7), SCM_RIGHTS).
//!
//! What is said, in order (the newer process is the successor):
//!
//! | from | message | meaning |
//! |---|---|---|
//! | successor | `Hello` | its protocol, version and place |
//! | predecessor | `Welcome` or `Refused` | how many workers; the token; the sockets of its HTTP servers |
//! | successor | `Begin` | its objects are loaded |
//! | predecessor | `Sockets`, `NodePorts`, `Steered`, `Affinity`, then `Listening` | what takes new traffic; its table does not change any more |
//! | successor | `Prepared` | its table is in force, though its workers are held |
//! | predecessor | `Flows`, `Affinity`, then `Offer` | it rests: new traffic waits in the sockets |
//! | successor | `Serving` | it has taken the token |
//! | predecessor | `Connections`, again and again | what Services with limits still have there, where it has changed |
//! | successor | `HandedOver` | another process has taken over from it in its turn |
//!
//! **Exactly one serves.** The token is an eventfd with the value 1, and reading it is atomic: who has read it serves. The successor
//! takes it when it is offered; the predecessor takes it back before it gives up. So whatever fails before leaves the predecessor as it
//! was. A successor that says `Serving` without it has no right to. If the successor's end of the connection closes without `Serving`, it is dead, whoever has the token, and the predecessor goes
//! on. If the predecessor's closes and the token is still there, that one is dead, and the successor goes on with what it has.
//!
//! **The successor is watched.** It keeps the connection until it ends or is told to. Where the end of the predecessor is that of its
//! container, that one may outlive it, as a kubelet has it if a rollout is undone: then it ends, is started again, and takes over from
//! the successor, which serves on until then.

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

/// Workers that a process may have: more threads than any machine has cores are a slip of the finger.
pub(crate) const MOST_WORKERS: usize = 1024;

/// What processes of different versions have to agree on. Fields and messages may be added without another number: what is not known
/// is ignored.
const PROTOCOL: u32 = 1;

/// Why a take-over failed.
#[derive(Debug, Error)]
pub(crate) enum TakeoverError {
    /// Of a socket.
    #[error("{0}")]
    Io(io::Error),
    /// The other process has ended, or given up.
    #[error("the other process has closed the connection")]
    Closed,
    /// It took too long.
    #[error("the other process does not answer")]
    Silent,
    /// It said something else than was its turn to say.
    #[error("the other process said something unexpected: {0}")]
    Unexpected(String),
    /// It does not let this one take over.
    #[error("the process that serves does not hand over: {0}")]
    Refused(String),
    /// The one that serves has gone on, since this one took too long.
    #[error("the process that serves has gone on by itself")]
    Revoked,
    /// A worker of this process is stuck.
    #[error("a worker does not answer")]
    Stuck,
}

impl From<io::Error> for TakeoverError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // As of unread messages, or of a message to nobody.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl ServingPlace {
    /// Of this process.
    pub(crate) fn of_process(node: &str, class: &str) -> Self {
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        Self { node: node.to_owned(), class: class.to_owned(), network: network.display().to_string() }
    }
}

/// The Pod that this process is in, if it is in one and knows its name.
fn own_pod() -> Option<String> {
    std::env::var("POD_NAME").ok().filter(|name| !name.is_empty())
}

/// Whether this is process 1 of a container, which is started again when it ends.
pub(crate) fn is_started_again() -> bool {
    std::process::id() == 1
}

/// The socket, in the state directory.
fn socket_path(state_dir: &Path) -> PathBuf {
    state_dir.join("takeover.sock")
}

/// The right to serve, which one process can take once.
#[derive(Debug)]
struct Token(OwnedFd);

impl Token {
    /// One that nobody has taken.
    ///
    /// # Errors
    /// As eventfd(2).
    fn new() -> io::Result<Self> {
        Ok(Self(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Whether it was there to take. Nobody else has it then.
    fn take(&self) -> bool {
        // The counter becomes zero in the same step (eventfd(2)).
        rustix::io::read(self.0.as_fd(), &mut [0; 8]).is_ok()
    }
}
