//! Lock of what only one process of a network namespace may have. It locks a file in the state directory, which other users cannot, while
//! they could take a socket name or a port. It also binds a socket name in the network namespace, by which a process of the same user with
//! another state directory detects it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Uid;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::sys::Errno;

/// Names of a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Locked {
    /// File in the state directory, with one byte for each network namespace.
    pub(crate) file: &'static str,
    /// Abstract socket name, which belongs to the network namespace and ends with the process (unix(7)).
    pub(crate) name: &'static str,
}

/// Reason why it cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NamespaceLockError {
    /// Another process has it, as the text shows.
    #[error("another process of this network namespace has {0}")]
    Taken(String),
    /// The lock cannot be tried.
    #[error("{} cannot be locked: {error}", .file.display())]
    Unusable {
        file: PathBuf,
        /// Error of open(2) or fcntl(2).
        error: String,
    },
}

/// The lock, which this process has.
#[derive(Debug)]
pub(crate) struct NamespaceLock {
    /// Ends with the last copy of this descriptor, in any process.
    pub(crate) lock: OwnedFd,
    /// `None` while another process has the name: the one that this process took over from, or one of another user.
    pub(crate) name: Option<UnixListener>,
}

impl NamespaceLock {
    pub(crate) fn acquire(directory: &Path, what: Locked) -> Result<Self, NamespaceLockError> {
        let lock = lock(&directory.join(what.file), directory)?.into();
        match what.bind() {
            Ok(name) => Ok(Self { lock, name: Some(name) }),
            Err(_) if what.is_named_by_this_user() => {
                Err(NamespaceLockError::Taken(format!("the name @{}", what.name)))
            }
            Err(_) => Ok(Self { lock, name: None }),
        }
    }
}

impl Locked {
    pub(crate) fn bind(self) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(self.name)?)
    }

    /// Whether a process of this user listens on the name, as far as can be determined without waiting. A process of another user may
    /// have taken the name, which has no meaning.
    fn is_named_by_this_user(self) -> bool {
        let connect = || -> io::Result<Uid> {
            let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
            socket.connect(&SockAddr::unix(format!("\0{}", self.name))?)?;
            // The credentials of the process that called listen(2) (unix(7), SO_PEERCRED).
            Ok(Uid::from_raw(getsockopt(&socket.as_fd(), PeerCredentials)?.uid()))
        };
        match connect() {
            Ok(user) => user == Uid::effective(),
            // The queue is full.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

fn lock(path: &Path, directory: &Path) -> Result<File, NamespaceLockError> {
    let unusable =
        |error: io::Error| NamespaceLockError::Unusable { file: path.to_owned(), error: error.to_string() };
    // Opening the file fails if the directory neither exists nor can be created.
    DirBuilder::new().mode(0o700).create(directory).ok();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).map_err(unusable)?;
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
            Err(NamespaceLockError::Taken(format!("locked {}", path.display())))
        }
        Err(error) => Err(unusable(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    const WHAT: Locked = Locked { file: "test.lock", name: "sheave-test" };

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sheave-lock-{name}-{}", std::process::id()))
    }

    fn lock_in(directory: &Path) -> Result<File, NamespaceLockError> {
        lock(&directory.join(WHAT.file), directory)
    }

    #[test]
    fn one_process_of_a_network_namespace_has_the_lock_until_it_and_its_successor_have_ended() {
        let directory = directory("held");
        let held = lock_in(&directory).unwrap();
        let taken = NamespaceLockError::Taken(format!("locked {}", directory.join(WHAT.file).display()));
        assert_eq!(lock_in(&directory).unwrap_err(), taken);
        let handed = held.try_clone().unwrap();
        drop(held);
        assert_eq!(lock_in(&directory).unwrap_err(), taken);
        drop(handed);
        lock_in(&directory).unwrap();
        // Another namespace has its own lock. Without permission to create one the test checks nothing here.
        let _held = lock_in(&directory).unwrap();
        let in_another = || unshare(CloneFlags::CLONE_NEWNET).map(|()| lock_in(&directory).is_ok());
        let elsewhere = std::thread::scope(|scope| scope.spawn(in_another).join()).unwrap();
        assert!(elsewhere.unwrap_or(true));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_process_of_this_user_with_another_directory_is_known_by_its_name() {
        // Names belong to the network namespace. Without permission to create one this process may not be alone in its namespace.
        let alone = || {
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let (one, other) = (directory("one"), directory("other"));
            let first = NamespaceLock::acquire(&one, WHAT).unwrap();
            assert!(first.name.is_some());
            let refused = NamespaceLock::acquire(&other, WHAT).unwrap_err();
            drop(first);
            // A name without a listener is not this user's, and then only the lock excludes other processes.
            let squatter = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            squatter.bind(&SockAddr::unix(format!("\0{}", WHAT.name)).unwrap()).unwrap();
            let without_name = NamespaceLock::acquire(&other, WHAT).unwrap();
            assert!(without_name.name.is_none());
            [one, other].iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
            Some(refused)
        };
        let refused = std::thread::scope(|scope| scope.spawn(alone).join()).unwrap();
        let named = NamespaceLockError::Taken(format!("the name @{}", WHAT.name));
        assert_eq!(refused.unwrap_or(named.clone()), named);
    }

    #[test]
    fn without_a_usable_directory_nobody_has_the_lock() {
        assert!(matches!(
            lock_in(Path::new("/proc/self/status")).unwrap_err(),
            NamespaceLockError::Unusable { .. }
        ));
    }
}
