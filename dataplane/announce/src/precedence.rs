//! Which of two gateways keeps an address that both announce.

/// The gateway that keeps an address when another one announces it as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// This gateway: it has a majority.
    #[default]
    Own,
    /// The one with the lower MAC address: this gateway has half of the members, and nobody can have more.
    LowerMac,
    /// The other one: this gateway has fewer than half of the members.
    Other,
}
