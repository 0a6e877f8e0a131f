//! The addresses and ports of a segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::support::world::Family;

/// The port of all Services.
pub(crate) const PORT: u16 = 80;
/// The port of all endpoints.
pub(crate) const TARGET: u16 = 8080;

/// An address of the segment.
pub(crate) fn on_segment(family: Family, third: u8, fourth: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 5, third, fourth).into(),
        Family::V6 => Ipv6Addr::new(0xfd05, 0, 0, 0, 0, 0, third.into(), fourth.into()).into(),
    }
}

/// The address of a gateway, which is counted from 1.
pub(crate) fn gateway_address(family: Family, number: u8) -> IpAddr {
    on_segment(family, 1, number)
}

/// The address of a Service, which is counted from 1.
pub(crate) fn service_address(family: Family, number: u8) -> IpAddr {
    on_segment(family, 100, number)
}
