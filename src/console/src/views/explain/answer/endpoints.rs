//! Endpoints of an answer: first by the projection, then by health and shares in the table in force.

use std::collections::{BTreeMap, BTreeSet};

use sheave_control::projection::explain::{ExplainView, ExplainedEndpoint, FrontendExplanation};
use sheave_dataplane::select::{ActiveFrontend, FULL_SHARE, Origin};
use sheave_model::{Algorithm, Backend, EndpointAddr, Route};

use super::{Basis, FrontendAnswer, candidates};
use crate::views::percent;

impl FrontendAnswer<'_> {
    /// Endpoints of the projection, of which those that the table in force would not choose are marked.
    pub(super) fn endpoints(
        &self,
        explained: &FrontendExplanation,
        origin: Origin,
        active: Option<&ActiveFrontend>,
    ) -> Vec<ExplainedEndpoint> {
        let several = self.frontend.failover.is_some();
        let parts = active.map(|active| shares(active, origin)).unwrap_or_default();
        let chosen: BTreeSet<EndpointAddr> = active.into_iter().flat_map(|it| it.choices(origin)).collect();
        let routed = |addr: EndpointAddr| {
            let in_force = active.map(ActiveFrontend::spec);
            in_force.is_some_and(|spec| candidates(spec, origin).any(|candidate| candidate == addr))
        };
        let mut endpoints = explained.endpoints.clone();
        for endpoint in &mut endpoints {
            if several {
                let backend =
                    self.frontend.backends.iter().find(|backend| *backend.cluster == *endpoint.cluster);
                endpoint.weight = backend.map(|backend| backend.weight.0);
            } else {
                endpoint.cluster.clear();
            }
            let Some(addr) = endpoint.addr.take().filter(|_| endpoint.used) else { continue };
            endpoint.share = parts.get(&addr).copied();
            endpoint.unhealthy = unhealthy(active, addr, self.basis);
            if chosen.contains(&addr) {
                if let Some(why) = &endpoint.unhealthy {
                    let rest = endpoint.reason.strip_prefix("it may be chosen").unwrap_or_default();
                    endpoint.reason =
                        format!("it is unhealthy ({why}), but too few others are healthy{rest}");
                }
                endpoint.reason.push_str(&slow_start(active, addr, self.basis));
                continue;
            }
            endpoint.used = false;
            endpoint.reason = if let Some(why) = &endpoint.unhealthy {
                format!("it is unhealthy ({why}), and others are not")
            } else if routed(addr) {
                no_share(active, addr)
            } else {
                "it would be used, but the table in force does not have it".to_owned()
            };
        }
        endpoints
    }
}

/// Whether the client can only reach unhealthy endpoints.
pub(super) fn failing(view: &ExplainView) -> bool {
    let meets = |it: &&ExplainedEndpoint| match &view.endpoint {
        Some(endpoint) => it.address == *endpoint,
        None => it.used,
    };
    let mut met = view.endpoints.iter().filter(meets).peekable();
    met.peek().is_some() && met.all(|endpoint| endpoint.unhealthy.is_some())
}

/// Sentence about candidates that get no traffic.
pub(super) fn left_out(route: &Route, endpoints: &[ExplainedEndpoint]) -> Option<String> {
    let may = route.candidates().len();
    let used = endpoints.iter().filter(|endpoint| endpoint.used).count();
    match may.saturating_sub(used) {
        0 => None,
        1 => Some("1 of them gets nothing new at present".to_owned()),
        left => Some(format!("{left} of them get nothing new at present")),
    }
}

/// Reason for being unhealthy, if the endpoint is.
fn unhealthy(active: Option<&ActiveFrontend>, addr: EndpointAddr, basis: Basis<'_>) -> Option<String> {
    let health = basis.active.health().of(&active?.spec().service)?;
    health.reason(addr).map(ToString::to_string)
}

/// Reason why a healthy candidate gets no traffic.
fn no_share(active: Option<&ActiveFrontend>, addr: EndpointAddr) -> String {
    let Some(spec) = active.map(ActiveFrontend::spec) else { return String::new() };
    if spec.failover.is_none() {
        return "its weight is 0, and others have more".to_owned();
    }
    let has_it = |backend: &&Backend| backend.endpoints.iter().any(|endpoint| endpoint.addr == addr);
    let Some(backend) = spec.backends.iter().find(has_it) else { return String::new() };
    if backend.weight.0 == 0 {
        format!("cluster {} has weight 0, and others have more", backend.cluster)
    } else {
        let (cluster, priority) = (&backend.cluster, backend.priority);
        format!("clusters that come before {cluster}, of priority {priority}, carry all of the traffic")
    }
}

/// Addition to the reason of a used endpoint in slow start.
fn slow_start(active: Option<&ActiveFrontend>, addr: EndpointAddr, basis: Basis<'_>) -> String {
    let algorithm = active.map(ActiveFrontend::algorithm).filter(|algorithm| *algorithm != Algorithm::Maglev);
    let service = active.filter(|_| algorithm.is_some()).map(|active| &active.spec().service);
    let parts = service.and_then(|service| basis.active.health().of(service)?.slow_start(addr));
    parts
        .map(|parts| format!("; it starts slowly, with {parts}/{FULL_SHARE} of its share"))
        .unwrap_or_default()
}

/// Shares of endpoints in percent, if the health of several clusters decides.
fn shares(active: &ActiveFrontend, origin: Origin) -> BTreeMap<EndpointAddr, u8> {
    if active.spec().failover.is_none() {
        return BTreeMap::new();
    }
    let (addrs, parts): (Vec<EndpointAddr>, Vec<u64>) = active.shares(origin).unzip();
    addrs.into_iter().zip(percent::of_parts(&parts)).collect()
}
