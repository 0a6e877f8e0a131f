//! Shares of new connections that endpoints get, as far as they follow from weights.

use std::collections::BTreeMap;

use crate::views::routes::{BackendView, FrontendView};

/// Minimum share of new connections from outside the cluster that go to another endpoint than before.
pub(super) fn moved(old: &FrontendView, new: &FrontendView) -> f64 {
    let (before, after) = (shares(old), shares(new));
    if before.is_empty() || after.is_empty() {
        return if before.is_empty() && after.is_empty() { 0.0 } else { 1.0 };
    }
    let lost = |(endpoint, share): (&&str, &f64)| (share - after.get(*endpoint).unwrap_or(&0.0)).max(0.0);
    before.iter().map(lost).sum::<f64>().clamp(0.0, 1.0)
}

/// Share of each endpoint that clients outside the cluster can reach. What a split refuses reaches none.
fn shares(frontend: &FrontendView) -> BTreeMap<&str, f64> {
    let candidates = &frontend.external.endpoints;
    let mut shares = of_backends(&frontend.backends, candidates);
    let whole: f64 = frontend.parts().iter().map(|part| f64::from(part.weight)).sum();
    for part in frontend.parts().iter().filter(|part| part.weight > 0) {
        for (endpoint, share) in of_backends(part.backends(), candidates) {
            *shares.entry(endpoint).or_default() += share * f64::from(part.weight) / whole;
        }
    }
    shares
}

/// Share of each endpoint among these. Of clusters with different priorities, only the first ones count.
fn of_backends<'a>(backends: &'a [BackendView], candidates: &[String]) -> BTreeMap<&'a str, f64> {
    let weights = |backend: &BackendView| -> Vec<(f64, usize)> {
        let chosen = backend
            .endpoints
            .iter()
            .enumerate()
            .filter(|(_, endpoint)| candidates.contains(&endpoint.address));
        chosen.map(|(index, endpoint)| (f64::from(endpoint.weight), index)).collect()
    };
    let serving: Vec<(&BackendView, Vec<(f64, usize)>)> = backends
        .iter()
        .map(|backend| (backend, weights(backend)))
        .filter(|(_, weights)| weights.iter().any(|(weight, _)| *weight > 0.0))
        .collect();
    let first = serving.iter().map(|(backend, _)| backend.priority).min();
    let preferred = || serving.iter().filter(|(backend, _)| Some(backend.priority) == first);
    let clusters: f64 = preferred().map(|(backend, _)| f64::from(backend.weight)).sum();
    let mut shares = BTreeMap::new();
    for (backend, weights) in preferred() {
        let total: f64 = weights.iter().map(|(weight, _)| weight).sum();
        for (weight, index) in weights {
            let Some(endpoint) = backend.endpoints.get(*index) else { continue };
            let share = f64::from(backend.weight) / clusters * weight / total;
            *shares.entry(endpoint.address.as_str()).or_default() += share;
        }
    }
    shares.retain(|_, share: &mut f64| share.is_finite());
    shares
}
