//! The annotations of a Service: their names, and what their values mean.

pub(super) mod client_address;
pub(super) mod clusters;
pub(super) mod failover;
pub(super) mod health;
pub(super) mod limits;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use sheave_model::{AffinityScope, Algorithm, LogSample};

use super::families::Families;
use crate::api::problem::report::Report;
use crate::{net, text};

/// What all of ours begin with.
const PREFIX: &str = "sheave.dev/";

/// How an endpoint is chosen: `least-connections` (default for TCP), `maglev` (default for UDP),
/// `round-robin` or `random`.
pub(crate) const BALANCE: &str = "sheave.dev/balance";
/// Asks for these addresses, separated by commas. Of each pool the first `maxPerService` are given, and the
/// others are refused.
pub(crate) const ADDRESSES: &str = "sheave.dev/addresses";
/// Names the AddressPool to allocate from. A Service with an address of another pool moves if the named one
/// admits it.
pub(crate) const ADDRESS_POOL: &str = "sheave.dev/address-pool";
/// `true` replaces an address that no AddressPool gives the Service any longer, as soon as another one is
/// free.
pub(super) const RENUMBER: &str = "sheave.dev/renumber";
/// What a client of a Service with `sessionAffinity: ClientIP` has one endpoint for: `port` (default), each port of the Service by itself,
/// or `service`, all its ports and protocols, as SIP and RTP need it. Endpoints of one address are one.
pub(super) const AFFINITY_SCOPE: &str = "sheave.dev/affinity-scope";
/// What endpoints see as the client: `gateway`, `transparent` (the client's own address, and its port where that is free), `proxy-v1` (TCP)
/// or `proxy-v2`. Default: `transparent` for clients outside the cluster under `externalTrafficPolicy:
/// Local`, else `gateway`.
pub(super) const CLIENT_SOURCE: &str = "sheave.dev/client-source";
/// CIDRs of peers whose TCP connections begin with a PROXY header, version 1 or 2. `acceptProxy.allow` in
/// the configuration limits them.
pub(super) const ACCEPT_PROXY: &str = "sheave.dev/accept-proxy";

/// Open connections and UDP flows of the Service on each gateway. Default: `limits.perService.connections`.
pub(super) const MAX_CONNECTIONS: &str = "sheave.dev/max-connections";
/// New connections and flows of the Service a second on each gateway; as many may come at once. Default:
/// `limits.perService.connectionRate`.
pub(super) const MAX_CONNECTION_RATE: &str = "sheave.dev/max-connection-rate";
/// Open connections and flows of each client. Default: `limits.perClient.connections`.
pub(super) const MAX_CONNECTIONS_PER_CLIENT: &str = "sheave.dev/max-connections-per-client";
/// New connections and flows of each client a second. Default: `limits.perClient.connectionRate`.
pub(super) const MAX_CONNECTION_RATE_PER_CLIENT: &str = "sheave.dev/max-connection-rate-per-client";
/// How long a connection or flow may be idle, from 1 s to a year. Default: `timeouts.idle` and
/// `timeouts.udpIdle`.
pub(super) const IDLE_TIMEOUT: &str = "sheave.dev/idle-timeout";
/// `true`: TCP keepalives that clients or endpoints send keep a connection from being idle. Default: only bytes do.
pub(super) const IDLE_KEEPALIVES: &str = "sheave.dev/idle-keepalives";
/// How long one attempt to connect to an endpoint may take, from 10 ms to a minute. Default:
/// `timeouts.connect`.
pub(super) const CONNECT_TIMEOUT: &str = "sheave.dev/connect-timeout";

/// How old a TCP connection may become, from 1 s to a year, and up to a tenth more at random; then it ends in the next
/// pause. Default: as old as it likes.
pub(super) const MAX_CONNECTION_AGE: &str = "sheave.dev/max-connection-age";
/// How long a connection that is too old may go on without a pause, from 1 s to a year. Default: 30 s.
pub(super) const MAX_CONNECTION_AGE_GRACE: &str = "sheave.dev/max-connection-age-grace";
/// How long TCP connections may go on once their endpoint has left the Service, or serves no more, from 0 s to a year. Default: as
/// long as they like.
pub(super) const REMOVED_ENDPOINT_GRACE: &str = "sheave.dev/removed-endpoint-grace";

/// Which part of the Service's TCP connections each gateway logs, as `100%`, `1%` or `0.05%`. Default:
/// `connectionLog.sample`.
pub(super) const CONNECTION_LOG: &str = "sheave.dev/connection-log";

/// Class of a MultiClusterService. Default: the `loadBalancerClass` of its Service; without that,
/// `karmada.handleUnclassified` decides.
pub(super) const CLASS: &str = "sheave.dev/load-balancer-class";
/// Shares of clusters, as `member1=3,member2=1`. A cluster that is not named has 1; one with 0 gets nothing
/// next to others. Default: every endpoint gets the same.
pub(super) const CLUSTER_WEIGHTS: &str = "sheave.dev/cluster-weights";
/// Tiers of clusters, as `member1,member2>member3`, or `locality`: own cluster, its region, the rest. A
/// tier takes what the tiers before it cannot carry. Default: one tier.
pub(super) const CLUSTER_PRIORITY: &str = "sheave.dev/cluster-priority";
/// `pods`: the endpoints that Karmada collected; `ingress`: the addresses of each cluster's own load
/// balancer, for pod networks that are not connected; `auto` (default): pods where there are any.
pub(super) const CLUSTER_ENDPOINTS: &str = "sheave.dev/cluster-endpoints";
/// Clusters that get no new connections, as `member1,member2`. On a Cluster, `true` drains it for every
/// MultiClusterService.
pub(super) const DRAIN: &str = "sheave.dev/drain";
/// How each endpoint is checked: `tcp`, `tcp:PORT`, `http:/PATH`, `http:PORT/PATH`, `grpc`, `grpc:SERVICE` or
/// `udp:PAYLOAD`, then `interval=5s`, `timeout` (at most 10s), `failures` and `successes` as needed, for `grpc` and `udp`
/// `port`, and for `udp` `answer=TEXT`, how the answer begins, where `%XX` stands for a byte of it or of the payload.
/// `grpc` is the call `grpc.health.v1.Health/Check` over HTTP/2 without TLS. Without a port the check is for
/// ports of its own protocol. Default: only connections show its health.
pub(super) const HEALTH_CHECK: &str = "sheave.dev/health-check";
/// How long a new or returned endpoint takes to get its full share of new connections, from 1 s to an hour.
/// Not with `maglev` or session affinity. Default: it gets that at once.
pub(super) const SLOW_START: &str = "sheave.dev/slow-start";
/// How far a tier may lose health before the next one helps, in percent: with 140, a tier of which 60 % is
/// healthy carries 84 % of its traffic. Default: `failover.overprovisioning`.
pub(super) const OVERPROVISIONING: &str = "sheave.dev/overprovisioning";
/// Percent of healthy endpoints below which unhealthy ones are used as well. Default:
/// `failover.panicThreshold`.
pub(super) const PANIC_THRESHOLD: &str = "sheave.dev/panic-threshold";

const KNOWN: [&str; 27] = [
    BALANCE,
    ADDRESSES,
    ADDRESS_POOL,
    RENUMBER,
    AFFINITY_SCOPE,
    CLIENT_SOURCE,
    ACCEPT_PROXY,
    MAX_CONNECTIONS,
    MAX_CONNECTION_RATE,
    MAX_CONNECTIONS_PER_CLIENT,
    MAX_CONNECTION_RATE_PER_CLIENT,
    IDLE_TIMEOUT,
    IDLE_KEEPALIVES,
    CONNECT_TIMEOUT,
    MAX_CONNECTION_AGE,
    MAX_CONNECTION_AGE_GRACE,
    REMOVED_ENDPOINT_GRACE,
    CONNECTION_LOG,
    CLASS,
    CLUSTER_WEIGHTS,
    CLUSTER_PRIORITY,
    CLUSTER_ENDPOINTS,
    DRAIN,
    HEALTH_CHECK,
    SLOW_START,
    OVERPROVISIONING,
    PANIC_THRESHOLD,
];

/// What all of a MultiClusterService's annotations that count begin with; others of it are not read.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The value of one annotation.
pub(super) fn value<'a>(service: &'a Service, name: &str) -> Option<&'a str> {
    service.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// What `parse` makes of one annotation; a value that it refuses is reported, by the message that it gives.
pub(super) fn read<T>(
    service: &Service,
    name: &str,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let parsed = parse(value(service, name)?);
    parsed.inspect_err(|message| report.invalid(field(name), message)).ok()
}

/// How Problems name an annotation.
pub(super) fn field(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

/// Reports annotations that look like ours but are none.
pub(super) fn check(service: &Service, report: &mut Report) {
    let annotations = service.metadata.annotations.iter().flat_map(BTreeMap::keys);
    for name in annotations.filter(|name| name.starts_with(PREFIX) && !KNOWN.contains(&name.as_str())) {
        let hint = match text::closest(name, KNOWN) {
            Some(known) => format!("did you mean {known}?"),
            None => format!("known are {}", KNOWN.join(", ")),
        };
        report.invalid(field(name), format!("no such annotation; it has no effect ({hint})"));
    }
}

/// Which part of its connections is logged; `default` unless there is a good value.
pub(super) fn logged(service: &Service, default: LogSample, report: &mut Report) -> LogSample {
    let sample = read(service, CONNECTION_LOG, report, |text| {
        LogSample::parse(text.trim()).ok_or_else(|| {
            format!(
                "{text:?} is not a percentage from 0% to 100%, such as 0.1%; the default of {default} holds"
            )
        })
    });
    sample.unwrap_or(default)
}

/// What stands for the endpoints of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointMode {
    /// Its Pods.
    Pods,
    /// The addresses of its Service.
    Ingress,
    /// Its Pods where slices of them are known, else the addresses of its Service.
    Auto,
}

/// Reads the annotation.
pub(super) fn endpoint_mode(service: &Service, report: &mut Report) -> EndpointMode {
    let mode = read(service, CLUSTER_ENDPOINTS, report, |asked| match asked.trim() {
        "auto" => Ok(EndpointMode::Auto),
        "pods" => Ok(EndpointMode::Pods),
        "ingress" => Ok(EndpointMode::Ingress),
        other => Err(format!("{other:?} is not pods, ingress or auto; auto is used")),
    });
    mode.unwrap_or(EndpointMode::Auto)
}

/// Reads the algorithm that the annotation asks for; `None` means the protocol's default.
pub(super) fn algorithm(service: &Service, report: &mut Report) -> Option<Algorithm> {
    read(service, BALANCE, report, |asked| match asked.trim() {
        "least-connections" => Ok(Algorithm::LeastConnections),
        "maglev" => Ok(Algorithm::Maglev),
        "round-robin" => Ok(Algorithm::RoundRobin),
        "random" => Ok(Algorithm::Random),
        _ => Err(format!(
            "{asked:?} is not least-connections, maglev, round-robin or random; the default of the protocol is used"
        )),
    })
}

/// Of so many values that cannot be used each is reported: an annotation may hold thousands.
const REPORTED: usize = 8;

pub(super) fn affinity_scope(text: &str) -> Result<AffinityScope, String> {
    match text.trim() {
        "port" => Ok(AffinityScope::Port),
        "service" => Ok(AffinityScope::Service),
        _ => Err(format!("{text:?} is not port or service; each port has its own affinity")),
    }
}

/// Reads an annotation that is true or false. `instead` completes the report of another value.
pub(super) fn flag(service: &Service, name: &str, report: &mut Report, instead: &str) -> bool {
    let parse =
        |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is not true or false; {instead}"));
    read(service, name, report, parse).unwrap_or_default()
}

/// The values of the annotation, each once and in its order. There may be thousands, so nothing is searched for in a list.
pub(super) fn addresses(texts: &str, families: &Families, report: &mut Report) -> Vec<IpAddr> {
    let (mut addresses, mut seen) = (Vec::new(), HashSet::new());
    let mut unusable = 0;
    for text in texts.split(',').filter(|text| !text.trim().is_empty()) {
        match usable_address(text, families) {
            Ok(ip) if seen.insert(ip) => addresses.push(ip),
            Ok(_) => {}
            Err(refused) => {
                unusable += 1;
                if unusable <= REPORTED {
                    report.invalid(field(ADDRESSES), format!("{text:?} {refused}; it is ignored"));
                }
            }
        }
    }
    if unusable > REPORTED {
        let message = format!("{} more values cannot be used; they are ignored", unusable - REPORTED);
        report.invalid(field(ADDRESSES), message);
    }
    addresses
}

/// The address, or why the Service cannot have it.
pub(super) fn usable_address(text: &str, families: &Families) -> Result<IpAddr, &'static str> {
    let ip = net::parse_ip(text)?;
    if families.fit(ip) { Ok(ip) } else { Err("is not of the Service's ipFamilies") }
}
