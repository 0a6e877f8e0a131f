//! Source ranges of a frontend: the CIDRs as configured, for display, and the set of addresses that may use it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::address_set::AddressSet;

/// `loadBalancerSourceRanges` of one frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRanges {
    cidrs: Vec<IpNet>,
    allowed: AddressSet,
}

impl SourceRanges {
    /// Allows only these clients; an empty list allows every client.
    pub fn new(cidrs: Vec<IpNet>) -> Self {
        let allowed = if cidrs.is_empty() { AddressSet::all() } else { AddressSet::from_cidrs(&cidrs) };
        Self { cidrs, allowed }
    }

    /// Allows the clients in `allowed`, and displays `cidrs`.
    pub fn showing(cidrs: Vec<IpNet>, allowed: AddressSet) -> Self {
        Self { cidrs, allowed }
    }

    /// Returns the same CIDRs, with `client` allowed as well.
    #[must_use]
    pub fn with_also(&self, client: IpAddr) -> Self {
        Self { cidrs: self.cidrs.clone(), allowed: self.allowed.with(client) }
    }

    /// The CIDRs in the order given; empty = every client, unless [`Self::allowed`] is empty as well.
    pub fn cidrs(&self) -> &[IpNet] {
        &self.cidrs
    }

    /// The clients that may use the frontend.
    pub fn allowed(&self) -> &AddressSet {
        &self.allowed
    }
}

impl Default for SourceRanges {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_ranges_admit_everyone() {
        assert_eq!(*SourceRanges::default().allowed(), AddressSet::all());
    }

    #[test]
    fn an_extra_client_is_not_shown_among_the_ranges() {
        let cidrs: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
        let ranges = SourceRanges::new(cidrs.clone()).with_also("192.0.2.1".parse().unwrap());
        assert_eq!(ranges.cidrs(), cidrs);
        assert_eq!(
            *ranges.allowed(),
            AddressSet::from_cidrs(&["10.0.0.0/8", "192.0.2.1/32"].map(|cidr| cidr.parse().unwrap()))
        );
    }
}
