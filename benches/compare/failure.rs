//! What can go wrong while measuring, in words for the person at the terminal.

use std::io;
use std::time::Duration;

/// Why a run, or the whole bench, could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// No right to create network namespaces.
    #[error(
        "no row can be run: all need network namespaces, and these need root, or user namespaces, which this machine \
         refuses (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns): {0}"
    )]
    NotPermitted(nix::Error),
    /// A system call or a file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A program that the bench started did not do its part.
    #[error("{program}: {problem}")]
    Program {
        /// The program.
        program: String,
        /// What it did, with its last words.
        problem: String,
    },
    /// Bytes came back that are not what the server sent, or a connection ended early.
    #[error("wrong answer: {0}")]
    WrongAnswer(String),
    /// Something took longer than it ever should.
    #[error("{what} took longer than {limit:?}")]
    TooSlow {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The request cannot be met on this machine.
    #[error("{0}")]
    Unsupported(String),
    /// A thread of the bench panicked; its message is on stderr.
    #[error("a thread of the bench ended early: {0}")]
    ThreadGone(&'static str),
}

impl Failure {
    /// `problem` of a program.
    pub(crate) fn program(program: &str, problem: impl Into<String>) -> Self {
        Self::Program { program: program.to_owned(), problem: problem.into() }
    }
}

/// Says what was tried when an operation fails.
pub(crate) trait During<T> {
    /// Turns the error into a [`Failure`] that names `what`.
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
