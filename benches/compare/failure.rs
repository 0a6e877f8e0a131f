//! Failures of a measurement, worded for the user at the terminal.

use std::io;
use std::time::Duration;

/// Reason why a run, or the whole bench, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Network namespaces cannot be created.
    #[error(
        "no row can be run: all need network namespaces, and these need root, or user namespaces, which this machine \
         refuses (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns): {0}"
    )]
    NotPermitted(nix::Error),
    /// A system call or a file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// Operation that was tried.
        what: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A program that the bench started failed.
    #[error("{program}: {problem}")]
    Program {
        program: String,
        /// Problem, with the program's last output.
        problem: String,
    },
    /// Bytes differ from what the server sent, or a connection ended early.
    #[error("wrong answer: {0}")]
    WrongAnswer(String),
    /// Something took too long.
    #[error("{what} took longer than {limit:?}")]
    TooSlow {
        /// Operation that was waited for.
        what: &'static str,
        /// Time limit.
        limit: Duration,
    },
    /// This machine does not support the request.
    #[error("{0}")]
    Unsupported(String),
    /// A thread of the bench panicked; its message is on stderr.
    #[error("a thread of the bench ended early: {0}")]
    ThreadGone(&'static str),
}

impl Failure {
    /// Failure of a program.
    pub(crate) fn program(program: &str, problem: impl Into<String>) -> Self {
        Self::Program { program: program.to_owned(), problem: problem.into() }
    }
}

/// Adds the operation to an error.
pub(crate) trait During<T> {
    /// Converts the error to a [`Failure`] that names `what`.
    fn during(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|source| Failure::Io { what: what.into(), source })
    }
}

impl<T> During<T> for nix::Result<T> {
    fn during(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|errno| Failure::Io { what: what.into(), source: errno.into() })
    }
}
