//! Claim on the shared local ports. The kernel lets two processes of one user have the same port towards the same endpoint
//! (`SO_REUSEPORT`), and answers to one would reach the other. Therefore only one process of a network namespace shares ports. It locks a
//! file in the state directory, which other users cannot, while they could take a socket name or a port. It also binds a socket name in
//! the network namespace, by which a process of the same user with another state directory detects it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Uid;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::sys::Errno;

/// Lock file, with one byte for each network namespace.
const FILE: &str = "udp-ports.lock";
/// Abstract socket name, which belongs to the network namespace and ends with the process (unix(7)).
const NAME: &str = "sheave-udp-ports";

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
pub(super) fn is_refused() -> bool {
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
        PortClaim::Held { name: name @ None, .. } => *name = bind_name().ok(),
        PortClaim::Held { .. } | PortClaim::Unasked | PortClaim::GivenUp => {}
    }
}

fn acquire(directory: &Path) -> Result<(OwnedFd, Option<UnixListener>), LocalPortsError> {
    let lock = lock(directory)?;
    match bind_name() {
        Ok(name) => Ok((lock.into(), Some(name))),
        Err(_) if is_named_by_this_user() => Err(LocalPortsError::Taken(format!("the name @{NAME}"))),
        Err(_) => Ok((lock.into(), None)),
    }
}

fn bind_name() -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(NAME)?)
}

/// Whether a process of this user listens on the name, as far as can be determined without waiting. A process of another user may have
/// taken the name, which has no meaning.
fn is_named_by_this_user() -> bool {
    let connect = || -> io::Result<Uid> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(format!("\0{NAME}"))?)?;
        // The credentials of the process that called listen(2) (unix(7), SO_PEERCRED).
        Ok(Uid::from_raw(getsockopt(&socket.as_fd(), PeerCredentials)?.uid()))
    };
    match connect() {
        Ok(user) => user == Uid::effective(),
        // The queue is full.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
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

fn lock(directory: &Path) -> Result<File, LocalPortsError> {
    let path = directory.join(FILE);
    let unusable =
        |error: io::Error| LocalPortsError::Unusable { file: path.clone(), error: error.to_string() };
    // Opening the file fails if the directory neither exists nor can be created.
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
    // The lock belongs to the open file and not to the process, so that it can be handed over.
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&byte)) {
        Ok(_) => Ok(file),
        Err(Errno::EAGAIN | Errno::EACCES) => {
            Err(LocalPortsError::Taken(format!("locked {}", path.display())))
        }
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

    fn locked(directory: &Path) -> LocalPortsError {
        LocalPortsError::Taken(format!("locked {}", directory.join(FILE).display()))
    }

    #[test]
    fn one_process_of_a_network_namespace_has_the_claim_until_it_and_its_successor_have_ended() {
        let directory = directory("held");
        let held = lock(&directory).unwrap();
        let taken = locked(&directory);
        assert_eq!(lock(&directory).unwrap_err(), taken);
        let handed = held.try_clone().unwrap();
        drop(held);
        assert_eq!(lock(&directory).unwrap_err(), taken);
        drop(handed);
        lock(&directory).unwrap();
        // Another namespace has its own claim. Without permission to create one the test checks nothing here.
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
        assert_eq!(error(), Some(locked(&directory)));
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
    fn a_process_of_this_user_with_another_directory_is_known_by_its_name() {
        // Names belong to the network namespace. Without permission to create one this process may not be alone in its namespace.
        let alone = || {
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let (one, other) = (directory("one"), directory("other"));
            let first = acquire(&one).unwrap();
            assert!(first.1.is_some());
            let refused = acquire(&other).unwrap_err();
            drop(first);
            // A name without a listener is not this user's, and then only the lock excludes other processes.
            let squatter = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            squatter.bind(&SockAddr::unix(format!("\0{NAME}")).unwrap()).unwrap();
            let without_name = acquire(&other).unwrap();
            assert!(without_name.1.is_none());
            [one, other].iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
            Some(refused)
        };
        let refused = std::thread::scope(|scope| scope.spawn(alone).join()).unwrap();
        let named = LocalPortsError::Taken(format!("the name @{NAME}"));
        assert_eq!(refused.unwrap_or(named.clone()), named);
    }

    #[test]
    fn without_a_usable_directory_no_process_shares_ports() {
        let file = Path::new("/proc/self/status");
        assert!(matches!(lock(file).unwrap_err(), LocalPortsError::Unusable { .. }));
    }
}
