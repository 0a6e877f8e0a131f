//! The claim on the local ports that UDP flows share. The kernel lets two processes of one user have the same port towards the same
//! endpoint (`SO_REUSEPORT`), and answers to the one would reach the other: so one process alone of a network namespace shares ports.
//! It holds a lock on a file of the state directory, which no other user can take, as they could take a name or a port.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};

use crate::sys::Errno;

/// Each network namespace has one byte of it.
const FILE: &str = "udp-ports.lock";

/// Why UDP flows of this process do not share local ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalPortsError {
    /// Another process has the claim.
    #[error("another process of this network namespace shares local ports among its UDP flows: it has locked {}", .0.display())]
    Taken(PathBuf),
    /// Whether another one has it is not known.
    #[error("{} cannot be locked: {error}", .file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// As open(2) or fcntl(2).
        error: String,
    },
}

#[derive(Debug)]
enum Claim {
    /// Nobody has asked for it: ports are shared.
    Unasked,
    /// The lock goes with the last copy of this descriptor, in whatever process.
    Held(OwnedFd),
    Refused {
        directory: PathBuf,
        error: LocalPortsError,
    },
    /// Another process has taken over.
    GivenUp,
}

static CLAIM: Mutex<Claim> = Mutex::new(Claim::Unasked);

/// The same for workers, which look at each new flow.
static REFUSED: AtomicBool = AtomicBool::new(false);

fn current() -> MutexGuard<'static, Claim> {
    CLAIM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether another process may share ports here.
pub(super) fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// Claims the ports, by a file in this directory, unless the process that is taken over from has handed over its claim.
pub(crate) fn take(directory: &Path) {
    let mut claim = current();
    if matches!(*claim, Claim::Held(_)) {
        return;
    }
    *claim = match lock(directory) {
        Ok(file) => Claim::Held(file.into()),
        Err(error) => {
            report(&error);
            Claim::Refused { directory: directory.to_owned(), error }
        }
    };
    REFUSED.store(matches!(*claim, Claim::Refused { .. }), Ordering::Relaxed);
}

/// Claims the ports again if they were refused.
pub(crate) fn retry() {
    let mut claim = current();
    if let Claim::Refused { directory, error } = &mut *claim {
        match lock(directory) {
            Ok(file) => {
                tracing::info!("UDP flows share local ports from now on");
                *claim = Claim::Held(file.into());
                REFUSED.store(false, Ordering::Relaxed);
            }
            Err(now) => *error = now,
        }
    }
}

/// Why ports are not shared.
pub(crate) fn error() -> Option<LocalPortsError> {
    match &*current() {
        Claim::Refused { error, .. } => Some(error.clone()),
        Claim::Unasked | Claim::Held(_) | Claim::GivenUp => None,
    }
}

/// The claim, for the process that takes over; none if this one does not have it.
///
/// # Errors
/// As fcntl(2).
pub(crate) fn copy() -> io::Result<Option<OwnedFd>> {
    match &*current() {
        Claim::Held(claim) => claim.try_clone().map(Some),
        Claim::Unasked | Claim::Refused { .. } | Claim::GivenUp => Ok(None),
    }
}

/// Has the claim of the process that is taken over from.
pub(crate) fn take_over(claim: OwnedFd) {
    *current() = Claim::Held(claim);
    REFUSED.store(false, Ordering::Relaxed);
}

/// Gives up the claim, which the process that has taken over has, too.
pub(crate) fn give_up() {
    *current() = Claim::GivenUp;
}

fn report(error: &LocalPortsError) {
    const EFFECT: &str = "each UDP flow takes a local port for itself, as the kernel gives them";
    match error {
        LocalPortsError::Taken(_) => tracing::warn!("{EFFECT}: {error}"),
        LocalPortsError::Unusable { .. } => tracing::info!("{EFFECT}: {error}"),
    }
}

fn lock(directory: &Path) -> Result<File, LocalPortsError> {
    let path = directory.join(FILE);
    let unusable =
        |error: io::Error| LocalPortsError::Unusable { file: path.clone(), error: error.to_string() };
    // Where it is there already, or cannot be made, opening the file tells.
    DirBuilder::new().mode(0o700).create(directory).ok();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&path).map_err(unusable)?;
    let namespace = fs::metadata("/proc/thread-self/ns/net").map_err(unusable)?.ino();
    let byte = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: i64::try_from(namespace).unwrap_or(0),
        l_len: 1,
        l_pid: 0,
    };
    // Of this open file and not of the process, so that it can be handed over.
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&byte)) {
        Ok(_) => Ok(file),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(LocalPortsError::Taken(path)),
        Err(error) => Err(unusable(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sheave-claim-{name}-{}", std::process::id()))
    }

    #[test]
    fn one_process_of_a_network_namespace_has_the_claim_until_it_and_its_successor_have_ended() {
        let directory = directory("held");
        let held = lock(&directory).unwrap();
        let taken = LocalPortsError::Taken(directory.join(FILE));
        assert_eq!(lock(&directory).unwrap_err(), taken);
        let handed = held.try_clone().unwrap();
        drop(held);
        assert_eq!(lock(&directory).unwrap_err(), taken);
        drop(handed);
        lock(&directory).unwrap();
        // In another namespace it is another one; without the right to make one there is nothing to see.
        let _held = lock(&directory).unwrap();
        let in_another = || unshare(CloneFlags::CLONE_NEWNET).map(|()| lock(&directory).is_ok());
        let elsewhere = std::thread::scope(|scope| scope.spawn(in_another).join()).unwrap();
        assert!(elsewhere.unwrap_or(true));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn ports_are_shared_as_soon_as_the_claim_can_be_had() {
        let directory = directory("retried");
        let other = lock(&directory).unwrap();
        take(&directory);
        assert_eq!(error(), Some(LocalPortsError::Taken(directory.join(FILE))));
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
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn without_a_usable_directory_no_process_shares_ports() {
        let file = Path::new("/proc/self/status");
        assert!(matches!(lock(file).unwrap_err(), LocalPortsError::Unusable { .. }));
    }
}
