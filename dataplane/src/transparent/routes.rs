//! Routing rules and routes that deliver packets with the gateway's mark locally.
//!
//! In the syntax of ip(8), for each family:
//! ```text
//! ip route add local default dev lo table TABLE
//! ip rule add priority PRIORITY iif lo fwmark MARK/MASK lookup main
//! ip rule add priority PRIORITY+1 fwmark MARK/MASK lookup TABLE
//! ```

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::netlink::{exchange, message, unless};
use super::{MARK, MARK_MASK};
use crate::sys::Errno;
use crate::sys::sockets::Netlink;

/// Routing table of the gateway. The number spells "SHEA" on a telephone's keys, and is far from the small numbers above 255
/// that VRFs and network plugins use.
pub(super) const TABLE: u32 = 7432;
/// Priority of the first rule: before the rules of network plugins for single pods (AWS: 512 and up), which would send
/// replies elsewhere.
const PRIORITY: u32 = 60;
/// LOOPBACK_IFINDEX (net/flow.h in the kernel), the same in every network namespace.
pub(super) const LOOPBACK: u32 = 1;
/// RT_TABLE_MAIN (linux/rtnetlink.h).
const MAIN: u32 = 254;

/// Adds the route and the rules that are missing.
pub(super) fn add(netlink: &Netlink, family: AddressFamily) -> io::Result<()> {
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let rules = rules(family).map(RouteNetlinkMessage::NewRule);
    for content in [RouteNetlinkMessage::NewRoute(route(family))].into_iter().chain(rules) {
        unless(&[Errno::EEXIST], exchange(netlink, vec![message(content, flags)]))?;
    }
    Ok(())
}

/// Removes the route and the rules that exist.
pub(super) fn remove(netlink: &Netlink, family: AddressFamily) -> io::Result<()> {
    let rules = rules(family).map(RouteNetlinkMessage::DelRule);
    for content in rules.into_iter().chain([RouteNetlinkMessage::DelRoute(route(family))]) {
        unless(&[Errno::ENOENT, Errno::ESRCH], exchange(netlink, vec![message(content, NLM_F_ACK)]))?;
    }
    Ok(())
}

/// A route that delivers every address locally.
fn route(family: AddressFamily) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header = RouteHeader {
        address_family: family,
        protocol: RouteProtocol::Static,
        scope: RouteScope::Host,
        kind: RouteType::Local,
        ..RouteHeader::default()
    };
    route.attributes = vec![RouteAttribute::Table(TABLE), RouteAttribute::Oif(LOOPBACK)];
    route
}

/// The two rules. The second one selects the gateway's table. The first keeps the kernel's source validation
/// (`__fib_validate_source`) out of that table: if `net.ipv4.conf.*.src_valid_mark` is set, it looks up with the packet's
/// mark, and would drop packets from addresses that are local in the table.
fn rules(family: AddressFamily) -> [RuleMessage; 2] {
    let rule = |priority, table| {
        let mut rule = RuleMessage::default();
        rule.header = RuleHeader { family, action: RuleAction::ToTable, ..RuleHeader::default() };
        rule.attributes = vec![
            RuleAttribute::Priority(priority),
            RuleAttribute::FwMark(MARK),
            RuleAttribute::FwMask(MARK_MASK),
            RuleAttribute::Table(table),
            RuleAttribute::Protocol(RouteProtocol::Static),
        ];
        rule
    };
    let mut check = rule(PRIORITY, MAIN);
    check.attributes.push(RuleAttribute::Iifname("lo".to_owned()));
    [check, rule(PRIORITY + 1, TABLE)]
}
