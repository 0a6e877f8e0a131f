//! Series of endpoints: up to a configured number, which is zero by default.

use std::collections::HashMap;

use sheave_dataplane::select::{ActiveFrontend, ActiveTable, EndpointLoad, Origin};
use sheave_dataplane::{EndpointCounts, EndpointFailures};
use sheave_model::{EndpointAddr, Frontend, FrontendKind};

use super::frontends;
use crate::http::metrics::exposition::{Exposition, render};
use crate::http::metrics::families as names;

/// Endpoint of a frontend with series.
struct ShownEndpoint<'a> {
    labels: String,
    load: &'a EndpointLoad,
    share: f64,
    unhealthy: bool,
    counts: EndpointCounts,
}

/// Writes series for the first `most` endpoints, ordered by frontend and address.
pub(super) fn write(text: &mut Exposition, table: &ActiveTable, failures: &EndpointFailures, most: usize) {
    if most == 0 {
        return;
    }
    let (mut shown, mut omitted) = (Vec::new(), 0);
    for frontend in table.table().frontends() {
        let Some(active) = table.get(frontend.addr) else { continue };
        let room = most.saturating_sub(shown.len());
        omitted += active.loads().count().saturating_sub(room) as u64;
        if room > 0 {
            shown.extend(endpoints(table, frontend, active, failures).take(room));
        }
    }
    text.family(&names::ENDPOINTS_OMITTED).add(&[], omitted);
    write_each(text, &names::ENDPOINT_PICKS, &shown, |it| it.load.picks());
    write_each(text, &names::ENDPOINT_CONNECTIONS, &shown, |it| it.load.active().into());
    write_each(text, &names::ENDPOINT_UNANSWERED, &shown, |it| it.load.unanswered());
    let mut samples = text.family(&names::ENDPOINT_SHARE);
    for ShownEndpoint { labels, share, .. } in &shown {
        samples.add_fraction(labels, *share);
    }
    write_each(text, &names::ENDPOINT_UNHEALTHY, &shown, |it| it.unhealthy.into());
    write_each(text, &names::ENDPOINT_FAILURES, &shown, |it| it.counts.failures);
    write_each(text, &names::ENDPOINT_EJECTIONS, &shown, |it| it.counts.ejections);
}

/// The shown endpoints of a frontend. If it is split, the label `service` is that of the first part with the endpoint: one endpoint has
/// the same series however many parts have it.
fn endpoints<'a>(
    table: &'a ActiveTable,
    frontend: &'a Frontend,
    active: &'a ActiveFrontend,
    failures: &'a EndpointFailures,
) -> impl Iterator<Item = ShownEndpoint<'a>> {
    let clusters = clusters(frontend);
    let shares: HashMap<EndpointAddr, u64> = active.shares(origin(frontend)).collect();
    let all: u64 = shares.values().sum();
    active.loads().map(move |(addr, load)| {
        let cluster = clusters.get(&addr).copied().unwrap_or_default();
        let first = frontends::labels_of(frontend, active.judges(addr).next().unwrap_or(&frontend.service));
        let own = render(&[("endpoint", &addr.to_string()), ("cluster", cluster)]);
        let share = shares.get(&addr).copied().unwrap_or_default();
        let of_judges = active.judges(addr).map(|service| failures.of(service, addr));
        ShownEndpoint {
            labels: format!("{first},{own}"),
            load,
            share: share as f64 / all.max(1) as f64,
            unhealthy: active.judges(addr).any(|service| table.health().is_unhealthy(service, addr)),
            // A failed connection counts for each Service that judges the endpoint.
            counts: of_judges.max_by_key(|counts| counts.failures).unwrap_or_default(),
        }
    })
}

/// Origin of the clients that the frontend is meant for.
fn origin(frontend: &Frontend) -> Origin {
    if frontend.kind == FrontendKind::ClusterIp { Origin::Internal } else { Origin::External }
}

fn write_each(
    text: &mut Exposition,
    family: &names::Family,
    endpoints: &[ShownEndpoint<'_>],
    value: impl Fn(&ShownEndpoint<'_>) -> u64,
) {
    let mut samples = text.family(family);
    for endpoint in endpoints {
        samples.add_to(&endpoint.labels, &[], value(endpoint));
    }
}

/// Cluster of each endpoint of a frontend. Clusters may use the same addresses behind different interfaces, so the address alone
/// does not identify an endpoint.
fn clusters(frontend: &Frontend) -> HashMap<EndpointAddr, &str> {
    let mut clusters = HashMap::new();
    for backend in frontend.pools().flat_map(|pool| pool.backends.iter()) {
        let addresses = backend.endpoints.iter().map(|endpoint| endpoint.addr);
        for addr in addresses.chain(backend.lingering.iter().copied()) {
            clusters.entry(addr).or_insert(&*backend.cluster);
        }
    }
    clusters
}
