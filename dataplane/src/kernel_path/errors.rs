//! Reasons why the kernel carries nothing, although frontends ask for it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use sheave_model::Frontend;

/// Reason why the kernel carries nothing. Formats as a sentence for users, without a full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KernelPathError(Cow<'static, str>);

impl KernelPathError {
    /// An error for this reason.
    pub(crate) fn new(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string().into())
    }
}

/// The reason at addresses of the machine: the kernel would take a port there from a program that listens on it.
static OF_MACHINE: KernelPathError = KernelPathError(Cow::Borrowed(
    "it is an address of the node itself, where programs of the node come first",
));

/// Reasons why the kernel carries nothing of a family, or at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelPathErrors {
    v4: Option<KernelPathError>,
    v6: Option<KernelPathError>,
    tracking_full: Option<KernelPathError>,
    /// Addresses of the machine itself.
    machine: BTreeSet<IpAddr>,
}

impl KernelPathErrors {
    /// No reason: the kernel carries what it is asked to.
    pub const NONE: Self = Self { v4: None, v6: None, tracking_full: None, machine: BTreeSet::new() };

    /// The reasons for each family.
    pub(crate) fn new(v4: Option<KernelPathError>, v6: Option<KernelPathError>) -> Self {
        Self { v4, v6, ..Self::NONE }
    }

    /// The same, and that new connections will soon find no room in connection tracking.
    pub(crate) fn with_tracking_full(self, tracking_full: Option<KernelPathError>) -> Self {
        Self { tracking_full, ..self }
    }

    /// The same, with these addresses of the machine.
    pub(super) fn with_machine(self, machine: BTreeSet<IpAddr>) -> Self {
        Self { machine, ..self }
    }

    /// Whether programs of the machine come first at this address.
    pub(super) fn is_machine(&self, ip: IpAddr) -> bool {
        self.machine.contains(&ip)
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
            _ if self.is_machine(ip) => Some(&OF_MACHINE),
            IpAddr::V4(_) => self.v4.as_ref(),
            IpAddr::V6(_) => self.v6.as_ref(),
        }
    }
}
