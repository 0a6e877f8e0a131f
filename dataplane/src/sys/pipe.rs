//! Kernel pipe as a buffer for `splice(2)`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Maximum capacity in bytes of an unprivileged process's pipe, unless the administrator raises it
/// (/proc/sys/fs/pipe-max-size).
const LARGEST: usize = 1 << 20;

/// Limit of the slots of all pipes of a user, beyond which unprivileged processes get pipes of two slots (pipe(7)).
const USER_LIMIT: &str = "/proc/sys/fs/pipe-user-pages-soft";

/// Both ends of a nonblocking pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    slots: usize,
}

impl Pipe {
    /// Opens a pipe of `slots` slots, a power of two, or of fewer if the kernel refuses that many: see [`Self::slots`].
    /// The kernel counts capacity in pages, but a slot holds one socket fragment of any size.
    ///
    /// # Errors
    /// Returns an error if pipe(2) fails.
    pub(crate) fn open(slots: usize) -> io::Result<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let page = page_size();
        let wanted = i32::try_from((slots * page).min(LARGEST)).unwrap_or(i32::MAX);
        let bytes = match fcntl(&write, FcntlArg::F_SETPIPE_SZ(wanted)) {
            Ok(bytes) => bytes,
            // Above pipe-max-size, or the user's limit is reached.
            Err(_) => fcntl(&write, FcntlArg::F_GETPIPE_SZ)?,
        };
        Ok(Self { read, write, slots: usize::try_from(bytes).unwrap_or_default() / page })
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn read_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    pub(super) fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }
}

/// Limit of the slots of all pipes of this user; `None` = unlimited.
pub(crate) fn user_limit() -> Option<usize> {
    let limit: usize = fs::read_to_string(USER_LIMIT).ok()?.trim().parse().ok()?;
    (limit > 0).then_some(limit)
}

fn page_size() -> usize {
    // SAFETY: sysconf(3) only reads.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| *size > 0).unwrap_or(4096)
}
