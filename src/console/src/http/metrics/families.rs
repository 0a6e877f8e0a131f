//! All metric families of a process: name, type, labels and meaning. The metrics reference is generated from this file.

/// Prometheus type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// Only increases.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

/// A named group of series.
#[derive(Debug)]
pub struct Family {
    /// Name in the exposition.
    pub name: &'static str,
    /// Type in the exposition.
    pub kind: FamilyKind,
    /// Labels of the series. Only series of a Karmada control plane have `source`, and the totals of all frontends lack the labels that name a
    /// frontend.
    pub labels: &'static [&'static str],
    /// Meaning, for HELP and the reference.
    pub help: &'static str,
}

macro_rules! families {
    ($($id:ident: $kind:ident $name:literal [$($label:ident),*] = $help:literal;)*) => {
        $(#[doc = $help]
          pub const $id: Family =
            Family { name: $name, kind: families!(@ $kind), labels: &[$(stringify!($label)),*], help: $help };)*

        #[cfg(test)]
        const ALL: &[Family] = &[$($id),*];
    };
    (@ counter) => { FamilyKind::Counter };
    (@ gauge) => { FamilyKind::Gauge };
    (@ histogram) => { FamilyKind::Histogram };
}

families! {
    BUILD_INFO: gauge "sheave_build_info" [version] = "Always 1; the labels tell the version.";
    READY: gauge "sheave_ready" [] = "1 while the process is ready, as /readyz has it but for the workers' answers, else 0.";
    DRAINING: gauge "sheave_draining" [] = "1 from the request to end on, while connections are served for a last time, else 0.";
    TABLE_GENERATION: gauge "sheave_table_generation" [] = "Generation of the routing table in force.";
    TABLE_FRONTENDS: gauge "sheave_table_frontends" [] = "Frontends in the routing table.";
    FRONTENDS_OMITTED: gauge "sheave_metrics_frontends_omitted" [] = "Frontends without series of their own because metrics.maxFrontends allows no more; the totals have them.";
    ENDPOINTS_OMITTED: gauge "sheave_metrics_endpoints_omitted" [] = "Endpoints of frontends without series of their own because metrics.maxEndpoints allows no more.";
    FRONTENDS_OPEN: gauge "sheave_frontends_open" [by] = "Frontends that take connections or datagrams, by what those come to: sockets of their own, shared ones by steering, or the kernel path.";
    SERVICES: gauge "sheave_services" [state] = "Services by their state for the clients who come to this gateway: serving, degraded or broken.";
    FRONTENDS_WITHOUT_LOCAL: gauge "sheave_frontends_without_local_endpoints" [traffic_policy] = "Frontends that drop clients because the policy is Local and no endpoint is on this node, by policy.";
    FRONTENDS_WITHOUT_ENDPOINTS: gauge "sheave_frontends_without_endpoints" [] = "Frontends that refuse clients because the Service has no endpoint that may be used.";
    FRONTEND_INFO: gauge "sheave_frontend_info" [frontend, service, kind, port_name, app_protocol, balance, route, listener] = "Always 1; the labels tell the kind, the port's name and appProtocol, how an endpoint is chosen, and for a Gateway its listener and the route that serves it.";
    FRONTEND_ENDPOINTS: gauge "sheave_frontend_endpoints" [frontend, service] = "Endpoints that new clients may be given: those outside the cluster, or for a cluster address those inside; by frontend.";
    HEALTHZ_REQUESTS: counter "sheave_healthz_requests_total" [code] = "Answers to /healthz on healthz.listen, by status code.";
    LIVEZ_REQUESTS: counter "sheave_livez_requests_total" [code] = "Answers to /livez on healthz.listen, by status code.";
    PROBLEMS: gauge "sheave_problems" [] = "Problems with objects, manifests and sockets.";
    PROBLEMS_BY_REASON: gauge "sheave_problems_by_reason" [reason] = "The same by reason; a reason without any has no series.";
    SOURCE_FROM_SNAPSHOT: gauge "sheave_source_from_snapshot" [source] = "1 while the snapshot on disk stands in for objects that have not been listed since the start, else 0.";
    SOURCE_LAST_HEARD: gauge "sheave_source_last_heard_seconds" [kind, source] = "Seconds since the API server last said anything of a kind of object, by kind.";
    SOURCE_FAILING: gauge "sheave_source_failing" [kind, source] = "1 while a kind of object can be neither listed nor watched, else 0, by kind.";
    SOURCE_WATCHES: counter "sheave_source_watches_total" [kind, source] = "Times that the watch of a kind was begun again, for whatever reason. A watch lasts 10 to 20 minutes, those of the Gateway API 25 to 50.";
    SOURCE_RELISTS: counter "sheave_source_relists_total" [kind, source] = "Times that a kind was listed again because its watch could not be taken up where it ended.";
    SNAPSHOT_FAILING: gauge "sheave_snapshot_failing" [] = "1 while the snapshot on disk cannot be read or written, else 0.";
    GUARD_HELD_OBJECTS: gauge "sheave_guard_held_objects" [kind, source] = "Objects that stay in force although the newest list lacks them, by kind.";
    CONTROLLER_LEADING: gauge "sheave_controller_leading" [] = "1 while this controller is the elected one, else 0.";
    CONTROLLER_SERVICES: gauge "sheave_controller_services" [] = "Services that this controller publishes addresses for, as leader.";
    CONTROLLER_GATEWAYS: gauge "sheave_controller_gateways" [] = "Gateways that are ready, as this controller sees it as leader.";
    CONTROLLER_WRITE_FAILURES: gauge "sheave_controller_write_failures" [] = "Objects whose status or finalizer the API server keeps refusing to let this controller write, as leader.";
    CONTROLLER_EVENTS_DROPPED: counter "sheave_controller_events_dropped_total" [] = "Events that were left out since this controller leads, refused by the API server or beyond the limits.";
    POOL_ADDRESSES: gauge "sheave_pool_addresses" [pool, state] = "Addresses of a pool that are used, and that can still be given, as its status has them; from the leader.";
    LOG_LINES_DROPPED: counter "sheave_log_lines_dropped_total" [] = "Log lines that were lost because whoever reads them was too slow.";
    CONNECTION_LOG_LINES: counter "sheave_connection_log_lines_total" [outcome] = "TCP connections that were to be logged, by outcome: written, over_rate (connectionLog.linesPerService) or lost because whoever reads was too slow.";
    PROCESS_CPU: counter "process_cpu_seconds_total" [] = "Processor time that the process has used, in user and kernel mode.";
    PROCESS_MEMORY: gauge "process_resident_memory_bytes" [] = "Memory of the process that is resident.";
    PROCESS_OPEN_FDS: gauge "process_open_fds" [] = "File descriptors that are open.";
    PROCESS_MAX_FDS: gauge "process_max_fds" [] = "File descriptors that may be open at most.";
    PROCESS_START: gauge "process_start_time_seconds" [] = "When the process was started, in seconds since 1970.";
    WORKER_RESTARTS: counter "sheave_worker_restarts_total" [] = "Times that a worker thread was started again after a panic, which cut its connections.";
    AFFINITY_RECORDS: gauge "sheave_affinity_records" [] = "Session affinity records that are kept.";
    ENDPOINTS_UNHEALTHY: gauge "sheave_endpoints_unhealthy" [protocol] = "Endpoints of Services that are unhealthy because connections to them or checks of them failed, by protocol.";
    EJECTIONS: counter "sheave_gateway_endpoint_ejections_total" [] = "Times that an endpoint was ejected because connections to it failed, of all endpoints together, those that have left included.";
    HEALTH_CHECKS: counter "sheave_health_checks_total" [result] = "Checks of endpoints, by result.";
    ANNOUNCE_GATEWAYS: gauge "sheave_announce_gateways" [state] = "Gateways, by state: counted are those that count for the quorum; heard_by those of them that hear this one, itself included; disagreeing those that have known other candidates or addresses than this one for more than 10 s.";
    ANNOUNCE_ELIGIBLE: gauge "sheave_announce_eligible" [] = "1 while this gateway may own addresses, else 0.";
    ANNOUNCE_FAIL_AFTER: gauge "sheave_announce_fail_after_seconds" [] = "Silence after which another gateway counts as dead here: announce.heartbeat.failAfter, and more where round trips between gateways are long.";
    ANNOUNCE_TIE_UNDECIDED: gauge "sheave_announce_tie_undecided" [] = "1 while the tie-breaker does not answer, or there is none: if half of the gateways or more are lost, the others give up their addresses; else 0.";
    ANNOUNCE_ABSENT: gauge "sheave_announce_absent_gateways" [] = "Gateways that the API server calls ready, and that no gateway has heard for 30 s.";
    ANNOUNCE_ADDRESSES: gauge "sheave_announce_addresses" [state] = "Addresses that are to be announced, by what this gateway does: announced, waiting, failed, conflict, or other for those of others.";
    ANNOUNCE_HEARTBEATS: counter "sheave_announce_heartbeats_total" [event] = "Heartbeats between gateways: sent, received, or refused.";
    ANNOUNCE_MOVES: counter "sheave_announce_moves_total" [event] = "Addresses that this gateway began (gained) or ceased (lost) to announce.";
    ANNOUNCE_FENCED: counter "sheave_announce_fenced_total" [] = "Times that this gateway gave up its addresses because too few others heard it.";
    ANNOUNCE_CONFLICTS: counter "sheave_announce_conflicts_total" [] = "Other machines that used an address of this gateway.";
    CONNECTIONS_OPENED: counter "sheave_tcp_connections_total" [frontend, service] = "TCP connections opened, by frontend; those that the kernel carries are counted within seconds.";
    CONNECTIONS: gauge "sheave_tcp_connections" [frontend, service] = "TCP connections open now, by frontend.";
    CONNECTIONS_CLOSED: counter "sheave_tcp_closed_total" [frontend, service, reason] = "TCP connections ended, by frontend and reason.";
    TCP_BYTES: counter "sheave_tcp_bytes_total" [frontend, service, from] = "Bytes relayed, by frontend and the side that sent them.";
    CONNECT_RETRIES: counter "sheave_tcp_connect_retries_total" [frontend, service] = "Further endpoints tried after one could not be connected, by frontend.";
    TCP_SOURCE_LOST: counter "sheave_tcp_source_lost_total" [frontend, service] = "Connections whose endpoint was to see the client's address but sees the gateway's, by frontend.";
    CONNECT_SECONDS: histogram "sheave_tcp_connect_seconds" [frontend, service] = "Time from the first attempt to connect an endpoint to its answer, of connections that it took, by frontend.";
    ENDPOINT_PICKS: counter "sheave_endpoint_picks_total" [frontend, service, endpoint, cluster] = "Times that an endpoint was chosen for a connection or flow of a frontend.";
    ENDPOINT_CONNECTIONS: gauge "sheave_endpoint_connections" [frontend, service, endpoint, cluster] = "Connections or flows of a frontend that an endpoint has now.";
    ENDPOINT_UNANSWERED: counter "sheave_endpoint_unanswered_total" [frontend, service, endpoint, cluster] = "TCP connections of a frontend that ended without a byte from an endpoint that had taken them.";
    ENDPOINT_SHARE: gauge "sheave_endpoint_share_ratio" [frontend, service, endpoint, cluster] = "Part of a frontend's new connections or flows that an endpoint is to get, from 0 to 1; affinity and limits aside.";
    ENDPOINT_UNHEALTHY: gauge "sheave_endpoint_unhealthy" [frontend, service, endpoint, cluster] = "1 while connections to an endpoint or checks of it fail, so that new ones avoid it, else 0; as its Service port sees it.";
    ENDPOINT_FAILURES: counter "sheave_endpoint_failures_total" [frontend, service, endpoint, cluster] = "Connections to an endpoint that failed, and ICMP errors for datagrams, while it counted as healthy; of its Service port.";
    ENDPOINT_EJECTIONS: counter "sheave_endpoint_ejections_total" [frontend, service, endpoint, cluster] = "Times that an endpoint was ejected because connections to it failed; of its Service port.";
    FLOWS_OPENED: counter "sheave_udp_flows_total" [frontend, service] = "UDP flows opened.";
    FLOWS: gauge "sheave_udp_flows" [frontend, service] = "UDP flows open now.";
    FLOWS_REPICKED: counter "sheave_udp_repicked_total" [frontend, service] = "Times that a UDP flow was given another endpoint.";
    UDP_ENDPOINT_ERRORS: counter "sheave_udp_endpoint_errors_total" [frontend, service] = "Times that an endpoint was reported unreachable or could not be sent to.";
    UDP_SOURCE_LOST: counter "sheave_udp_source_lost_total" [frontend, service] = "Times that an endpoint sees the gateway's address though it was to see the client's.";
    DATAGRAMS: counter "sheave_udp_datagrams_total" [frontend, service, from] = "Datagrams forwarded, by the side that sent them.";
    UDP_BYTES: counter "sheave_udp_bytes_total" [frontend, service, from] = "Bytes in forwarded datagrams, by the side that sent them.";
    FLOWS_EVICTED: counter "sheave_udp_flows_evicted_total" [frontend, service] = "Flows that ended before their time because others needed the room.";
    SHED: counter "sheave_shed_total" [frontend, service, reason] = "New connections and flows that were refused because of too many, by reason.";
    KERNEL_DROPS: counter "sheave_kernel_dropped_packets_total" [frontend, service] = "Packets that the kernel dropped at a frontend's own sockets before Sheave saw them: from clients that source ranges leave out, or because a queue was full.";
    UPDATE_SECONDS: histogram "sheave_control_update_seconds" [] = "Time from new objects to the routing table in force.";
    PROGRAMMING_SECONDS: histogram "sheave_network_programming_seconds" [] = "Time from the change that an EndpointSlice is written for to the routing table in force.";
    TAKEOVER_SECONDS: gauge "sheave_takeover_seconds" [] = "Time that this process needed to take over from the one before; 0 if there was none.";
    TAKEOVER_FAILURES: counter "sheave_takeover_failures_total" [] = "Times that another process asked to take over from this one and did not: it was refused, ended or stopped, so this one went on.";
    DATAGRAMS_DROPPED: counter "sheave_udp_dropped_total" [frontend, service, reason] = "Datagrams not forwarded, by reason.";
}

/// Lines whose labels differ from the declared ones. Sums and buckets belong to their histogram.
#[cfg(test)]
pub(super) fn misfits(text: &str) -> Vec<String> {
    let line = regex::Regex::new(r"^(\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$").unwrap();
    let label = regex::Regex::new(r#"(\w+)="(?:[^"\\]|\\.)*""#).unwrap();
    let fits = |text: &str| {
        let Some(series) = line.captures(text) else { return false };
        let (name, suffix) = (&series[1], series.get(2).map_or("", |it| it.as_str()));
        let whole = format!("{name}{suffix}");
        let (name, own) = match name.strip_prefix("sheave_gateway_") {
            _ if ALL.iter().any(|family| family.name == whole) => (whole, true),
            Some(rest) => (format!("sheave_{rest}"), false),
            None => (name.to_owned(), true),
        };
        let Some(family) = ALL.iter().find(|family| family.name == name) else { return false };
        let labels = series.get(3).map_or("", |it| it.as_str());
        let found: Vec<&str> = label.captures_iter(labels).map(|it| it.extract::<1>().1[0]).collect();
        let of_karmada = found.contains(&"source");
        let declared = family.labels.iter().filter(|label| match **label {
            "source" => of_karmada,
            "frontend" | "service" => own,
            _ => true,
        });
        let bound = (suffix == "_bucket").then_some(&"le");
        declared.chain(bound).eq(&found)
    };
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter(|line| !fits(line)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with `process_` are those of Prometheus' own client libraries.
    #[test]
    fn counters_and_only_counters_end_in_total() {
        for family in ALL {
            let name = family.name;
            assert!(name.starts_with("sheave_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == FamilyKind::Counter, "{name}");
            assert!(family.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn a_label_too_few_or_too_many_is_found() {
        let good = [
            "sheave_ready 1",
            "sheave_source_failing{kind=\"Service\"} 0",
            "sheave_source_failing{kind=\"Service\",source=\"karmada\"} 0",
            "sheave_pool_addresses{pool=\"a,b=\\\"c\\\"\",state=\"used\"} 3",
            "sheave_gateway_shed_total{reason=\"flows\"} 0",
            "sheave_gateway_endpoint_ejections_total 0",
            "sheave_gateway_tcp_connect_seconds_bucket{le=\"1\"} 0",
        ];
        assert_eq!(misfits(&good.join("\n")), [""; 0]);
        let bad = [
            "sheave_unheard_of 1",
            "sheave_ready{node=\"a\"} 1",
            "sheave_pool_addresses{pool=\"a\"} 3",
            "sheave_shed_total{reason=\"flows\"} 0",
            "sheave_gateway_shed_total{frontend=\"a\",service=\"b\",reason=\"flows\"} 0",
        ];
        assert_eq!(misfits(&bad.join("\n")), bad);
    }
}
