//! Result of a request: addresses, unmet parts of the request, and addresses that stay although they would not be allocated
//! today.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

use crate::net::Family;

/// Reason why a part of a request is unmet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Shortfall {
    #[error("no AddressPool is named {0:?}")]
    UnknownPool(String),
    #[error("the selectors of AddressPool {0} leave the Service out")]
    NotAdmitted(Arc<str>),
    /// Addresses requested by value are refused.
    #[error("{addresses} {} {why}", .addresses.are())]
    Refused { addresses: AddressSummary, why: Refusal },
    #[error("AddressPool {} has no free {family} address", .pools.join(", "))]
    Exhausted { family: Family, pools: Vec<Arc<str>> },
    #[error("AddressPool {} gives the {family} addresses of gateway nodes, and no gateway node is ready for the Service", .pools.join(", "))]
    NoGatewayNode { family: Family, pools: Vec<Arc<str>> },
    #[error("AddressPool {pool} has no {family} addresses")]
    FamilyMissing { family: Family, pool: Arc<str> },
    /// No pool has the family, so other sources of addresses can be used.
    #[error("no AddressPool gives the Service {0} addresses")]
    NoPool(Family),
}

/// Reason why an address requested by value is not allocated. It never names the Service that has the address: tenants must not
/// learn about each other.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("in no AddressPool that the Service may use")]
    NotInPool,
    #[error(
        "given to another namespace, and AddressPool {0} does not share between namespaces (spec.sharing: Cluster would)"
    )]
    InUse(Arc<str>),
    #[error(
        "published by another load balancer for another namespace, and AddressPool {0} does not share between namespaces (spec.sharing: Cluster would)"
    )]
    Foreign(Arc<str>),
    #[error("beyond the {most} that AddressPool {pool} gives one Service by value (spec.maxPerService)")]
    TooMany { pool: Arc<str>, most: u32 },
}

/// Reason why an address stays with a Service that would not get it today. Withdrawing it would disconnect clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Reservation {
    #[error(
        "another namespace had the address first, and AddressPool {0} does not share between namespaces (spec.sharing: Cluster would)"
    )]
    Shared(Arc<str>),
    #[error("AddressPool {pool} gives one Service no more than {most} by value (spec.maxPerService)")]
    TooMany { pool: Arc<str>, most: u32 },
    #[error("none of the addresses that the Service asks for can be given")]
    Refused,
    /// The pool that the Service names cannot be used.
    #[error(transparent)]
    NoAccess(Shortfall),
    #[error("the selectors of AddressPool {0} leave the Service out")]
    NotAdmitted(Arc<str>),
    /// The Service names another pool, which has no address to replace this one.
    #[error(
        "the Service names AddressPool {named}, which has no address to give, and the address is of AddressPool {of}"
    )]
    OfOtherPool { named: Arc<str>, of: Arc<str> },
    #[error("no AddressPool lists the address any longer")]
    NotInPool,
    #[error("there is no AddressPool")]
    NoPools,
    /// A pool with the address selects Namespaces by labels.
    #[error("the Service's Namespace is not known, and AddressPool {0} selects by its labels")]
    NamespaceUnknown(Arc<str>),
    /// A pool has the addresses of gateway nodes, and no gateway is ready, or no Node is known.
    #[error("no gateway is ready")]
    NoGateway,
}

/// Addresses in a message: the first few, and the number of the others. A Service may request thousands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressSummary {
    named: Vec<IpAddr>,
    more: usize,
}

impl AddressSummary {
    const NAMED: usize = 3;

    /// A summary of one address.
    pub(crate) fn new(ip: IpAddr) -> Self {
        Self { named: vec![ip], more: 0 }
    }

    pub(super) fn push(&mut self, ip: IpAddr) {
        if self.named.len() < Self::NAMED {
            self.named.push(ip);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn are(&self) -> &'static str {
        if self.is_one() { "is" } else { "are" }
    }

    pub(crate) fn it(&self) -> &'static str {
        if self.is_one() { "it" } else { "them" }
    }

    pub(crate) fn they(&self) -> &'static str {
        if self.is_one() { "it is" } else { "they are" }
    }

    fn is_one(&self) -> bool {
        self.named.len() == 1
    }
}

impl fmt::Display for AddressSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<String> = self.named.iter().map(IpAddr::to_string).collect();
        match (named.split_last(), self.more) {
            (Some((last, rest)), 0) if !rest.is_empty() => write!(f, "{} and {last}", rest.join(", ")),
            (_, 0) => f.write_str(&named.concat()),
            (_, more) => write!(f, "{} and {more} more", named.join(", ")),
        }
    }
}

/// Result of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) shortfalls: Vec<Shortfall>,
    /// Reservations, with the addresses that they apply to.
    pub(crate) reservations: Vec<(Reservation, AddressSummary)>,
    pub(crate) demand: Demand,
}

/// Addresses that a Service could get, or have without reservation, once other Services release them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Pools and families of which any address would do.
    pub(crate) any: Vec<(Arc<str>, Family)>,
    /// Specific addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Assignment {
    pub(super) fn refuse(&mut self, ip: IpAddr, refusal: Refusal) {
        if matches!(refusal, Refusal::InUse(_) | Refusal::Foreign(_)) {
            self.demand.addresses.push(ip);
        }
        let same = self.shortfalls.iter_mut().find_map(|shortfall| match shortfall {
            Shortfall::Refused { addresses, why } if *why == refusal => Some(addresses),
            _ => None,
        });
        match same {
            Some(addresses) => addresses.push(ip),
            None => {
                self.shortfalls.push(Shortfall::Refused { addresses: AddressSummary::new(ip), why: refusal });
            }
        }
    }

    pub(super) fn reserve(&mut self, ip: IpAddr, reservation: Reservation) {
        match self.reservations.iter_mut().find(|(known, _)| *known == reservation) {
            Some((_, addresses)) => addresses.push(ip),
            None => self.reservations.push((reservation, AddressSummary::new(ip))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_three_addresses_and_counts_the_rest() {
        let told = |count: u8| {
            let mut several = AddressSummary::new([10, 0, 0, 1].into());
            (2..=count).for_each(|last| several.push([10, 0, 0, last].into()));
            format!("{several} {}", several.are())
        };
        assert_eq!(told(1), "10.0.0.1 is");
        assert_eq!(told(2), "10.0.0.1 and 10.0.0.2 are");
        assert_eq!(told(3), "10.0.0.1, 10.0.0.2 and 10.0.0.3 are");
        assert_eq!(told(9), "10.0.0.1, 10.0.0.2, 10.0.0.3 and 6 more are");
    }
}
