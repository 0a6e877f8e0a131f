//! Exit codes after BSD's `sysexits.h`, so that scripts can tell the cause of a failure. 1 and 2 are results: of
//! `sheave status`, as for monitoring plugins, and of `sheave diff`, `sheave replay` and `sheave migrate`.

use std::process::ExitCode;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Exit {
    /// Success.
    Ok,
    /// The queried process works, but is degraded; or this machine's settings are too small.
    Degraded,
    /// The compared sides differ, as for diff(1).
    Differs,
    /// Something has no equivalent.
    Untranslated,
    /// The queried process does not answer, or is not ready.
    Down,
    /// The command line is wrong (`EX_USAGE`).
    Usage,
    /// The manifests are wrong (`EX_DATAERR`).
    Data,
    /// A required service does not answer (`EX_UNAVAILABLE`).
    Unavailable,
    /// A bug, or a failure of the machine (`EX_SOFTWARE`).
    Software,
    /// The configuration is wrong (`EX_CONFIG`).
    Config,
}

impl Exit {
    /// The numeric exit code.
    pub fn code(self) -> u8 {
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
