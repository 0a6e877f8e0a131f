//! The annotations by which a Service says what the API has no field for. It must not know what they mean.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

use crate::api::problem::report::Report;
use crate::text;

/// What all of ours begin with.
const PREFIX: &str = "sheave.dev/";

/// Chooses the balancing algorithm.
pub(super) const BALANCE: &str = "sheave.dev/balance";
/// Asks for addresses by value.
pub(super) const ADDRESSES: &str = "sheave.dev/addresses";
/// Names the pool to allocate from.
pub(super) const ADDRESS_POOL: &str = "sheave.dev/address-pool";
/// Lets an address be replaced that no pool gives any longer.
pub(super) const RENUMBER: &str = "sheave.dev/renumber";
/// Chooses what endpoints see of clients.
pub(super) const CLIENT_SOURCE: &str = "sheave.dev/client-source";
/// Names the peers whose connections begin with a PROXY header.
pub(super) const ACCEPT_PROXY: &str = "sheave.dev/accept-proxy";

/// Connections and flows that the Service may have open on each gateway.
pub(super) const MAX_CONNECTIONS: &str = "sheave.dev/max-connections";
/// New ones a second.
pub(super) const MAX_CONNECTION_RATE: &str = "sheave.dev/max-connection-rate";
/// Those of one client address.
pub(super) const MAX_CONNECTIONS_PER_CLIENT: &str = "sheave.dev/max-connections-per-client";
/// New ones of one client address a second.
pub(super) const MAX_CONNECTION_RATE_PER_CLIENT: &str = "sheave.dev/max-connection-rate-per-client";
/// How long a connection or flow may be idle.
pub(super) const IDLE_TIMEOUT: &str = "sheave.dev/idle-timeout";
/// How long an attempt to connect an endpoint may take.
pub(super) const CONNECT_TIMEOUT: &str = "sheave.dev/connect-timeout";

/// Names whose class a MultiClusterService is of.
pub(super) const CLASS: &str = "sheave.dev/load-balancer-class";
/// Shares of clusters.
pub(super) const CLUSTER_WEIGHTS: &str = "sheave.dev/cluster-weights";
/// Which clusters are used before others.
pub(super) const CLUSTER_PRIORITY: &str = "sheave.dev/cluster-priority";
/// What stands for the endpoints of a cluster.
pub(super) const CLUSTER_ENDPOINTS: &str = "sheave.dev/cluster-endpoints";
/// Clusters that get nothing new.
pub(super) const DRAIN: &str = "sheave.dev/drain";
/// How endpoints of other clusters are asked whether they serve.
pub(super) const HEALTH_CHECK: &str = "sheave.dev/health-check";
/// How far a tier may lose health before others take over.
pub(super) const OVERPROVISIONING: &str = "sheave.dev/overprovisioning";
/// From when on health is ignored.
pub(super) const PANIC_THRESHOLD: &str = "sheave.dev/panic-threshold";

const KNOWN: [&str; 20] = [
    BALANCE,
    ADDRESSES,
    ADDRESS_POOL,
    RENUMBER,
    CLIENT_SOURCE,
    ACCEPT_PROXY,
    MAX_CONNECTIONS,
    MAX_CONNECTION_RATE,
    MAX_CONNECTIONS_PER_CLIENT,
    MAX_CONNECTION_RATE_PER_CLIENT,
    IDLE_TIMEOUT,
    CONNECT_TIMEOUT,
    CLASS,
    CLUSTER_WEIGHTS,
    CLUSTER_PRIORITY,
    CLUSTER_ENDPOINTS,
    DRAIN,
    HEALTH_CHECK,
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
