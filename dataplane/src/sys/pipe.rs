//! A kernel pipe as a buffer for `splice(2)`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Wanted capacity. A slot holds one socket fragment of any size, so this counts slots more than bytes: 256 slots
/// take a whole 1 MiB burst of page-sized fragments. More needs CAP_SYS_RESOURCE (/proc/sys/fs/pipe-max-size).
const CAPACITY: i32 = 1 << 20;

/// Both ends of a nonblocking pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// Opens a pipe. It keeps the kernel's default size where the wanted one is refused (pipe-user-pages-soft).
    pub(crate) fn open() -> io::Result<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        if let Err(error) = fcntl(&write, FcntlArg::F_SETPIPE_SZ(CAPACITY)) {
            tracing::debug!(%error, "pipe keeps its default size");
        }
        Ok(Self { read, write })
    }

    pub(super) fn read_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    pub(super) fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }
}
