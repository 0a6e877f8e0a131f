//! Annotations of Gateways, ListenerSets, routes and their backends: which of them count where, and the Service that they are read
//! as. The nearest object wins: a ListenerSet before its Gateway, a route before its backend.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    ACCEPT_PROXY, ADDRESS_POOL, BALANCE, CLIENT_SOURCE, CLUSTER_PRIORITY, CLUSTER_WEIGHTS, CONNECT_TIMEOUT,
    CONNECTION_LOG, DRAIN, HEALTH_CHECK, IDLE_KEEPALIVES, IDLE_TIMEOUT, MAX_CONNECTION_AGE,
    MAX_CONNECTION_AGE_GRACE, MAX_CONNECTION_RATE, MAX_CONNECTION_RATE_PER_CLIENT, MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_CLIENT, OVERPROVISIONING, PANIC_THRESHOLD, PREFIX, REMOVED_ENDPOINT_GRACE, RENUMBER,
    SLOW_START, field,
};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::text;

/// Clients that may use a listener: CIDRs, separated by commas, as in `loadBalancerSourceRanges`. Default: all.
pub(crate) const SOURCE_RANGES: &str = "sheave.dev/source-ranges";
/// Families of a Gateway's addresses: `IPv4`, `IPv6` or `IPv4,IPv6`. Default: those that the AddressPool has.
pub(crate) const IP_FAMILIES: &str = "sheave.dev/ip-families";
/// Session affinity of a route: `none`, `ClientIP`, or `ClientIP=1h` with a timeout from 1 s to 24 h. Default: that of each backend.
pub(in crate::projection) const AFFINITY: &str = "sheave.dev/affinity";

/// Annotations that count on a Gateway alone.
const ADDRESSES: [&str; 3] = [ADDRESS_POOL, RENUMBER, IP_FAMILIES];
/// Annotations about what is counted for all listeners with them together.
const LIMITS: [&str; 4] =
    [MAX_CONNECTIONS, MAX_CONNECTION_RATE, MAX_CONNECTIONS_PER_CLIENT, MAX_CONNECTION_RATE_PER_CLIENT];
/// Annotations about what is found out about endpoints.
const JUDGING: [&str; 2] = [HEALTH_CHECK, SLOW_START];
/// Annotations about the sockets of listeners, on a Gateway or ListenerSet.
const SOCKET: [&str; 9] = [
    SOURCE_RANGES,
    ACCEPT_PROXY,
    MAX_CONNECTIONS,
    MAX_CONNECTION_RATE,
    MAX_CONNECTIONS_PER_CLIENT,
    MAX_CONNECTION_RATE_PER_CLIENT,
    CONNECTION_LOG,
    IDLE_TIMEOUT,
    IDLE_KEEPALIVES,
];
/// Annotations about new connections, on a route.
const CONNECTION: [&str; 5] =
    [CLIENT_SOURCE, CONNECT_TIMEOUT, MAX_CONNECTION_AGE, MAX_CONNECTION_AGE_GRACE, REMOVED_ENDPOINT_GRACE];
/// Annotations about endpoints, on a route or on a backend.
const ENDPOINTS: [&str; 5] = [HEALTH_CHECK, SLOW_START, PANIC_THRESHOLD, OVERPROVISIONING, BALANCE];
/// Annotations about clusters, on a route or on a ServiceImport.
const CLUSTERS: [&str; 3] = [CLUSTER_WEIGHTS, CLUSTER_PRIORITY, DRAIN];

/// The kind of object that has annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::projection) enum AnnotatedKind {
    Gateway,
    ListenerSet,
    /// A route with Services alone as backends.
    Route,
    /// A route with a ServiceImport among its backends.
    RouteOfImport,
    /// A ServiceImport that is a backend.
    ServiceImport,
}

impl AnnotatedKind {
    fn known(self) -> Vec<&'static str> {
        match self {
            Self::Gateway => [ADDRESSES.as_slice(), &SOCKET].concat(),
            Self::ListenerSet => SOCKET.to_vec(),
            Self::Route => [CONNECTION.as_slice(), &ENDPOINTS, &[AFFINITY]].concat(),
            Self::RouteOfImport => [CONNECTION.as_slice(), &ENDPOINTS, &CLUSTERS, &[AFFINITY]].concat(),
            Self::ServiceImport => [ENDPOINTS.as_slice(), &CLUSTERS, &[CONNECT_TIMEOUT]].concat(),
        }
    }
}

/// Whether the annotation is about the addresses of a Gateway.
pub(in crate::projection) fn is_about_addresses(name: &str) -> bool {
    ADDRESSES.contains(&name)
}

/// Reports annotations with our prefix that do not count on this kind of object.
pub(in crate::projection) fn check(kind: AnnotatedKind, metadata: &ObjectMeta, report: &mut Report) {
    let known = kind.known();
    let names = metadata.annotations.iter().flat_map(BTreeMap::keys);
    for name in names.filter(|name| name.starts_with(PREFIX) && !known.contains(&name.as_str())) {
        if kind == AnnotatedKind::Route && CLUSTERS.contains(&name.as_str()) {
            let message =
                "no backend of the route is a ServiceImport, so there are no clusters; it has no effect";
            report.invalid(field(name), message);
            continue;
        }
        let hint = match text::closest(name, known.iter().copied()) {
            Some(known) => format!("did you mean {known}?"),
            None => format!("known are {}", known.join(", ")),
        };
        report.invalid(field(name), format!("no such annotation here; it has no effect ({hint})"));
    }
}

/// Whether an object limits its listeners itself. What they have open counts for them alone then, limits of the Gateway included.
pub(in crate::projection) fn has_limits(metadata: &ObjectMeta) -> bool {
    has_any(metadata, &LIMITS)
}

/// Whether an object says itself how its endpoints are judged.
pub(in crate::projection) fn has_judgement(metadata: &ObjectMeta) -> bool {
    has_any(metadata, &JUDGING)
}

fn has_any(metadata: &ObjectMeta, names: &[&str]) -> bool {
    let annotations = metadata.annotations.iter().flat_map(BTreeMap::keys);
    annotations.into_iter().any(|name| names.contains(&name.as_str()))
}

/// Annotations that count together, each from the nearest object that has it.
#[derive(Default)]
pub(in crate::projection) struct Merged<'a> {
    /// Nearest first.
    sources: Vec<(ObjectRef, &'a ObjectMeta)>,
    pub(in crate::projection) annotations: BTreeMap<String, String>,
}

impl<'a> Merged<'a> {
    /// Adds the annotations about sockets of a Gateway or ListenerSet, which is farther than those added before.
    pub(in crate::projection) fn add_socket(&mut self, object: ObjectRef, metadata: &'a ObjectMeta) {
        self.add(object, metadata, &SOCKET);
    }

    /// Adds the annotations about connections of a route.
    pub(in crate::projection) fn add_connection(&mut self, object: ObjectRef, metadata: &'a ObjectMeta) {
        self.add(object, metadata, &CONNECTION);
    }

    /// Adds the connect timeout of the only backend of a route.
    pub(in crate::projection) fn add_connect_timeout(&mut self, object: ObjectRef, metadata: &'a ObjectMeta) {
        self.add(object, metadata, &[CONNECT_TIMEOUT]);
    }

    /// Adds the annotations about endpoints of a route or backend.
    pub(in crate::projection) fn add_endpoints(
        &mut self,
        object: ObjectRef,
        metadata: &'a ObjectMeta,
        of_clusters: bool,
    ) {
        self.add(object.clone(), metadata, &ENDPOINTS);
        if of_clusters {
            self.add(object, metadata, &CLUSTERS);
        }
    }

    fn add(&mut self, object: ObjectRef, metadata: &'a ObjectMeta, names: &[&str]) {
        for (name, value) in metadata.annotations.iter().flatten() {
            if names.contains(&name.as_str()) {
                self.annotations.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        self.sources.push((object, metadata));
    }

    /// Names the object that each annotation comes from in these Problems.
    pub(in crate::projection) fn attribute(&self, problems: &mut [Problem]) {
        for problem in problems {
            let name =
                problem.field.strip_prefix("metadata.annotations[").and_then(|it| it.strip_suffix(']'));
            let Some(name) = name else { continue };
            let has_it = |metadata: &ObjectMeta| {
                metadata.annotations.as_ref().is_some_and(|all| all.contains_key(name))
            };
            if let Some((object, _)) = self.sources.iter().find(|(_, metadata)| has_it(metadata)) {
                problem.object = object.clone();
            }
        }
    }
}
