//! Reasons why the kernel carries nothing, although frontends ask for it.

use std::net::IpAddr;

use sheave_model::Frontend;

/// Reason why the kernel carries nothing. Formats as a sentence for users, without a full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KernelPathError(String);

impl KernelPathError {
    /// An error for this reason.
    pub(crate) fn new(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// Reasons why the kernel carries nothing of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelPathErrors {
    v4: Option<KernelPathError>,
    v6: Option<KernelPathError>,
    tracking_full: Option<KernelPathError>,
}

impl KernelPathErrors {
    /// No reason: the kernel carries what it is asked to.
    pub const NONE: Self = Self { v4: None, v6: None, tracking_full: None };

    /// The reasons for each family.
    pub(crate) fn new(v4: Option<KernelPathError>, v6: Option<KernelPathError>) -> Self {
        Self { v4, v6, ..Self::NONE }
    }

    /// The same, and that new connections will soon find no room in connection tracking.
    pub(crate) fn with_tracking_full(self, tracking_full: Option<KernelPathError>) -> Self {
        Self { tracking_full, ..self }
    }

    /// Why new connections will soon find no room in connection tracking, on which the kernel carries them all the same.
    pub fn tracking_full(&self) -> Option<&KernelPathError> {
        self.tracking_full.as_ref()
    }

    /// Whether the kernel carries a frontend: that asks for it, and nothing is in the way.
    pub fn allow(&self, frontend: &Frontend) -> bool {
        frontend.kernel_path().is_ok() && self.of(frontend.addr.ip).is_none()
    }

    /// The reason for frontends at this address.
    pub fn of(&self, ip: IpAddr) -> Option<&KernelPathError> {
        match ip {
            IpAddr::V4(_) => self.v4.as_ref(),
            IpAddr::V6(_) => self.v6.as_ref(),
        }
    }
}
