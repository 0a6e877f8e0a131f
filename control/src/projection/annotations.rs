//! Annotations of a Service: their names, and the meaning of their values.

pub(super) mod client_address;
pub(super) mod clusters;
pub(super) mod failover;
pub(super) mod gateway_api;
pub(super) mod health;
pub(super) mod limits;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use sheave_model::{AffinityScope, Algorithm, LogSample, PathChoice};

use super::families::Families;
use crate::api::problem::report::Report;
use crate::{net, text};

/// Prefix of all Sheave annotations.
pub(crate) const PREFIX: &str = "sheave.dev/";

/// How endpoints are selected: `least-connections` (default for TCP), `maglev` (default for UDP), `round-robin` or `random`.
pub(crate) const BALANCE: &str = "sheave.dev/balance";
/// Requests these addresses, separated by commas. The first `maxPerService` addresses of each pool are allocated, and the others
/// are refused.
pub(crate) const ADDRESSES: &str = "sheave.dev/addresses";
/// Name of the AddressPool to allocate from. A Service with an address of another pool moves if the named pool admits it.
pub(crate) const ADDRESS_POOL: &str = "sheave.dev/address-pool";
/// `true` replaces an address that no AddressPool offers to the Service any longer, as soon as another one is free.
pub(super) const RENUMBER: &str = "sheave.dev/renumber";
/// Scope in which a client of a Service with `sessionAffinity: ClientIP` stays on one endpoint: `port` (default), each port of
/// the Service separately, or `service`, all its ports and protocols together, as SIP and RTP need it. Endpoints with the same
/// address count as one.
pub(super) const AFFINITY_SCOPE: &str = "sheave.dev/affinity-scope";
/// Source address that endpoints see: `gateway`, `transparent` (the client's own address, and its port if that is free),
/// `proxy-v1` (TCP) or `proxy-v2`. Default: `transparent` for clients outside the cluster if `externalTrafficPolicy` is `Local`,
/// otherwise `gateway`.
pub(crate) const CLIENT_SOURCE: &str = "sheave.dev/client-source";
/// Path of the connections: `proxy`, `kernel` (nftables, as far as that can do what the Service asks for), or `auto` (the
/// kernel only where nothing of that is lost). Default: `path`.
pub(super) const PATH: &str = "sheave.dev/path";
/// CIDRs of peers whose TCP connections begin with a PROXY header, version 1 or 2. `acceptProxy.allow` in the configuration
/// restricts them.
pub(crate) const ACCEPT_PROXY: &str = "sheave.dev/accept-proxy";

/// Maximum number of open connections and UDP flows of the Service on each gateway. Default: `limits.perService.connections`.
pub(super) const MAX_CONNECTIONS: &str = "sheave.dev/max-connections";
/// Maximum rate of new connections and flows of the Service on each gateway, per second; as many can arrive at once. Default:
/// `limits.perService.connectionRate`.
pub(super) const MAX_CONNECTION_RATE: &str = "sheave.dev/max-connection-rate";
/// Maximum number of open connections and flows of each client. Default: `limits.perClient.connections`.
pub(super) const MAX_CONNECTIONS_PER_CLIENT: &str = "sheave.dev/max-connections-per-client";
/// Maximum rate of new connections and flows of each client, per second. Default: `limits.perClient.connectionRate`.
pub(super) const MAX_CONNECTION_RATE_PER_CLIENT: &str = "sheave.dev/max-connection-rate-per-client";
/// How long a connection or flow may be idle, from 1 s to a year. Default: `timeouts.idle` and `timeouts.udpIdle`.
pub(super) const IDLE_TIMEOUT: &str = "sheave.dev/idle-timeout";
/// `true` counts TCP keepalives from clients or endpoints as activity. Default: only data counts.
pub(super) const IDLE_KEEPALIVES: &str = "sheave.dev/idle-keepalives";
/// Timeout of one attempt to connect to an endpoint, from 10 ms to a minute. Default: `timeouts.connect`.
pub(super) const CONNECT_TIMEOUT: &str = "sheave.dev/connect-timeout";

/// Maximum age of a TCP connection, from 1 s to a year, plus up to a tenth at random; after that it is closed in its next pause.
/// Default: no limit.
pub(super) const MAX_CONNECTION_AGE: &str = "sheave.dev/max-connection-age";
/// How long a connection beyond its maximum age may continue without a pause, from 1 s to a year. Default: 30 s.
pub(super) const MAX_CONNECTION_AGE_GRACE: &str = "sheave.dev/max-connection-age-grace";
/// How long TCP connections may continue after their endpoint has left the Service or stopped serving, from 0 s to a year.
/// Default: no limit.
pub(super) const REMOVED_ENDPOINT_GRACE: &str = "sheave.dev/removed-endpoint-grace";

/// Share of the Service's TCP connections that each gateway logs, for example `100%`, `1%` or `0.05%`. Default:
/// `connectionLog.sample`.
pub(super) const CONNECTION_LOG: &str = "sheave.dev/connection-log";

/// Class of a MultiClusterService. Default: the `loadBalancerClass` of its Service; without that, `karmada.handleUnclassified`
/// decides.
pub(super) const CLASS: &str = "sheave.dev/load-balancer-class";
/// Weights of clusters, for example `member1=3,member2=1`. A cluster without a weight has 1; one with 0 gets no traffic while
/// another one serves. Default: all endpoints get equal shares.
pub(super) const CLUSTER_WEIGHTS: &str = "sheave.dev/cluster-weights";
/// Tiers of clusters, for example `member1,member2>member3`, or `locality`: own cluster, its region, the rest. A tier takes the
/// traffic that the tiers before it cannot carry. Default: one tier.
pub(super) const CLUSTER_PRIORITY: &str = "sheave.dev/cluster-priority";
/// `pods`: the endpoints that Karmada collected; `ingress`: the addresses of each cluster's own load balancer, for pod networks
/// that are not connected; `auto` (default): pods if there are any.
pub(super) const CLUSTER_ENDPOINTS: &str = "sheave.dev/cluster-endpoints";
/// Clusters that get no new connections, for example `member1,member2`. On a Cluster, `true` drains it for every
/// MultiClusterService.
pub(super) const DRAIN: &str = "sheave.dev/drain";
/// Active health check of each endpoint: `tcp`, `tcp:PORT`, `http:/PATH`, `http:PORT/PATH`, `grpc`, `grpc:SERVICE` or
/// `udp:PAYLOAD`, followed by options: `interval=5s`, `timeout` (at most 10s), `failures` and `successes`; for `grpc` and `udp`
/// `port`; for `udp` `answer=TEXT`, the expected start of the answer. `%XX` stands for a byte of the answer or the payload.
/// `grpc` calls `grpc.health.v1.Health/Check` over HTTP/2 without TLS. Without a port, the check applies to ports of its own
/// protocol. Default: no active check; failed connections show that an endpoint is unhealthy.
pub(super) const HEALTH_CHECK: &str = "sheave.dev/health-check";
/// How long a new or recovered endpoint takes to reach its full share of new connections, from 1 s to an hour. Not used with
/// `maglev` or session affinity. Default: full share at once.
pub(super) const SLOW_START: &str = "sheave.dev/slow-start";
/// How much health a tier may lose before the next one takes over traffic, in percent: with 140, a tier of which 60 % is healthy
/// carries 84 % of its traffic. Default: `failover.overprovisioning`.
pub(super) const OVERPROVISIONING: &str = "sheave.dev/overprovisioning";
/// Percentage of healthy endpoints below which unhealthy ones are used as well. Default: `failover.panicThreshold`.
pub(super) const PANIC_THRESHOLD: &str = "sheave.dev/panic-threshold";

const KNOWN: [&str; 28] = [
    BALANCE,
    ADDRESSES,
    ADDRESS_POOL,
    RENUMBER,
    AFFINITY_SCOPE,
    CLIENT_SOURCE,
    PATH,
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

/// Whether it is an annotation that counts on a MultiClusterService; its other annotations are not read.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The value of an annotation.
pub(super) fn value<'a>(service: &'a Service, name: &str) -> Option<&'a str> {
    service.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Parses an annotation with `parse`, and reports a value for which `parse` returns an error.
pub(super) fn read<T>(
    service: &Service,
    name: &str,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let parsed = parse(value(service, name)?);
    parsed.inspect_err(|message| report.invalid(field(name), message)).ok()
}

/// The field name of an annotation in Problems.
pub(super) fn field(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

/// Reports unknown annotations with our prefix.
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

/// The share of connections to log; `default` without a valid value.
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

/// Representation of the endpoints of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointMode {
    /// Its Pods.
    Pods,
    /// The addresses of its Service.
    Ingress,
    /// Its Pods if their slices are known, else the addresses of its Service.
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

/// Reads the algorithm from the annotation; `None` means the protocol's default.
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

/// Reads the data path from the annotation.
pub(super) fn data_path(service: &Service, default: PathChoice, report: &mut Report) -> PathChoice {
    let chosen = read(service, PATH, report, |asked| {
        PathChoice::named(asked.trim())
            .ok_or_else(|| format!("{asked:?} is not proxy, kernel or auto; {} is used", default.name()))
    });
    chosen.unwrap_or(default)
}

/// How many unusable values are reported: an annotation may hold thousands.
const REPORTED: usize = 8;

pub(super) fn affinity_scope(text: &str) -> Result<AffinityScope, String> {
    match text.trim() {
        "port" => Ok(AffinityScope::Port),
        "service" => Ok(AffinityScope::Service),
        _ => Err(format!("{text:?} is not port or service; each port has its own affinity")),
    }
}

/// Reads a boolean annotation. `instead` completes the report of an invalid value.
pub(super) fn flag(service: &Service, name: &str, report: &mut Report, instead: &str) -> bool {
    let parse =
        |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is not true or false; {instead}"));
    read(service, name, report, parse).unwrap_or_default()
}

/// The addresses in the annotation, in order and without duplicates. There may be thousands, so membership is tested with a hash
/// set.
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

/// The address, or the reason why the Service cannot have it.
pub(super) fn usable_address(text: &str, families: &Families) -> Result<IpAddr, &'static str> {
    let ip = net::parse_ip(text)?;
    if families.fit(ip) { Ok(ip) } else { Err("is not of the Service's ipFamilies") }
}
