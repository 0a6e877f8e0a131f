//! Health of a Service for new clients. This is the only definition; conditions, listings, the status page and metrics use it.
//!
//! The controller evaluates it for the nodes of all gateways, from objects alone. A gateway evaluates it for its own clients, and
//! adds what only it knows: where it cannot listen, and which endpoints fail.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sheave_model::{
    Backend, Endpoint, EndpointState, Frontend, FrontendSource, PartTarget, RefusedPart, Route, ServerNames,
    Share, Split, SplitPart,
};

/// State of a Service, from worst to best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceState {
    /// No new client gets an answer.
    Broken,
    /// Some clients get no answer, or something else is wrong.
    Degraded,
    /// Everything works.
    #[default]
    #[serde(rename = "ok")]
    Serving,
}

impl ServiceState {
    /// The state as it is written.
    pub fn text(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Degraded => "degraded",
            Self::Serving => "ok",
        }
    }
}

/// Reason why new clients of a frontend get no answer, or why it has less capacity than it should. Displays as the text after a
/// colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The gateway accepts nothing there, for this reason.
    Closed(String),
    /// The source ranges admit no client.
    AdmitsNobody,
    /// No endpoint serves, out of this many.
    NoEndpoint(usize),
    /// External clients only get endpoints on the gateway's own node, and no gateway runs on a node with an endpoint.
    NoLocalEndpoint,
    /// Like `NoLocalEndpoint`, for the gateways that may have the address: other Services with `Local` that share it take
    /// precedence.
    NoCommonNode,
    /// Endpoints serve, but none may be selected.
    NoneChosen,
    /// Some of the serving endpoints fail.
    Unhealthy {
        /// Number of failing endpoints.
        failing: usize,
        /// Number of serving endpoints.
        serving: usize,
        /// Address of a failing endpoint, and the reason.
        first: Option<String>,
    },
    /// Every serving endpoint is terminating.
    OnlyTerminating,
    /// A cluster has no serving endpoint, and others have.
    EmptyCluster(Arc<str>),
    /// No route is attached to the listener of a Gateway.
    NoRoute,
    /// No backend of the listener's route has a weight.
    NoWeight,
    /// None of several backends of the route serves; the first of them.
    NoBackend(RefusedBackend),
    /// Some backends of the route serve, but others refuse their share.
    RefusedShare {
        /// Share of new connections that is refused.
        share: Share,
        /// The first backend that refuses.
        first: RefusedBackend,
    },
    /// Some server names of a TLS listener lead to routes that serve, others do not; the first of these routes.
    RefusedNames {
        /// Number of routes that do not serve.
        refused: usize,
        /// Number of routes.
        routes: usize,
        /// Name of the first, such as `TLSRoute shop/web`.
        first: Arc<str>,
        /// Why it does not.
        why: Box<Fault>,
    },
    /// This many routes are attached to the listener without getting its traffic, since another one is older.
    Superseded(u32),
}

/// Backend of a route that refuses its share of new connections. Displays as `backend: reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBackend {
    /// Name of the part, such as `Service shop/web:80`.
    pub backend: Arc<str>,
    /// Why it refuses.
    pub why: Box<RefusalReason>,
}

/// Why a backend refuses its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The reference cannot be served.
    Invalid(RefusedPart),
    /// No endpoint can be chosen.
    Broken(Fault),
}

impl fmt::Display for RefusedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.why {
            RefusalReason::Invalid(reason) => write!(f, "{}: {}", self.backend, reason.name()),
            RefusalReason::Broken(fault) => write!(f, "{}: {fault}", self.backend),
        }
    }
}

impl Fault {
    /// The state of a frontend with this fault.
    pub fn state(&self) -> ServiceState {
        match self {
            Self::Closed(_)
            | Self::AdmitsNobody
            | Self::NoEndpoint(_)
            | Self::NoLocalEndpoint
            | Self::NoCommonNode
            | Self::NoneChosen
            | Self::NoRoute
            | Self::NoWeight
            | Self::NoBackend(_) => ServiceState::Broken,
            Self::Unhealthy { failing, serving, .. } if failing >= serving => ServiceState::Broken,
            Self::Unhealthy { .. }
            | Self::OnlyTerminating
            | Self::EmptyCluster(_)
            | Self::RefusedShare { .. }
            | Self::RefusedNames { .. }
            | Self::Superseded(_) => ServiceState::Degraded,
        }
    }

    /// Whether it follows from the spec of a route, which has a Problem for it.
    pub fn is_of_route(&self) -> bool {
        match self {
            Self::NoWeight | Self::Superseded(_) => true,
            Self::NoBackend(first) | Self::RefusedShare { first, .. } => {
                matches!(*first.why, RefusalReason::Invalid(_))
            }
            Self::RefusedNames { why, .. } => why.is_of_route(),
            _ => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(why) => f.write_str(why),
            Self::AdmitsNobody => f.write_str("its source ranges admit nobody"),
            Self::NoEndpoint(0) => f.write_str("it has no endpoints for this port"),
            Self::NoEndpoint(1) => f.write_str("its only endpoint is not ready"),
            Self::NoEndpoint(all) => write!(f, "none of its {all} endpoints is ready"),
            Self::NoLocalEndpoint => {
                f.write_str("externalTrafficPolicy is Local and no gateway runs on a node with an endpoint")
            }
            Self::NoCommonNode => f.write_str(
                "externalTrafficPolicy is Local and no gateway with the address, which is shared, runs on a node with an endpoint",
            ),
            Self::NoneChosen => f.write_str("no endpoint may be used"),
            Self::Unhealthy { failing, serving, first } => {
                match (failing, serving) {
                    (1, 1) => f.write_str("its only endpoint is unhealthy")?,
                    (1, _) => write!(f, "1 of {serving} endpoints is unhealthy")?,
                    _ if failing == serving => write!(f, "all {serving} endpoints are unhealthy")?,
                    _ => write!(f, "{failing} of {serving} endpoints are unhealthy")?,
                }
                first.iter().try_for_each(|first| write!(f, "; {first}"))
            }
            Self::OnlyTerminating => f.write_str("every endpoint that is left terminates"),
            Self::EmptyCluster(cluster) => write!(f, "no endpoint of cluster {cluster} is ready"),
            Self::NoRoute => f.write_str("no route is attached to the listener"),
            Self::NoWeight => f.write_str("no backend of its route has a weight"),
            Self::NoBackend(first) => write!(f, "no backend of its route serves; {first}"),
            Self::RefusedShare { share, first } => {
                write!(f, "{share} of new connections are refused; {first}")
            }
            Self::RefusedNames { refused, routes, first, why } => {
                write!(f, "{refused} of {routes} routes do not serve their server names; {first}: {why}")
            }
            Self::Superseded(1) => f.write_str("another route is attached and gets nothing: this one is older"),
            Self::Superseded(others) => {
                write!(f, "{others} other routes are attached and get nothing: this one is older")
            }
        }
    }
}

/// Gateways that clients may reach.
#[derive(Clone, Copy, Debug)]
pub enum GatewayScope<'a> {
    /// This gateway. What `Local` reserves for other gateways is no fault, because they serve it.
    This,
    /// The gateways of a cluster.
    Of {
        /// Name of the cluster. Other clusters may have nodes with the same names.
        cluster: &'a str,
        /// Nodes of the gateways; empty means any node.
        nodes: &'a BTreeSet<Arc<str>>,
    },
}

/// Facts about a frontend that only a gateway knows.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Reason why it accepts nothing there.
    pub closed: Option<String>,
    /// Number of endpoints that serve according to their slices, but fail.
    pub failing: usize,
    /// Reason of one of them.
    pub first_failing: Option<String>,
    /// Whether it selected no endpoint for new traffic, for whatever reason.
    pub none_chosen: bool,
}

impl Live {
    /// The faults that follow for a frontend with several pools, which share them.
    fn faults<'a>(self, pools: impl Iterator<Item = &'a Frontend>) -> impl Iterator<Item = Fault> {
        let unhealthy = (self.failing > 0).then(|| Fault::Unhealthy {
            failing: self.failing,
            serving: pools.map(serving).sum(),
            first: self.first_failing,
        });
        self.none_chosen.then_some(Fault::NoneChosen).into_iter().chain(unhealthy)
    }
}

/// The worst fault of a frontend for external clients; `None` if it serves.
pub fn fault_of(frontend: &Frontend, gateways: GatewayScope<'_>, live: Live) -> Option<Fault> {
    if let Some(why) = live.closed {
        return Some(Fault::Closed(why));
    }
    if frontend.source_ranges.allowed().is_empty() {
        return Some(Fault::AdmitsNobody);
    }
    if let Some(names) = &frontend.server_names {
        return fault_of_names(names, gateways, live);
    }
    match &frontend.split {
        Some(split) => fault_of_split(split, gateways, live),
        None if frontend.service.source == FrontendSource::Gateway => Some(Fault::NoRoute),
        None => fault_of_endpoints(frontend, gateways, live),
    }
}

/// The worst fault of the endpoints of a frontend that is not split.
fn fault_of_endpoints(frontend: &Frontend, gateways: GatewayScope<'_>, live: Live) -> Option<Fault> {
    let serving = serving(frontend);
    if serving == 0 {
        let listed = frontend.backends.iter().map(|backend| backend.capacity as usize).sum();
        return Some(Fault::NoEndpoint(listed));
    }
    let mut used = used(frontend, gateways).peekable();
    match gateways {
        GatewayScope::This if matches!(frontend.external, Route::Drop) && used.peek().is_none() => {
            return None;
        }
        GatewayScope::Of { .. } if used.peek().is_none() => return Some(Fault::NoLocalEndpoint),
        GatewayScope::This | GatewayScope::Of { .. } => {}
    }
    let mut open = used.filter(|(backend, _)| !backend.closed).peekable();
    if open.peek().is_none() || live.none_chosen {
        return Some(Fault::NoneChosen);
    }
    if live.failing > 0 {
        let (failing, first) = (live.failing, live.first_failing);
        return Some(Fault::Unhealthy { failing, serving, first });
    }
    if open.all(|(_, endpoint)| endpoint.state == EndpointState::Terminating) {
        return Some(Fault::OnlyTerminating);
    }
    let mut empty = frontend.backends.iter().filter(|backend| backend.endpoints.is_empty());
    empty.next().map(|backend| Fault::EmptyCluster(Arc::clone(&backend.cluster)))
}

/// The worst fault of a split: each weighted part serves or refuses its share, and a fault of endpoints concerns all of them.
fn fault_of_split(split: &Split, gateways: GatewayScope<'_>, live: Live) -> Option<Fault> {
    let weighted: Vec<&SplitPart> = split.parts.iter().filter(|part| part.weight > 0).collect();
    if weighted.is_empty() {
        return Some(Fault::NoWeight);
    }
    let mut refused = Vec::new();
    let mut faults = Vec::new();
    for part in &weighted {
        match &part.target {
            PartTarget::Refused(reason) => refused.push((*part, RefusalReason::Invalid(*reason))),
            PartTarget::Pool(pool) => match fault_of_endpoints(pool, gateways, Live::default()) {
                Some(fault) if fault.state() == ServiceState::Broken => {
                    refused.push((*part, RefusalReason::Broken(fault)));
                }
                fault => faults.extend(fault),
            },
        }
    }
    let none_serves = refused.len() == weighted.len();
    let weight = refused.iter().map(|(part, _)| u64::from(part.weight)).sum();
    let first = refused.into_iter().next().map(|(part, why)| {
        // What is wrong with the only backend is wrong with the whole.
        match (why, &*weighted) {
            (RefusalReason::Broken(fault), [_]) => fault,
            (why, _) => {
                let first = RefusedBackend { backend: Arc::clone(&part.name), why: Box::new(why) };
                let share = split.share(weight);
                if none_serves { Fault::NoBackend(first) } else { Fault::RefusedShare { share, first } }
            }
        }
    });
    let live = live.faults(split.open_pools());
    let superseded = (split.superseded > 0).then_some(Fault::Superseded(split.superseded));
    let all = first.into_iter().chain(live).chain(faults).chain(superseded);
    all.min_by_key(Fault::state)
}

/// The worst fault of the routes that server names lead to. What is wrong with all of them is wrong with the whole.
fn fault_of_names(names: &ServerNames, gateways: GatewayScope<'_>, live: Live) -> Option<Fault> {
    let [targets @ .., last] = names.targets() else { return Some(Fault::NoRoute) };
    let of = |target: &Frontend, live: Live| fault_of_split(target.split.as_ref()?, gateways, live);
    if targets.is_empty() {
        return of(last, live);
    }
    let found = names.targets().iter().map(|target| (target, of(target, Live::default())));
    let faulty: Vec<(&Arc<Frontend>, Fault)> = found.filter_map(|(it, fault)| Some((it, fault?))).collect();
    let broken = || faulty.iter().filter(|(_, fault)| fault.state() == ServiceState::Broken);
    let first = broken().next().map(|(target, why)| (target.split.as_ref(), why));
    let routes = names.targets().len();
    let refused = match (broken().count(), first) {
        (refused, Some((_, why))) if refused == routes => Some(why.clone()),
        (refused, Some((Some(split), why))) => {
            let (first, why) = (Arc::clone(&split.route), Box::new(why.clone()));
            Some(Fault::RefusedNames { refused, routes, first, why })
        }
        _ => None,
    };
    let live = live.faults(names.targets().iter().flat_map(|target| target.open_pools()));
    let lesser = faulty.iter().map(|(_, fault)| fault).find(|fault| fault.state() != ServiceState::Broken);
    let all = refused.into_iter().chain(live).chain(lesser.cloned());
    all.min_by_key(Fault::state)
}

/// Number of endpoints that serve.
fn serving(frontend: &Frontend) -> usize {
    frontend.backends.iter().map(|backend| backend.endpoints.len()).sum()
}

/// Serving endpoints that the policy permits to these gateways, each with its backend.
fn used<'f>(
    frontend: &'f Frontend,
    gateways: GatewayScope<'f>,
) -> impl Iterator<Item = (&'f Backend, &'f Endpoint)> {
    let is_local = move |cluster: &str, endpoint: &Endpoint| match gateways {
        GatewayScope::This => endpoint.local,
        GatewayScope::Of { nodes, .. } if nodes.is_empty() => true,
        GatewayScope::Of { cluster: own, nodes } => cluster == own && nodes.contains(&endpoint.node),
    };
    frontend.backends.iter().flat_map(move |backend| {
        let may = move |endpoint: &&Endpoint| !frontend.node_local || is_local(&backend.cluster, endpoint);
        backend.endpoints.iter().filter(may).map(move |endpoint| (backend, endpoint))
    })
}

/// Health of a Service: its state, and the frontend that explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHealth {
    /// State of the Service as a whole.
    pub state: ServiceState,
    /// Index of the worst frontend: of those with the worst state, the first with the fewest healthy endpoints. `None` without
    /// frontends.
    pub worst: Option<usize>,
}

impl ServiceHealth {
    /// Combines the frontends of a Service, each with its fault and the number of its healthy endpoints. A Service without frontends
    /// is broken. A Problem degrades a Service that serves: what the user asked for is not done.
    pub fn new<'f>(
        frontends: impl IntoIterator<Item = (Option<&'f Fault>, usize)>,
        has_problem: bool,
    ) -> Self {
        let rank = |(fault, healthy): (Option<&Fault>, usize)| {
            (fault.map_or(ServiceState::Serving, Fault::state), healthy)
        };
        let ranks: Vec<(ServiceState, usize)> = frontends.into_iter().map(rank).collect();
        let states = || ranks.iter().map(|(state, _)| *state);
        let state = match (states().min(), states().max()) {
            // Only if all frontends are broken.
            (None, _) | (_, Some(ServiceState::Broken)) => ServiceState::Broken,
            (Some(ServiceState::Serving), _) if !has_problem => ServiceState::Serving,
            _ => ServiceState::Degraded,
        };
        let worst = ranks.iter().enumerate().min_by_key(|(_, rank)| **rank).map(|(index, _)| index);
        Self { state, worst }
    }
}

#[cfg(test)]
mod tests;
