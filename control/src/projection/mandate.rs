//! Which MultiClusterServices are up to this process.

/// Which MultiClusterServices a controller decides about: of several installations that see the same Karmada control plane one
/// does. Gateways follow what that one publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mandate {
    /// Those of its class, and those without one that it has taken.
    pub own: bool,
    /// Those without a class that no installation has taken yet.
    pub untaken: bool,
}

impl Mandate {
    /// All of them, as if there were no other installation.
    pub const ALL: Self = Self { own: true, untaken: true };
    /// None: another installation does, or who does is not known.
    pub const NONE: Self = Self { own: false, untaken: false };
}
