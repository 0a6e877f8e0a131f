//! A Gateway with everything that refers to it, resolved: merged listeners, attached routes, their backends, and the routes that serve
//! each listener.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::attachment::{Attachment, admits_set, attachments};
use super::backend_refs::{self, ResolvedRef};
use super::conditions::ACCEPTED;
use super::listener_outcome;
use super::listeners::{self, ListenerOwner, MergedListener};
use super::outcome::{GatewayOutcome, ListenerSetOutcome};
use super::route_outcome;
use super::server_names::PortNames;
use super::serving::Serving;
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{Gateway, GatewayAddress, ListenerSet};
use crate::api::kinds::object_key;
use crate::api::objects::{ObjectKey, Objects};
use crate::api::service_key::ServiceKey;

/// A resolved Gateway.
pub(super) struct Resolution<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    /// ListenerSets that are attached, the oldest first.
    pub(super) sets: Vec<&'a Arc<ListenerSet>>,
    /// The same by key.
    sets_by_key: BTreeMap<ObjectKey, &'a Arc<ListenerSet>>,
    /// Listeners of the Gateway and of the attached ListenerSets.
    pub(super) merged: Vec<MergedListener<'a>>,
    /// ListenerSets that are not attached, with whether the Gateway would admit them, and their listeners.
    unattached: Vec<(ObjectKey, bool, Vec<MergedListener<'a>>)>,
    /// Why the Gateway as a whole is not accepted.
    refused: Option<DesiredCondition>,
    /// Whether the Gateway is accepted, as far as the specs decide. Otherwise nothing is served.
    pub(super) is_accepted: bool,
    /// Routes that name the Gateway or a ListenerSet, sorted by key.
    pub(super) routes: Vec<Attachment>,
    /// Backends of each route.
    refs: Vec<Vec<ResolvedRef>>,
    /// The routes that serve each listener.
    serving: Serving,
    /// Number of routes that are attached to each listener that has any.
    attached: BTreeMap<usize, u32>,
}

impl<'a> Resolution<'a> {
    pub(super) fn new(key: &ServiceKey, gateway: &'a Arc<Gateway>, objects: &'a Objects) -> Self {
        let allowed = gateway.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        let admits = |set: &Arc<ListenerSet>| admits_set(allowed, key, &object_key(&set.metadata), objects);
        let refused = refusal(gateway, objects);
        let named = listeners::sets_of(key, &objects.gateway_api);
        // ListenerSets attach to an accepted Gateway alone, which has a valid listener of its own.
        let is_accepted =
            refused.is_none() && listeners::merge(gateway, &[]).iter().any(MergedListener::is_served);
        let (sets, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|set| is_accepted && admits(set));
        let merged = listeners::merge(gateway, &sets);
        let unattached: Vec<_> = others
            .iter()
            .map(|set| (object_key(&set.metadata), admits(set), listeners::alone(set)))
            .collect();
        let sets_by_key: BTreeMap<ObjectKey, _> =
            sets.iter().map(|set| (object_key(&set.metadata), *set)).collect();
        let attached = sets_by_key.keys().map(|set| (set.clone(), true));
        let known: BTreeMap<ObjectKey, bool> =
            attached.chain(unattached.iter().map(|(set, ..)| (set.clone(), false))).collect();
        let routes = attachments(key, &known, &merged, objects);
        let refs = routes.iter().map(|it| backend_refs::resolve(&it.key, &it.route, objects)).collect();
        let serving = if is_accepted { Serving::new(&merged, &routes) } else { Serving::default() };
        let mut attached = BTreeMap::<usize, u32>::new();
        for listener in routes.iter().flat_map(|route| &route.listeners) {
            *attached.entry(*listener).or_default() += 1;
        }
        Self {
            gateway,
            sets,
            sets_by_key,
            merged,
            unattached,
            refused,
            is_accepted,
            routes,
            refs,
            serving,
            attached,
        }
    }

    /// An attached ListenerSet.
    pub(super) fn set(&self, key: &ObjectKey) -> Option<&'a Arc<ListenerSet>> {
        self.sets_by_key.get(key).copied()
    }

    /// The backends of each route, in the order of [`Self::routes`].
    pub(super) fn refs(&self) -> impl Iterator<Item = (&Attachment, &[ResolvedRef])> {
        self.routes.iter().zip(self.refs.iter().map(Vec::as_slice))
    }

    /// Index of the route that serves a listener of TCP or UDP.
    pub(super) fn serving(&self, listener: usize) -> Option<usize> {
        self.serving.whole.get(&listener).copied()
    }

    /// Targets of the server names of the listener's port; `None` unless it is one of TLS.
    pub(super) fn names_at(&self, listener: usize) -> Option<&PortNames> {
        let listener = self.merged.get(listener).filter(|it| it.protocol.is_tls())?;
        self.serving.names.get(&listener.port?)
    }

    /// Index of the first listener of each socket: those of TLS with one port share it.
    pub(super) fn sockets(&self) -> Vec<usize> {
        let mut tls = BTreeSet::new();
        let mut is_first = |it: &MergedListener<'_>| !it.protocol.is_tls() || tls.insert(it.port);
        let served = self.merged.iter().enumerate().filter(|(_, listener)| listener.is_served());
        served.filter(|(_, listener)| is_first(listener)).map(|(at, _)| at).collect()
    }

    /// The route with this index, and its backends.
    pub(super) fn route(&self, at: usize) -> Option<(&Attachment, &[ResolvedRef])> {
        Some((self.routes.get(at)?, self.refs.get(at)?))
    }

    /// Number of routes that are attached to a listener.
    fn attached(&self, listener: usize) -> u32 {
        self.attached.get(&listener).copied().unwrap_or_default()
    }

    /// Number of routes that are attached to a listener of TCP or UDP, but do not serve it.
    pub(super) fn superseded(&self, listener: usize) -> u32 {
        self.serving(listener).map_or(0, |_| self.attached(listener) - 1)
    }

    /// The decisions that follow.
    pub(super) fn outcome(&self, unusable: Vec<String>) -> GatewayOutcome {
        let routes_of = |listener: usize| {
            let serving = self.serving(listener).and_then(|at| self.routes.get(at)).map(|it| it.key.clone());
            (self.attached(listener), serving)
        };
        let mut by_owner = listener_outcome::outcomes(&self.merged, routes_of);
        let listeners = by_owner.remove(&ListenerOwner::Gateway).unwrap_or_default();
        let attached = self.sets.iter().map(|set| {
            let key = object_key(&set.metadata);
            let listeners = by_owner.remove(&ListenerOwner::Set(key.clone())).unwrap_or_default();
            (key, ListenerSetOutcome { allowed: true, listeners })
        });
        let unattached = self.unattached.iter().map(|(key, allowed, alone)| {
            let listeners = listener_outcome::outcomes(alone, |_| (0, None)).into_values().flatten();
            (key.clone(), ListenerSetOutcome { allowed: *allowed, listeners: listeners.collect() })
        });
        let merged = if self.is_accepted { self.merged.as_slice() } else { &[] };
        let routes = self.routes.iter().zip(&self.refs).enumerate().map(|(at, (route, refs))| {
            let parents = route_outcome::parents((at, route), refs, merged, &self.serving);
            (route.key.clone(), parents)
        });
        GatewayOutcome {
            refused: self.refused.clone(),
            listeners,
            sets: attached.chain(unattached).collect(),
            routes: routes.collect(),
            unusable,
        }
    }
}

/// Why the Gateway as a whole is not accepted.
fn refusal(gateway: &Gateway, objects: &Objects) -> Option<DesiredCondition> {
    let class = objects.gateway_api.classes.get(gateway.spec.gateway_class_name.as_str());
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let no = |reason, message: &str| Some(DesiredCondition::no(ACCEPTED, reason, message.to_owned()));
    if infrastructure.is_some_and(|it| it.parameters_ref.is_some()) {
        return no(
            "InvalidParameters",
            "Parameters are not supported: remove spec.infrastructure.parametersRef.",
        );
    }
    if class.is_some_and(|class| class.spec.parameters_ref.is_some()) {
        return no("InvalidParameters", "Its GatewayClass has parameters, which are not supported.");
    }
    let mut types = gateway.spec.addresses.iter().filter_map(|address| address.type_.as_deref());
    if types.any(|name| name != GatewayAddress::IP_ADDRESS) {
        return no("UnsupportedAddress", "Only addresses of type IPAddress are supported in spec.addresses.");
    }
    None
}
