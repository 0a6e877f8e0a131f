//! Status that the controller would write for objects of the Gateway API.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sheave_control::api::condition::DesiredCondition;
use sheave_control::api::gateway_api::{ParentReference, RouteKey, RouteKind};
use sheave_control::api::objects::Objects;
use sheave_control::api::routes::AnyRoute;
use sheave_control::api::service_key::ServiceKey;
use sheave_control::projection::Projector;
use sheave_control::projection::gateway_api::conditions::{ListenerConditions, LiveState};
use sheave_control::projection::gateway_api::outcome::{GatewayOutcome, RouteParent};
use sheave_control::projection::gateway_api::{SUPPORTED_FEATURES, class_accepted};
use sheave_model::FrontendAddr;

/// Status of a GatewayClass, Gateway, ListenerSet, of one of its listeners, or of a route at one of its parents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayApiStatusView {
    /// Kind and name, such as `Gateway shop/web`.
    pub object: String,
    /// Name of the listener, in the entry of a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// The parent, in the entry of a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_ref: Option<ParentReference>,
    /// Generation of the object that the conditions are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions.
    pub conditions: Vec<ConditionView>,
    /// Addresses of a Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<String>>,
    /// Number of ListenerSets that are attached to a Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_listener_sets: Option<usize>,
    /// Kinds of routes that can attach to a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supported_kinds: Option<Vec<String>>,
    /// Number of routes that are attached to a listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_routes: Option<u32>,
    /// Features of a GatewayClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supported_features: Option<Vec<String>>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionView {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// A CamelCase token.
    pub reason: String,
    /// Message for users.
    pub message: String,
}

impl From<&DesiredCondition> for ConditionView {
    fn from(condition: &DesiredCondition) -> Self {
        Self {
            kind: condition.kind.to_owned(),
            status: condition.status().to_owned(),
            reason: condition.reason.to_owned(),
            message: condition.message.clone(),
        }
    }
}

impl GatewayApiStatusView {
    /// The entries of all objects that this installation implements.
    pub(super) fn all(
        projector: &Projector,
        objects: &Objects,
        failed: &BTreeSet<FrontendAddr>,
    ) -> Vec<Self> {
        let mut entries = Self::classes(projector, objects);
        let mut routes: BTreeSet<&RouteKey> = BTreeSet::new();
        for (key, outcome) in projector.gateways() {
            routes.extend(outcome.routes.keys());
            entries.extend(Self::gateway(projector, objects, failed, (key, outcome)));
        }
        for key in routes {
            let Some(route) = objects.gateway_api.route(key) else { continue };
            let parents = projector.route_parents(&route, objects);
            entries.extend(parents.into_iter().map(|parent| Self::route(key, &route, parent)));
        }
        entries
    }

    fn new<'a>(
        object: String,
        generation: Option<i64>,
        conditions: impl IntoIterator<Item = &'a DesiredCondition>,
    ) -> Self {
        let conditions = conditions.into_iter().map(ConditionView::from).collect();
        Self { object, observed_generation: generation, conditions, ..Self::default() }
    }

    fn classes(projector: &Projector, objects: &Objects) -> Vec<Self> {
        let ours = objects.gateway_api.classes.iter().filter(|(_, class)| projector.implements(class));
        let entries = ours.map(|(name, class)| Self {
            supported_features: Some(SUPPORTED_FEATURES.map(str::to_owned).to_vec()),
            ..Self::new(format!("GatewayClass {name}"), class.metadata.generation, [&class_accepted(class)])
        });
        entries.collect()
    }

    fn gateway(
        projector: &Projector,
        objects: &Objects,
        failed: &BTreeSet<FrontendAddr>,
        (key, outcome): (&ServiceKey, &GatewayOutcome),
    ) -> Vec<Self> {
        let (Some(status), Some(gateway)) = (projector.status(key), objects.gateway_api.gateways.get(key))
        else {
            return Vec::new();
        };
        let problems = projector.problems_of(key);
        // One gateway does not know of the others.
        let closed = &BTreeSet::new();
        let live = LiveState { status, problems: &problems, nodes: true, unaware: None, failed, closed };
        let found = outcome.conditions(&live);
        let object = key.object().to_string();
        let mut entries = vec![Self {
            addresses: Some(found.addresses.iter().map(ToString::to_string).collect()),
            attached_listener_sets: Some(found.attached_sets),
            ..Self::new(object.clone(), gateway.metadata.generation, &found.gateway)
        }];
        let listener = |object: &str, generation, it| Self::listener(object.to_owned(), generation, it);
        entries.extend(found.listeners.iter().map(|it| listener(&object, gateway.metadata.generation, it)));
        for (set, conditions, listeners) in &found.sets {
            let known = objects.gateway_api.listener_sets.get(set);
            let generation = known.and_then(|known| known.metadata.generation);
            let object = format!("ListenerSet {}/{}", set.0, set.1);
            entries.push(Self::new(object.clone(), generation, conditions));
            entries.extend(listeners.iter().map(|it| listener(&object, generation, it)));
        }
        entries
    }

    fn listener(object: String, generation: Option<i64>, listener: &ListenerConditions) -> Self {
        let kinds = listener.supported_kinds.iter().map(|kind: &RouteKind| kind.name().to_owned());
        Self {
            listener: Some(listener.name.clone()),
            supported_kinds: Some(kinds.collect()),
            attached_routes: Some(listener.attached_routes),
            ..Self::new(object, generation, &listener.conditions)
        }
    }

    fn route(key: &RouteKey, route: &AnyRoute, parent: &RouteParent) -> Self {
        Self {
            parent_ref: Some(parent.reference.clone()),
            ..Self::new(key.to_string(), route.metadata().generation, parent.conditions())
        }
    }
}
