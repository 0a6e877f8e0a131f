//! Exit codes, after BSD's `sysexits.h`, so that scripts can tell whose fault a failure is. 1 and 2 are answers: of
//! `sheave status`, as monitoring plugins define them, and of `sheave diff` and `sheave migrate`.

use std::process::ExitCode;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Exit {
    /// Done.
    Ok,
    /// The process that was asked works, but something is wrong.
    Degraded,
    /// What was compared differs, as diff(1) has it.
    Differs,
    /// Something has no equivalent.
    Untranslated,
    /// The process that was asked does not answer, or is not ready.
    Down,
    /// The command line is wrong (`EX_USAGE`).
    Usage,
    /// The manifests are wrong (`EX_DATAERR`).
    Data,
    /// Something that is needed does not answer (`EX_UNAVAILABLE`).
    Unavailable,
    /// A mistake of ours, or of the machine's (`EX_SOFTWARE`).
    Software,
    /// The configuration is wrong (`EX_CONFIG`).
    Config,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Degraded | Self::Differs | Self::Untranslated => 1,
            Self::Down => 2,
            Self::Usage => 64,
            Self::Data => 65,
            Self::Unavailable => 69,
            Self::Software => 70,
            Self::Config => 78,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
