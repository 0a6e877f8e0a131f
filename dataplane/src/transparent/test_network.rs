//! Network namespaces for tests, which need root; `tests/run` provides it.

use std::thread;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sched::{CloneFlags, unshare};

use super::netlink::{exchange, message};
use super::nftables::tables;
use super::{MARK, routes};
use crate::sys::sockets::{Netlink, open_netlink};

pub(super) const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// A new network namespace, with the loopback interface up.
pub(super) struct Network {
    pub(super) routing: Netlink,
}

/// Runs `test` on a thread in a new network namespace.
pub(super) fn in_own_network(test: impl FnOnce(&Network) + Send) {
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests/run provides for network namespaces");
        let network = Network { routing: open_netlink(libc::NETLINK_ROUTE, 0).unwrap() };
        network.set_loopback(LinkFlags::Up);
        test(&network);
    };
    thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

impl Network {
    pub(super) fn set_loopback(&self, state: LinkFlags) {
        let mut link = LinkMessage::default();
        link.header.index = routes::LOOPBACK;
        link.header.flags = state;
        link.header.change_mask = LinkFlags::Up;
        exchange(&self.routing, vec![message(RouteNetlinkMessage::SetLink(link), NLM_F_ACK)]).unwrap();
    }

    /// Names of the tables, read through a socket that does not keep a netlink port.
    pub(super) fn tables(&self) -> Vec<String> {
        tables(&open_netlink(libc::NETLINK_NETFILTER, 0).unwrap()).unwrap()
    }

    /// Number of rules that match the gateway's mark.
    pub(super) fn rules(&self, family: AddressFamily) -> usize {
        let mut all = RuleMessage::default();
        all.header.family = family;
        let ours = |message: &RouteNetlinkMessage| match message {
            RouteNetlinkMessage::NewRule(rule) => rule.attributes.contains(&RuleAttribute::FwMark(MARK)),
            _ => false,
        };
        let rules =
            exchange(&self.routing, vec![message(RouteNetlinkMessage::GetRule(all), NLM_F_DUMP)]).unwrap();
        rules.iter().filter(|message| ours(message)).count()
    }

    /// Number of routes in the gateway's table.
    pub(super) fn routes(&self, family: AddressFamily) -> usize {
        let mut all = RouteMessage::default();
        all.header.address_family = family;
        let table = RouteAttribute::Table(routes::TABLE);
        let ours = |message: &RouteNetlinkMessage| match message {
            RouteNetlinkMessage::NewRoute(route) => route.attributes.contains(&table),
            _ => false,
        };
        let routes =
            exchange(&self.routing, vec![message(RouteNetlinkMessage::GetRoute(all), NLM_F_DUMP)]).unwrap();
        routes.iter().filter(|message| ours(message)).count()
    }

    pub(super) fn expect_routing(&self, rules: usize, routes: usize) {
        for family in FAMILIES {
            assert_eq!((self.rules(family), self.routes(family)), (rules, routes), "{family:?}");
        }
    }
}
