//! How a Service is for new clients: the one definition, by which conditions, listings, the status page and metrics go.
//!
//! The controller judges by the nodes of all gateways and by the objects alone. A gateway judges for the clients who come to it, and
//! adds what it alone knows: where it cannot listen, and which endpoints fail.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sheave_model::{Endpoint, EndpointState, Frontend, Route};

/// How a Service is. The worst comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceState {
    /// No new client gets an answer.
    Broken,
    /// Something is wrong, and some clients get an answer.
    Degraded,
    /// All is well.
    #[default]
    #[serde(rename = "ok")]
    Serving,
}

/// What keeps new clients of a frontend from an answer, or leaves it with less than it should have. Prints as it stands behind a
/// colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The gateway accepts nothing there, for this reason.
    Closed(String),
    /// The source ranges admit nobody.
    AdmitsNobody,
    /// No endpoint serves, out of so many.
    NoEndpoint(usize),
    /// Clients from outside get endpoints on the gateway's own node alone, and no gateway runs on the node of one.
    NoLocalEndpoint,
    /// As `NoLocalEndpoint`, of the gateways that may have the address: others under `Local`, which share it, come first.
    NoCommonNode,
    /// Endpoints serve, but none may be chosen.
    NoneChosen,
    /// So many endpoints fail, out of those that serve; what the first of them says.
    Unhealthy {
        /// Those that fail.
        failing: usize,
        /// Those that serve.
        serving: usize,
        /// Of one that fails: its address, and why.
        first: Option<String>,
    },
    /// Every endpoint that serves is about to go.
    OnlyTerminating,
    /// A cluster has no endpoint that serves, and others have.
    EmptyCluster(Arc<str>),
}

impl Fault {
    /// The state of a frontend that has it.
    pub fn state(&self) -> ServiceState {
        match self {
            Self::Closed(_)
            | Self::AdmitsNobody
            | Self::NoEndpoint(_)
            | Self::NoLocalEndpoint
            | Self::NoCommonNode
            | Self::NoneChosen => ServiceState::Broken,
            Self::Unhealthy { failing, serving, .. } if failing >= serving => ServiceState::Broken,
            Self::Unhealthy { .. } | Self::OnlyTerminating | Self::EmptyCluster(_) => ServiceState::Degraded,
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
        }
    }
}

/// Which gateways the clients may come to.
#[derive(Clone, Copy, Debug)]
pub enum GatewayScope<'a> {
    /// This one. What `Local` keeps for other gateways is no fault: they serve it.
    This,
    /// Those of a cluster.
    Of {
        /// The cluster, whose nodes these are: other clusters may have nodes of the same names.
        cluster: &'a str,
        /// The nodes that they run on; where none is known, any.
        nodes: &'a BTreeSet<Arc<str>>,
    },
}

/// What a gateway knows of a frontend beside the objects.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Why it accepts nothing there.
    pub closed: Option<String>,
    /// Endpoints that serve by their slices, and fail.
    pub failing: usize,
    /// What one of them says.
    pub first_failing: Option<String>,
    /// It has chosen none that may get new traffic, for whatever reason.
    pub none_chosen: bool,
}

/// The worst that is wrong with a frontend for clients outside the cluster; none if it serves.
pub fn fault_of(frontend: &Frontend, gateways: GatewayScope<'_>, live: Live) -> Option<Fault> {
    if let Some(why) = live.closed {
        return Some(Fault::Closed(why));
    }
    if frontend.source_ranges.allowed().is_empty() {
        return Some(Fault::AdmitsNobody);
    }
    let serving: usize = frontend.backends.iter().map(|backend| backend.endpoints.len()).sum();
    if serving == 0 {
        let listed = frontend.backends.iter().map(|backend| backend.capacity as usize).sum();
        return Some(Fault::NoEndpoint(listed));
    }
    let mut used = used(frontend, gateways).peekable();
    match gateways {
        GatewayScope::This if matches!(frontend.external, Route::Drop) => return None,
        GatewayScope::Of { .. } if used.peek().is_none() => return Some(Fault::NoLocalEndpoint),
        // The route of Local is that of one node.
        GatewayScope::Of { .. } if !frontend.node_local && frontend.external.candidates().is_empty() => {
            return Some(Fault::NoneChosen);
        }
        GatewayScope::This | GatewayScope::Of { .. } => {}
    }
    if live.none_chosen {
        return Some(Fault::NoneChosen);
    }
    if live.failing > 0 {
        let (failing, first) = (live.failing, live.first_failing);
        return Some(Fault::Unhealthy { failing, serving, first });
    }
    if used.all(|endpoint| endpoint.state == EndpointState::Terminating) {
        return Some(Fault::OnlyTerminating);
    }
    let mut empty = frontend.backends.iter().filter(|backend| backend.endpoints.is_empty());
    empty.next().map(|backend| Fault::EmptyCluster(Arc::clone(&backend.cluster)))
}

/// The endpoints that serve and that the policy lets these gateways use.
fn used<'f>(frontend: &'f Frontend, gateways: GatewayScope<'f>) -> impl Iterator<Item = &'f Endpoint> {
    let is_local = move |cluster: &str, endpoint: &Endpoint| match gateways {
        GatewayScope::This => endpoint.local,
        GatewayScope::Of { nodes, .. } if nodes.is_empty() => true,
        GatewayScope::Of { cluster: own, nodes } => cluster == own && nodes.contains(&endpoint.node),
    };
    frontend.backends.iter().flat_map(move |backend| {
        let may = move |endpoint: &&Endpoint| !frontend.node_local || is_local(&backend.cluster, endpoint);
        backend.endpoints.iter().filter(may)
    })
}

/// The state of a Service with these frontends: broken only if all are.
pub fn state_of(frontends: impl IntoIterator<Item = ServiceState>) -> ServiceState {
    let mut states: Vec<ServiceState> = frontends.into_iter().collect();
    states.sort_unstable();
    match (states.first(), states.last()) {
        (Some(ServiceState::Broken), Some(ServiceState::Broken)) | (None, _) => ServiceState::Broken,
        (Some(ServiceState::Broken | ServiceState::Degraded), _) => ServiceState::Degraded,
        (Some(ServiceState::Serving), _) => ServiceState::Serving,
    }
}
