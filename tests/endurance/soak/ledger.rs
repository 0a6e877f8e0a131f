//! Ledger: counts of the gateway compared with those of endpoints and clients.

use super::{BULK, steady};
use crate::servers::{Seen, Servers};
use crate::support::gateway::Gateway;
use crate::support::patience::eventually;
use crate::timeline::Tally;

/// Counts of the endpoints when the gateway began to count.
pub(super) struct Ledger<'s> {
    servers: &'s Servers,
    before: Seen,
}

/// Two numbers that have to be equal.
struct Entry {
    what: &'static str,
    gateway: u64,
    others: u64,
}

impl<'s> Ledger<'s> {
    /// Starts with the current counts of the endpoints.
    pub(super) fn open(servers: &'s Servers) -> Self {
        Self { servers, before: servers.seen() }
    }

    /// Checks that nothing is open and no number differs.
    pub(super) fn expect_balanced(
        &self,
        gateway: &Gateway<'_>,
        tallies: &[Tally],
        heavy: u64,
        changes: usize,
    ) {
        let seen = self.seen();
        eventually("the books are balanced", || {
            let entries = entries(gateway, seen, tallies, heavy);
            let wrong: Vec<String> = entries
                .into_iter()
                .filter(|Entry { gateway, others, .. }| gateway != others)
                .map(|Entry { what, gateway, others }| format!("{what}: {gateway}, but {others}"))
                .collect();
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
        });
        let (flows, talks) = steady();
        // One long-lived connection may have been replaced with each change, and the last queries of flows may be unanswered.
        let connections = done(tallies, "new connections") + done(tallies, "connections with affinity");
        let others = seen.connections - connections;
        assert!(
            (talks as u64..=(talks + changes) as u64).contains(&others),
            "{others} long-lived connections"
        );
        let questions = done(tallies, "UDP flows of one question") + done(tallies, "datagrams of flows");
        let unanswered = seen.datagrams[0] - questions;
        assert!(unanswered <= flows as u64, "{unanswered} unanswered");
    }

    fn seen(&self) -> Seen {
        let (before, now) = (self.before, self.servers.seen());
        let pair = |of: fn(&Seen) -> [u64; 2]| [0, 1].map(|it: usize| of(&now)[it] - of(&before)[it]);
        Seen {
            connections: now.connections - before.connections,
            bytes: pair(|it| it.bytes),
            datagrams: pair(|it| it.datagrams),
            datagram_bytes: pair(|it| it.datagram_bytes),
        }
    }
}

fn done(tallies: &[Tally], name: &str) -> u64 {
    tallies.iter().filter(|tally| tally.name == name).map(|tally| tally.done).sum()
}

fn entries(gateway: &Gateway<'_>, seen: Seen, tallies: &[Tally], heavy: u64) -> Vec<Entry> {
    let metric = |name: &str, label: &str| gateway.metric(name, &[label]) as u64;
    let entry = |what, name: &str, label: &str, others| Entry { what, gateway: metric(name, label), others };
    let (client, endpoint) = ("from=\"client\"", "from=\"endpoint\"");
    let (connections, bulk) = (seen.connections + heavy, heavy * BULK as u64);
    let flows = done(tallies, "UDP flows of one question") + steady().0 as u64;
    let mut entries = vec![
        entry("connections", "sheave_gateway_tcp_connections_total", "", connections),
        entry("their sum over frontends", "sheave_tcp_connections_total", "", connections),
        entry("ended connections", "sheave_gateway_tcp_closed_total", "", connections),
        entry(
            "those that both sides ended",
            "sheave_gateway_tcp_closed_total",
            "reason=\"finished\"",
            connections,
        ),
        entry("connect times", "sheave_gateway_tcp_connect_seconds_count", "", connections),
        entry("bytes of clients", "sheave_gateway_tcp_bytes_total", client, seen.bytes[0] + bulk),
        entry("their sum over frontends", "sheave_tcp_bytes_total", client, seen.bytes[0] + bulk),
        entry("bytes of endpoints", "sheave_gateway_tcp_bytes_total", endpoint, seen.bytes[1] + bulk),
        entry("flows", "sheave_gateway_udp_flows_total", "", flows),
        entry("their sum over frontends", "sheave_udp_flows_total", "", flows),
        entry("datagrams of clients", "sheave_gateway_udp_datagrams_total", client, seen.datagrams[0]),
        entry("datagrams of endpoints", "sheave_gateway_udp_datagrams_total", endpoint, seen.datagrams[1]),
        entry("their sum over frontends", "sheave_udp_datagrams_total", endpoint, seen.datagrams[1]),
        entry(
            "bytes in datagrams of clients",
            "sheave_gateway_udp_bytes_total",
            client,
            seen.datagram_bytes[0],
        ),
        entry(
            "bytes in datagrams of endpoints",
            "sheave_gateway_udp_bytes_total",
            endpoint,
            seen.datagram_bytes[1],
        ),
    ];
    let never = [
        "sheave_gateway_tcp_connect_retries_total",
        "sheave_gateway_tcp_source_lost_total",
        "sheave_gateway_udp_source_lost_total",
        "sheave_gateway_udp_dropped_total",
        "sheave_gateway_udp_endpoint_errors_total",
        "sheave_gateway_udp_flows_evicted_total",
        "sheave_gateway_shed_total",
        "sheave_gateway_endpoint_ejections_total",
        "sheave_worker_restarts_total",
    ];
    entries.extend(never.map(|name| entry(name, name, "", 0)));
    entries
}
