//! Who decides which load balancer addresses a Service has, and, for the controller, which Nodes have a gateway.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::api::store::{Objects, ServiceKey, is_ready};

/// Who decides about load balancer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nobody else does: what the status publishes, else pools, else the node's own.
    Alone,
    /// The controller has decided: what the status publishes.
    Published,
    /// This is the controller: pools decide, and the status says what they gave before.
    Managed {
        /// The headless Service whose endpoints are the gateways.
        gateways: ServiceKey,
        /// The Node of a gateway that runs in this process, and so needs no endpoint.
        own_gateway: Option<Arc<str>>,
    },
}

impl Placement {
    /// The Nodes with a ready gateway, as far as the controller needs them.
    pub(super) fn gateway_nodes(&self, objects: &Objects) -> BTreeSet<Arc<str>> {
        match self {
            Self::Alone | Self::Published => BTreeSet::new(),
            Self::Managed { gateways, own_gateway } => {
                let slices = objects.slices.get(gateways).into_iter().flat_map(|all| all.values());
                let mut nodes = nodes_of(slices, is_ready);
                nodes.extend(own_gateway.clone());
                nodes
            }
        }
    }

    /// Whether a change of these Services or their slices may be one of the gateways.
    pub(super) fn depends_on(&self, changed: &BTreeSet<ServiceKey>) -> bool {
        matches!(self, Self::Managed { gateways, .. } if changed.contains(gateways))
    }
}

/// The Nodes with an endpoint that gets traffic under the policy `Local`: ready, or, in case none is, serving while it
/// terminates.
pub(super) fn nodes_with_local<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
) -> BTreeSet<Arc<str>> {
    nodes_of(slices, |endpoint| {
        let conditions = endpoint.conditions.as_ref();
        let serving = conditions.and_then(|it| it.serving).unwrap_or_else(|| is_ready(endpoint));
        let terminating = conditions.and_then(|it| it.terminating).unwrap_or(false);
        is_ready(endpoint) || (serving && terminating)
    })
}

fn nodes_of<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    counts: impl Fn(&Endpoint) -> bool,
) -> BTreeSet<Arc<str>> {
    let endpoints = slices.flat_map(|slice| slice.endpoints.iter().flatten());
    endpoints
        .filter(|endpoint| counts(endpoint))
        .filter_map(|endpoint| endpoint.node_name.as_deref().map(Arc::from))
        .collect()
}
