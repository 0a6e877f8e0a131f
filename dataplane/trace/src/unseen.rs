//! Facts that could not be seen, and the missing right or file.

use std::borrow::Cow;
use std::{fmt, io};

use nix::libc;

/// A fact that could not be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot see {what}: {missing}")]
pub struct Unseen {
    /// The fact, for example `the routes`.
    pub what: Cow<'static, str>,
    /// Why.
    pub missing: Missing,
}

impl Unseen {
    pub(crate) fn new(what: impl Into<Cow<'static, str>>, missing: Missing) -> Self {
        Self { what: what.into(), missing }
    }

    /// From an error of a system call that needs this right, and this part of the kernel.
    pub(crate) fn from_io(what: &'static str, error: &io::Error, right: Right, part: &'static str) -> Self {
        let missing = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Missing::Right(right),
            Some(
                libc::EAFNOSUPPORT
                | libc::EPROTONOSUPPORT
                | libc::EOPNOTSUPP
                | libc::ENOENT
                | libc::ESOCKTNOSUPPORT,
            ) => Missing::KernelPart(part),
            _ if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Missing::Time,
            Some(code) => Missing::Answer(Errno(code)),
            None => Missing::Understanding(error.to_string()),
        };
        Self::new(what, missing)
    }

    /// From an error of reading a file.
    pub(crate) fn from_file(what: &'static str, path: &str, error: &io::Error) -> Self {
        Self::new(what, Missing::File { path: path.to_owned(), error: Errno::of(error) })
    }
}

/// Missing requirement to see a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A right of the process.
    Right(Right),
    /// A part of the kernel that is not built in or not loaded.
    KernelPart(&'static str),
    /// A file that cannot be read.
    File {
        /// The file.
        path: String,
        /// Why it cannot be read.
        error: Errno,
    },
    /// A link that does not exist, or that has no neighbours.
    Link(String),
    /// An answer within the time.
    Time,
    /// An answer other than this error.
    Answer(Errno),
    /// An answer of a form that this version reads.
    Understanding(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right(right) => write!(f, "the right {right} is missing"),
            Self::KernelPart(part) => write!(f, "the kernel has no {part}"),
            Self::File { path, error } => write!(f, "{path} cannot be read: {error}"),
            Self::Link(link) => write!(f, "{link}"),
            Self::Time => f.write_str("the time is over"),
            Self::Answer(errno) => write!(f, "{errno}"),
            Self::Understanding(error) => write!(f, "the kernel's answer is not understood: {error}"),
        }
    }
}

/// A capability of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Raw and packet sockets.
    NetRaw,
    /// Connection tracking and packet filters.
    NetAdmin,
    /// Ports below 1024, or whatever `net.ipv4.ip_unprivileged_port_start` is.
    NetBindService,
    /// None: the kernel lets every process do it.
    Nothing,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetRaw => "CAP_NET_RAW",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::Nothing => "to ask the kernel (a security module may refuse it)",
        })
    }
}

/// Number of an error of the kernel (errno(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    pub(crate) fn of(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or_default())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}
