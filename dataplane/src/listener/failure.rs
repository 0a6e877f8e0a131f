//! Frontends that could not be opened, and why.

use std::io;
use std::sync::Arc;

use sheave_model::Frontend;

use crate::sys::Errno;

/// A frontend that could not be opened.
#[derive(Debug)]
pub struct BindFailure {
    /// Which frontend.
    pub frontend: Arc<Frontend>,
    /// As bind(2): mostly `AddrInUse` or `PermissionDenied`; `EMFILE` also if listening sockets have had their share of the
    /// descriptors.
    pub error: io::Error,
    /// It still listens, but admits the clients that it admitted before.
    pub listening: bool,
}

impl BindFailure {
    /// Whether it is descriptors that are missing, which every other frontend lacks as well.
    pub(crate) fn is_of_everyone(&self) -> bool {
        let number = self.error.raw_os_error().map(Errno::from_raw);
        matches!(number, Some(Errno::EMFILE | Errno::ENFILE))
    }

    /// Whether it says the same of the same frontend.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.frontend, &other.frontend)
            && self.listening == other.listening
            && self.error.kind() == other.error.kind()
            && self.error.raw_os_error() == other.error.raw_os_error()
    }
}
