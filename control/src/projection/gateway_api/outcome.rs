//! Decisions of the specs of a Gateway, its ListenerSets and its routes, as values. The state of addresses and gateway nodes is added
//! in [`conditions`](super::conditions).

use std::collections::BTreeMap;

use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{ParentReference, RouteKey, RouteKind};
use crate::api::objects::ObjectKey;

/// Condition of a route parent: whether traffic goes to the route.
pub const SERVING: &str = "sheave.dev/Serving";
/// Reason of [`SERVING`]: an older route serves.
pub const SUPERSEDED: &str = "Superseded";
/// Reason of [`SERVING`]: no backend with a weight is valid.
pub const NO_VALID_BACKEND: &str = "NoValidBackend";

/// Decisions about a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayOutcome {
    /// Why the Gateway as a whole is not accepted; `None` if its listeners decide.
    pub refused: Option<DesiredCondition>,
    /// Its own listeners, in the order of the spec.
    pub listeners: Vec<ListenerOutcome>,
    /// ListenerSets that name it.
    pub sets: BTreeMap<ObjectKey, ListenerSetOutcome>,
    /// Routes that name it or one of the ListenerSets, each with its parentRefs to them.
    pub routes: BTreeMap<RouteKey, Vec<RouteParent>>,
    /// Values of `spec.addresses` that are no addresses, with the reason.
    pub unusable: Vec<String>,
}

/// Decisions about a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerOutcome {
    /// Name, as in the spec.
    pub name: String,
    /// Port, as in the spec.
    pub port: i32,
    /// Protocol, as in the spec.
    pub protocol: String,
    /// Kinds of routes that can attach.
    pub supported_kinds: Vec<RouteKind>,
    /// Number of attached routes.
    pub attached_routes: u32,
    /// `Accepted`, as far as the specs decide.
    pub accepted: DesiredCondition,
    /// `Conflicted`.
    pub conflicted: DesiredCondition,
    /// `ResolvedRefs`.
    pub resolved_refs: DesiredCondition,
    /// The route that gets its traffic.
    pub route: Option<RouteKey>,
}

/// Decisions about a ListenerSet.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSetOutcome {
    /// Whether the Gateway admits it.
    pub allowed: bool,
    /// Its listeners, in the order of the spec.
    pub listeners: Vec<ListenerOutcome>,
}

/// State of a route at one of its parents.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteParent {
    /// The parentRef, as in the spec.
    pub reference: ParentReference,
    /// `Accepted`.
    pub accepted: DesiredCondition,
    /// `ResolvedRefs`.
    pub resolved_refs: DesiredCondition,
    /// `sheave.dev/Serving`, where it is accepted.
    pub serving: Option<DesiredCondition>,
}

impl RouteParent {
    /// Its conditions.
    pub fn conditions(&self) -> impl Iterator<Item = &DesiredCondition> {
        [&self.accepted, &self.resolved_refs].into_iter().chain(&self.serving)
    }
}
