//! Series of endpoints: up to a configured number, and none by default.

use std::collections::HashMap;

use sheave_dataplane::select::{ActiveTable, EndpointLoad};
use sheave_model::{EndpointAddr, Frontend};

use super::frontends;
use crate::http::metrics::exposition::{Exposition, render};
use crate::http::metrics::families as names;

/// The first `most` endpoints, in the order of the frontends that they serve and of their addresses, have series.
pub(super) fn write(text: &mut Exposition, table: &ActiveTable, most: usize) {
    if most == 0 {
        return;
    }
    let (mut shown, mut omitted) = (Vec::new(), 0);
    for frontend in table.table().frontends() {
        let Some(active) = table.get(frontend.addr) else { continue };
        let room = most.saturating_sub(shown.len());
        omitted += active.loads().count().saturating_sub(room) as u64;
        if room > 0 {
            let (first, clusters) = (frontends::labels(frontend), clusters(frontend));
            let series = |(addr, load): (EndpointAddr, _)| {
                let cluster = clusters.get(&addr).copied().unwrap_or_default();
                let own = render(&[("endpoint", &addr.to_string()), ("cluster", cluster)]);
                (format!("{first},{own}"), load)
            };
            shown.extend(active.loads().take(room).map(series));
        }
    }
    text.family(&names::ENDPOINTS_OMITTED).add(&[], omitted);
    write_each(text, &names::ENDPOINT_PICKS, &shown, EndpointLoad::picks);
    write_each(text, &names::ENDPOINT_CONNECTIONS, &shown, |load| load.active().into());
}

fn write_each(
    text: &mut Exposition,
    family: &names::Family,
    endpoints: &[(String, &EndpointLoad)],
    value: impl Fn(&EndpointLoad) -> u64,
) {
    let mut samples = text.family(family);
    for (labels, load) in endpoints {
        samples.add_to(labels, &[], value(load));
    }
}

/// Whose the frontend's endpoints are. Clusters may use the same addresses behind different interfaces, so that the address alone
/// does not identify an endpoint.
fn clusters(frontend: &Frontend) -> HashMap<EndpointAddr, &str> {
    let mut clusters = HashMap::new();
    for backend in &*frontend.backends {
        let addresses = backend.endpoints.iter().map(|endpoint| endpoint.addr);
        for addr in addresses.chain(backend.lingering.iter().copied()) {
            clusters.entry(addr).or_insert(&*backend.cluster);
        }
    }
    clusters
}
