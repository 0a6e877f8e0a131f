//! Prometheus text, and every metric family that is rendered at each scrape from values held elsewhere. A series exists exactly as long
//! as its frontend, which a recorder of the `metrics` crate cannot do: a held handle keeps its series, and idle ones cannot be dropped.
//! What the event loop measures itself is in the recorder, and is appended. The total of all frontends has `sheave_gateway_` in its name.

use std::borrow::Cow;
use std::fmt::Write as _;

/// What a family's values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
}

/// A named group of series.
#[derive(Debug)]
pub(crate) struct Family {
    name: &'static str,
    kind: FamilyKind,
    help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Gauge, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: FamilyKind::Histogram, help }
}

pub(crate) const BUILD_INFO: Family = gauge("sheave_build_info", "Always 1; the labels tell the version.");
pub(crate) const TABLE_GENERATION: Family =
    gauge("sheave_table_generation", "Generation of the routing table in force.");
pub(crate) const TABLE_FRONTENDS: Family = gauge("sheave_table_frontends", "Frontends in the routing table.");
pub(crate) const FRONTENDS_OMITTED: Family = gauge(
    "sheave_metrics_frontends_omitted",
    "Frontends without series of their own because metrics.maxFrontends allows no more; the totals have them.",
);
pub(crate) const ENDPOINTS_OMITTED: Family = gauge(
    "sheave_metrics_endpoints_omitted",
    "Endpoints of frontends without series of their own because metrics.maxEndpoints allows no more.",
);
pub(crate) const FRONTENDS_OPEN: Family = gauge(
    "sheave_frontends_open",
    "Frontends that take connections or datagrams, by what those come to: sockets of their own, or shared ones by steering.",
);
pub(crate) const FRONTENDS_WITHOUT_LOCAL: Family = gauge(
    "sheave_frontends_without_local_endpoints",
    "Frontends that drop clients because the policy is Local and no endpoint is on this node, by policy.",
);
pub(crate) const FRONTEND_INFO: Family = gauge(
    "sheave_frontend_info",
    "Always 1; the labels tell the kind, the port's name and appProtocol, and how an endpoint is chosen.",
);
pub(crate) const HEALTHZ_REQUESTS: Family =
    counter("sheave_healthz_requests_total", "Answers to /healthz on healthz.listen, by status code.");
pub(crate) const LIVEZ_REQUESTS: Family =
    counter("sheave_livez_requests_total", "Answers to /livez on healthz.listen, by status code.");
pub(crate) const PROBLEMS: Family = gauge("sheave_problems", "Problems with objects, manifests and sockets.");
pub(crate) const SOURCE_FROM_SNAPSHOT: Family = gauge(
    "sheave_source_from_snapshot",
    "1 while the snapshot on disk stands in for objects that have not been listed since the start, else 0.",
);
pub(crate) const SOURCE_LAST_HEARD: Family = gauge(
    "sheave_source_last_heard_seconds",
    "Seconds since the API server last said anything of a kind of object, by kind.",
);
pub(crate) const GUARD_HELD_OBJECTS: Family = gauge(
    "sheave_guard_held_objects",
    "Objects that stay in force although the newest list lacks them, by kind.",
);
pub(crate) const CONTROLLER_LEADING: Family =
    gauge("sheave_controller_leading", "1 while this controller is the elected one, else 0.");
pub(crate) const CONTROLLER_SERVICES: Family =
    gauge("sheave_controller_services", "Services that this controller publishes addresses for, as leader.");
pub(crate) const CONTROLLER_GATEWAYS: Family =
    gauge("sheave_controller_gateways", "Gateways that are ready, as this controller sees it as leader.");
pub(crate) const CONTROLLER_WRITE_FAILURES: Family = gauge(
    "sheave_controller_write_failures",
    "Objects whose status or finalizer the API server keeps refusing to let this controller write, as leader.",
);
pub(crate) const CONTROLLER_EVENTS_DROPPED: Family = counter(
    "sheave_controller_events_dropped_total",
    "Events that were left out since this controller leads, refused by the API server or beyond the limits.",
);
pub(crate) const LOG_LINES_DROPPED: Family = counter(
    "sheave_log_lines_dropped_total",
    "Log lines that were lost because whoever reads them was too slow.",
);
pub(crate) const WORKER_RESTARTS: Family = counter(
    "sheave_worker_restarts_total",
    "Times that a worker thread was started again after a panic, which cut its connections.",
);
pub(crate) const AFFINITY_RECORDS: Family =
    gauge("sheave_affinity_records", "Session affinity records that are kept.");
pub(crate) const ENDPOINTS_UNHEALTHY: Family = gauge(
    "sheave_endpoints_unhealthy",
    "Endpoints of Services that are unhealthy because connections to them or checks of them failed, by protocol.",
);
pub(crate) const ENDPOINT_EJECTIONS: Family = counter(
    "sheave_endpoint_ejections_total",
    "Times that an endpoint was ejected because connections to it failed.",
);
pub(crate) const HEALTH_CHECKS: Family =
    counter("sheave_health_checks_total", "Checks of endpoints, by result.");
pub(crate) const ANNOUNCE_GATEWAYS: Family = gauge(
    "sheave_announce_gateways",
    "Gateways that count for the quorum, by state: heard_by are those that hear this one, itself included; counted are all.",
);
pub(crate) const ANNOUNCE_ELIGIBLE: Family =
    gauge("sheave_announce_eligible", "1 while this gateway may own addresses, else 0.");
pub(crate) const ANNOUNCE_ADDRESSES: Family = gauge(
    "sheave_announce_addresses",
    "Addresses that are to be announced, by what this gateway does: announced, waiting, failed, conflict, or other for those of others.",
);
pub(crate) const ANNOUNCE_HEARTBEATS: Family =
    counter("sheave_announce_heartbeats_total", "Heartbeats between gateways: sent, received, or refused.");
pub(crate) const ANNOUNCE_MOVES: Family = counter(
    "sheave_announce_moves_total",
    "Addresses that this gateway began (gained) or ceased (lost) to announce.",
);
pub(crate) const ANNOUNCE_FENCED: Family = counter(
    "sheave_announce_fenced_total",
    "Times that this gateway gave up its addresses because too few others heard it.",
);
pub(crate) const ANNOUNCE_CONFLICTS: Family =
    counter("sheave_announce_conflicts_total", "Other machines that used an address of this gateway.");
pub(crate) const CONNECTIONS_OPENED: Family =
    counter("sheave_tcp_connections_total", "TCP connections accepted, by frontend.");
pub(crate) const CONNECTIONS: Family =
    gauge("sheave_tcp_connections", "TCP connections open now, by frontend.");
pub(crate) const CONNECTIONS_CLOSED: Family =
    counter("sheave_tcp_closed_total", "TCP connections ended, by frontend and reason.");
pub(crate) const TCP_BYTES: Family =
    counter("sheave_tcp_bytes_total", "Bytes relayed, by frontend and the side that sent them.");
pub(crate) const CONNECT_RETRIES: Family = counter(
    "sheave_tcp_connect_retries_total",
    "Further endpoints tried after one could not be connected, by frontend.",
);
pub(crate) const TCP_SOURCE_LOST: Family = counter(
    "sheave_tcp_source_lost_total",
    "Connections whose endpoint was to see the client's address but sees the gateway's, by frontend.",
);
pub(crate) const CONNECT_SECONDS: Family = histogram(
    "sheave_tcp_connect_seconds",
    "Time from the first attempt to connect an endpoint to its answer, of connections that it took.",
);
pub(crate) const ENDPOINT_PICKS: Family = counter(
    "sheave_endpoint_picks_total",
    "Times that an endpoint was chosen for a connection or flow of a frontend.",
);
pub(crate) const ENDPOINT_CONNECTIONS: Family =
    gauge("sheave_endpoint_connections", "Connections or flows of a frontend that an endpoint has now.");
pub(crate) const FLOWS_OPENED: Family = counter("sheave_udp_flows_total", "UDP flows opened.");
pub(crate) const FLOWS: Family = gauge("sheave_udp_flows", "UDP flows open now.");
pub(crate) const FLOWS_REPICKED: Family =
    counter("sheave_udp_repicked_total", "Times that a UDP flow was given another endpoint.");
pub(crate) const UDP_ENDPOINT_ERRORS: Family = counter(
    "sheave_udp_endpoint_errors_total",
    "Times that an endpoint was reported unreachable or could not be sent to.",
);
pub(crate) const UDP_SOURCE_LOST: Family = counter(
    "sheave_udp_source_lost_total",
    "Times that an endpoint sees the gateway's address though it was to see the client's.",
);
pub(crate) const DATAGRAMS: Family =
    counter("sheave_udp_datagrams_total", "Datagrams forwarded, by the side that sent them.");
pub(crate) const UDP_BYTES: Family =
    counter("sheave_udp_bytes_total", "Bytes in forwarded datagrams, by the side that sent them.");
pub(crate) const FLOWS_EVICTED: Family = counter(
    "sheave_udp_flows_evicted_total",
    "Flows that ended before their time because others needed the room.",
);
pub(crate) const SHED: Family = counter(
    "sheave_shed_total",
    "New connections and flows that were refused because of too many, by reason.",
);
pub(crate) const DATAGRAMS_DROPPED: Family =
    counter("sheave_udp_dropped_total", "Datagrams not forwarded, by reason.");

/// Text that is sent as soon as there is so much of it.
const CHUNK: usize = 64 << 10;

/// Prometheus text under construction: kept as a whole, or sent on in chunks.
#[derive(Default)]
pub(crate) struct Exposition {
    text: String,
    send: Option<Box<dyn FnMut(String) -> bool>>,
    unwanted: bool,
}

impl Exposition {
    /// One that passes its text to `send` in chunks, until that returns false.
    pub(crate) fn sent_by(send: impl FnMut(String) -> bool + 'static) -> Self {
        Self { send: Some(Box::new(send)), ..Self::default() }
    }

    /// Opens a family; its samples follow.
    pub(crate) fn family(&mut self, family: &Family) -> Samples<'_> {
        self.open(family.name.into(), family.kind, family.help)
    }

    /// Opens the family of what all frontends together have of `family`.
    pub(crate) fn total_of(&mut self, family: &Family) -> Samples<'_> {
        let name = family.name.strip_prefix("sheave_").unwrap_or(family.name);
        let help = format!("{} of all frontends together, those that have left included.", family.name);
        self.open(format!("sheave_gateway_{name}").into(), family.kind, &help)
    }

    fn open(&mut self, name: Cow<'static, str>, kind: FamilyKind, help: &str) -> Samples<'_> {
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        // Writing to a String cannot fail.
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
        Samples { exposition: self, name }
    }

    /// Adds families that are text already.
    pub(crate) fn append(&mut self, text: &str) {
        self.text.push_str(text);
        self.send_full();
    }

    /// Everything that has not been sent; `None` if some of it could not be.
    pub(crate) fn finish(self) -> Option<String> {
        (!self.unwanted).then_some(self.text)
    }

    fn send_full(&mut self) {
        if let Some(send) = &mut self.send
            && self.text.len() >= CHUNK
        {
            let text = std::mem::take(&mut self.text);
            self.unwanted = self.unwanted || !send(text);
        }
    }
}

/// The samples of one family.
pub(crate) struct Samples<'a> {
    exposition: &'a mut Exposition,
    name: Cow<'static, str>,
}

impl Samples<'_> {
    /// Adds one series.
    pub(crate) fn add(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Self {
        self.add_line("", &render(labels), &value.to_string())
    }

    /// Adds one series whose first labels are text already.
    pub(crate) fn add_to(&mut self, first: &str, more: &[(&str, &str)], value: u64) -> &mut Self {
        let more = render(more);
        let separator = if first.is_empty() || more.is_empty() { "" } else { "," };
        self.add_line("", &format!("{first}{separator}{more}"), &value.to_string())
    }

    /// The receiver is gone: what is added is dropped.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.exposition.unwanted
    }

    /// Adds the series of a histogram: how many were up to each bound in seconds and above the one before, how many beyond the
    /// last, and their sum.
    pub(crate) fn add_histogram(&mut self, buckets: &[(f64, u64)], beyond: u64, sum: f64) {
        let mut count = 0;
        for (bound, within) in buckets {
            count += within;
            self.add_line("_bucket", &format!("le=\"{bound}\""), &count.to_string());
        }
        count += beyond;
        self.add_line("_bucket", "le=\"+Inf\"", &count.to_string());
        self.add_line("_sum", "", &sum.to_string());
        self.add_line("_count", "", &count.to_string());
    }

    fn add_line(&mut self, suffix: &str, labels: &str, value: &str) -> &mut Self {
        let Self { exposition, name } = self;
        let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
        writeln!(exposition.text, "{name}{suffix}{open}{labels}{close} {value}").ok();
        exposition.send_full();
        self
    }
}

/// Labels as text, as they stand between the braces.
pub(crate) fn render(labels: &[(&str, &str)]) -> String {
    let mut rendered = String::new();
    for (index, (label, text)) in labels.iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
        write!(rendered, "{separator}{label}=\"{text}\"").ok();
    }
    rendered
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: &[Family] = &[
        BUILD_INFO,
        TABLE_GENERATION,
        TABLE_FRONTENDS,
        FRONTEND_INFO,
        FRONTENDS_OMITTED,
        ENDPOINTS_OMITTED,
        FRONTENDS_OPEN,
        FRONTENDS_WITHOUT_LOCAL,
        HEALTHZ_REQUESTS,
        LIVEZ_REQUESTS,
        PROBLEMS,
        SOURCE_FROM_SNAPSHOT,
        SOURCE_LAST_HEARD,
        GUARD_HELD_OBJECTS,
        CONTROLLER_LEADING,
        CONTROLLER_SERVICES,
        CONTROLLER_GATEWAYS,
        CONTROLLER_WRITE_FAILURES,
        CONTROLLER_EVENTS_DROPPED,
        LOG_LINES_DROPPED,
        WORKER_RESTARTS,
        AFFINITY_RECORDS,
        ENDPOINTS_UNHEALTHY,
        ENDPOINT_EJECTIONS,
        HEALTH_CHECKS,
        ANNOUNCE_GATEWAYS,
        ANNOUNCE_ELIGIBLE,
        ANNOUNCE_ADDRESSES,
        ANNOUNCE_HEARTBEATS,
        ANNOUNCE_MOVES,
        ANNOUNCE_FENCED,
        ANNOUNCE_CONFLICTS,
        CONNECTIONS_OPENED,
        CONNECTIONS,
        CONNECTIONS_CLOSED,
        TCP_BYTES,
        CONNECT_RETRIES,
        TCP_SOURCE_LOST,
        CONNECT_SECONDS,
        ENDPOINT_PICKS,
        ENDPOINT_CONNECTIONS,
        FLOWS_OPENED,
        FLOWS,
        FLOWS_REPICKED,
        UDP_ENDPOINT_ERRORS,
        UDP_SOURCE_LOST,
        DATAGRAMS,
        UDP_BYTES,
        FLOWS_EVICTED,
        SHED,
        DATAGRAMS_DROPPED,
    ];

    #[test]
    fn counters_and_only_counters_end_in_total() {
        for family in FAMILIES {
            assert!(family.name.starts_with("sheave_"), "{}", family.name);
            assert_eq!(
                family.name.ends_with("_total"),
                family.kind == FamilyKind::Counter,
                "{}",
                family.name
            );
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
    }

    #[test]
    fn label_values_are_escaped() {
        let mut text = Exposition::default();
        text.family(&PROBLEMS).add(&[("reason", "a\"b\\c\nd")], 1);
        assert!(text.finish().unwrap().ends_with("sheave_problems{reason=\"a\\\"b\\\\c\\nd\"} 1\n"));
    }

    #[test]
    fn buckets_of_a_histogram_count_up() {
        let mut text = Exposition::default();
        text.family(&CONNECT_SECONDS).add_histogram(&[(0.001, 2), (0.5, 0), (1.0, 3)], 1, 2.5);
        let expected = "_bucket{le=\"0.001\"} 2\n_bucket{le=\"0.5\"} 2\n_bucket{le=\"1\"} 5\n_bucket{le=\"+Inf\"} 6\n_sum 2.5\n_count 6\n";
        let text = text.finish().unwrap();
        let samples: String = text.lines().skip(2).map(|line| format!("{line}\n")).collect();
        assert_eq!(samples.replace("sheave_tcp_connect_seconds", ""), expected);
    }

    #[test]
    fn what_is_sent_in_chunks_is_the_whole() {
        let fill = |text: &mut Exposition| {
            for value in 0..10_000 {
                text.family(&PROBLEMS).add_to("a=\"b\"", &[("c", "d")], value);
            }
        };
        let mut whole = Exposition::default();
        fill(&mut whole);
        let (sender, sent) = std::sync::mpsc::channel();
        let mut chunked = Exposition::sent_by(move |chunk| sender.send(chunk).is_ok());
        fill(&mut chunked);
        let rest = chunked.finish().unwrap();
        let chunks: Vec<String> = sent.into_iter().collect();
        assert!(chunks.len() > 1 && chunks.iter().all(|chunk| (CHUNK..2 * CHUNK).contains(&chunk.len())));
        assert_eq!(chunks.concat() + &rest, whole.finish().unwrap());

        let mut unwanted = Exposition::sent_by(|_| false);
        fill(&mut unwanted);
        assert!(unwanted.finish().is_none(), "part of the text must not pass for the whole");
    }
}
