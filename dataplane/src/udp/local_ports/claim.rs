//! Claim on the shared local ports. The kernel lets two processes of one user have the same port towards the same endpoint
//! (`SO_REUSEPORT`), and answers to one would reach the other. Therefore only one process of a network namespace shares ports.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::namespace_lock::{Locked, NamespaceLock, NamespaceLockError};

const WHAT: Locked = Locked { file: "udp-ports.lock", name: "sheave-udp-ports" };

/// Reason why the UDP flows of this process do not share local ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalPortsError {
    /// Another process holds the claim, as the text shows.
    #[error("another process of this network namespace shares local ports among its UDP flows: it has {0}")]
    Taken(String),
    /// The claim cannot be checked.
    #[error("{} cannot be locked: {error}", .file.display())]
    Unusable {
        /// Path of the lock file.
        file: PathBuf,
        /// Error of open(2) or fcntl(2).
        error: String,
    },
}

impl From<NamespaceLockError> for LocalPortsError {
    fn from(error: NamespaceLockError) -> Self {
        match error {
            NamespaceLockError::Taken(what) => Self::Taken(what),
            NamespaceLockError::Unusable { file, error } => Self::Unusable { file, error },
        }
    }
}

#[derive(Debug)]
enum PortClaim {
    /// Not requested: ports are shared.
    Unasked,
    /// Held. The lock ends with the last copy of this descriptor, in any process.
    Held {
        lock: OwnedFd,
        /// `None` while another process has the name: the one that this process took over from, or one of another user.
        name: Option<UnixListener>,
    },
    Refused {
        directory: PathBuf,
        error: LocalPortsError,
    },
    /// Another process has taken over.
    GivenUp,
}

static CLAIM: Mutex<PortClaim> = Mutex::new(PortClaim::Unasked);

/// Whether the claim is refused; an atomic, since workers check it for each new flow.
static REFUSED: AtomicBool = AtomicBool::new(false);

fn current() -> MutexGuard<'static, PortClaim> {
    CLAIM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether another process may share ports.
pub(in crate::udp) fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// Claims the ports with a file in this directory, unless the claim was handed over by the previous process.
pub(crate) fn take(directory: &Path) {
    let mut claim = current();
    if matches!(*claim, PortClaim::Held { .. }) {
        return;
    }
    *claim = match acquire(directory) {
        Ok((lock, name)) => PortClaim::Held { lock, name },
        Err(error) => {
            report(&error);
            PortClaim::Refused { directory: directory.to_owned(), error }
        }
    };
    REFUSED.store(matches!(*claim, PortClaim::Refused { .. }), Ordering::Relaxed);
}

/// Claims the ports again if they were refused, and the name if another process had it.
pub(crate) fn retry() {
    let mut claim = current();
    match &mut *claim {
        PortClaim::Refused { directory, error } => match acquire(directory) {
            Ok((lock, name)) => {
                tracing::info!("UDP flows share local ports from now on");
                *claim = PortClaim::Held { lock, name };
                REFUSED.store(false, Ordering::Relaxed);
            }
            Err(now) => *error = now,
        },
        PortClaim::Held { name: name @ None, .. } => *name = WHAT.bind().ok(),
        PortClaim::Held { .. } | PortClaim::Unasked | PortClaim::GivenUp => {}
    }
}

fn acquire(directory: &Path) -> Result<(OwnedFd, Option<UnixListener>), LocalPortsError> {
    let NamespaceLock { lock, name } = NamespaceLock::acquire(directory, WHAT)?;
    Ok((lock, name))
}

/// Reason why ports are not shared, if they are not.
pub(crate) fn error() -> Option<LocalPortsError> {
    match &*current() {
        PortClaim::Refused { error, .. } => Some(error.clone()),
        PortClaim::Unasked | PortClaim::Held { .. } | PortClaim::GivenUp => None,
    }
}

/// A copy of the claim for the process that takes over; `None` if this process does not hold it.
///
/// # Errors
/// Returns an error if fcntl(2) fails.
pub(crate) fn copy() -> io::Result<Option<OwnedFd>> {
    match &*current() {
        PortClaim::Held { lock, .. } => lock.try_clone().map(Some),
        PortClaim::Unasked | PortClaim::Refused { .. } | PortClaim::GivenUp => Ok(None),
    }
}

/// Takes over the claim of the previous process.
pub(crate) fn take_over(lock: OwnedFd) {
    *current() = PortClaim::Held { lock, name: None };
    REFUSED.store(false, Ordering::Relaxed);
}

/// Releases the claim, of which the process that has taken over has a copy.
pub(crate) fn give_up() {
    *current() = PortClaim::GivenUp;
}

fn report(error: &LocalPortsError) {
    const EFFECT: &str = "each UDP flow takes a local port for itself, as the kernel gives them";
    match error {
        LocalPortsError::Taken(_) => tracing::warn!("{EFFECT}: {error}"),
        LocalPortsError::Unusable { .. } => tracing::info!("{EFFECT}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_shared_as_soon_as_the_claim_can_be_had() {
        let directory = std::env::temp_dir().join(format!("sheave-claim-{}", std::process::id()));
        let other = NamespaceLock::acquire(&directory, WHAT).unwrap();
        take(&directory);
        let locked = format!("locked {}", directory.join(WHAT.file).display());
        assert_eq!(error(), Some(LocalPortsError::Taken(locked)));
        retry();
        assert!(is_refused() && copy().unwrap().is_none());
        drop(other);
        retry();
        assert!(!is_refused() && error().is_none());
        let handed = copy().unwrap().unwrap();
        give_up();
        take_over(handed);
        take(&directory);
        assert!(!is_refused(), "it is its own");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
