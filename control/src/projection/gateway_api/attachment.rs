//! Attachment of routes to listeners: which listeners a parentRef selects, and whether they admit the route.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sheave_model::ServerNamePattern;

use super::listeners::{ListenerOwner, MergedListener};
use crate::api::gateway_api::{NamespacesFrom, ParentReference, RouteKey, RouteKind};
use crate::api::objects::{ObjectKey, Objects};
use crate::api::routes::{AnyRoute, ParentKey};
use crate::api::service_key::ServiceKey;
use crate::projection::age::Age;
use crate::projection::allocator::selects_namespace;

/// Why a route does not attach at a parentRef.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAttached {
    /// No listener has the section name and port, or the ListenerSet is not attached itself.
    NoMatchingParent,
    /// Such listeners exist, and none admits this kind and namespace.
    NotAllowedByListeners,
    /// Those that do have no server name in common with the route.
    NoMatchingListenerHostname,
    /// Only in manifests: the route has no rule, or several.
    UnsupportedValue,
}

/// A route that names a Gateway, or a ListenerSet of it.
pub(super) struct Attachment {
    pub(super) key: RouteKey,
    pub(super) route: AnyRoute,
    /// Server names of a TLSRoute.
    pub(super) hostnames: Vec<ServerNamePattern>,
    /// Each of its parentRefs that name this Gateway or a ListenerSet of it, with the indexes of the listeners that it attaches to.
    pub(super) parents: Vec<(ParentReference, Result<Vec<usize>, NotAttached>)>,
    /// Indexes of the listeners that it attaches to by any of them, each once.
    pub(super) listeners: Vec<usize>,
}

/// Rank among routes of one listener: the oldest serves. One without a creation time is the youngest.
pub(super) type RouteRank = (Age, Arc<str>, Arc<str>);

impl Attachment {
    /// A route that attaches nowhere.
    fn new(key: RouteKey, route: AnyRoute) -> Self {
        let hostnames = route.spec().hostnames.iter().map(|name| ServerNamePattern::new(name)).collect();
        Self { key, route, hostnames, parents: Vec::new(), listeners: Vec::new() }
    }

    pub(super) fn rank(&self) -> RouteRank {
        let age = Age::of(self.route.metadata());
        (age, Arc::clone(&self.key.namespace), Arc::clone(&self.key.name))
    }
}

/// All routes that name the Gateway or one of its ListenerSets, sorted by key. `sets` are the ListenerSets that name it, and whether
/// they are attached.
pub(super) fn attachments(
    key: &ServiceKey,
    sets: &BTreeMap<ObjectKey, bool>,
    listeners: &[MergedListener<'_>],
    objects: &Objects,
) -> Vec<Attachment> {
    let parents = std::iter::once(ParentKey::Gateway(key.clone()))
        .chain(sets.keys().map(|set| ParentKey::ListenerSet(set.clone())));
    let parents: BTreeSet<ParentKey> = parents.collect();
    let mut by_owner: BTreeMap<&ListenerOwner, Vec<(usize, &MergedListener<'_>)>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        by_owner.entry(&listener.owner).or_default().push((index, listener));
    }
    let routes = parents.iter().flat_map(|parent| objects.gateway_api.routes_of_parent(parent));
    let routes = routes.filter(|route| route.metadata().deletion_timestamp.is_none());
    let mut routes: Vec<(RouteKey, AnyRoute)> = routes.map(|route| (route.key(), route)).collect();
    routes.sort_by(|(one, _), (other, _)| one.cmp(other));
    routes.dedup_by(|(one, _), (other, _)| one == other);
    let attach = |(key, route): (RouteKey, AnyRoute)| {
        let own = Arc::clone(&key.namespace);
        let mut attachment = Attachment::new(key, route);
        let refs = attachment.route.spec().parent_refs.iter().filter_map(|reference| {
            let parent = ParentKey::of(reference, &own).filter(|parent| parents.contains(parent))?;
            let selected = select(&attachment, reference, &parent, sets, &by_owner, objects);
            Some((reference.clone(), selected))
        });
        attachment.parents = refs.collect();
        let attached = attachment.parents.iter().filter_map(|(_, attached)| attached.as_ref().ok());
        let attached: BTreeSet<usize> = attached.flatten().copied().collect();
        attachment.listeners = attached.into_iter().collect();
        attachment
    };
    routes.into_iter().map(attach).collect()
}

/// The listeners that one parentRef of a route attaches to.
fn select(
    Attachment { key, route, hostnames, .. }: &Attachment,
    reference: &ParentReference,
    parent: &ParentKey,
    sets: &BTreeMap<ObjectKey, bool>,
    by_owner: &BTreeMap<&ListenerOwner, Vec<(usize, &MergedListener<'_>)>>,
    objects: &Objects,
) -> Result<Vec<usize>, NotAttached> {
    let owner = match parent {
        ParentKey::Gateway(_) => ListenerOwner::Gateway,
        ParentKey::ListenerSet(set) => {
            if sets.get(set) != Some(&true) {
                return Err(NotAttached::NoMatchingParent);
            }
            ListenerOwner::Set(set.clone())
        }
    };
    let named = |listener: &MergedListener<'_>| {
        reference.section_name.as_deref().is_none_or(|name| name == listener.spec.name)
            && reference.port.is_none_or(|port| port == listener.spec.port)
    };
    let own = by_owner.get(&owner).into_iter().flatten();
    let mut selected = own.copied().filter(|(_, listener)| named(listener)).peekable();
    if selected.peek().is_none() {
        return Err(NotAttached::NoMatchingParent);
    }
    let home = match parent {
        ParentKey::Gateway(gateway) => &gateway.namespace,
        ParentKey::ListenerSet((namespace, _)) => namespace,
    };
    let admitted = selected.filter(|(_, listener)| {
        let from = listener.spec.namespaces();
        listener.kind() == Some(key.kind) && admits(from, "Same", home, &key.namespace, objects)
    });
    let mut admitted: Vec<(usize, &MergedListener<'_>)> = admitted.collect();
    if admitted.is_empty() {
        return Err(NotAttached::NotAllowedByListeners);
    }
    if key.kind == RouteKind::Tls {
        admitted.retain(|(_, listener)| listener.common(hostnames).next().is_some());
    }
    if admitted.is_empty() {
        return Err(NotAttached::NoMatchingListenerHostname);
    }
    if route.spec().rules.len() != 1 {
        return Err(NotAttached::UnsupportedValue);
    }
    Ok(admitted.into_iter().map(|(index, _)| index).collect())
}

/// Whether an object in `namespace` is admitted to one in `home`. `absent` is what an absent choice means.
pub(super) fn admits(
    from: Option<&NamespacesFrom>,
    absent: &str,
    home: &Arc<str>,
    namespace: &Arc<str>,
    objects: &Objects,
) -> bool {
    match from.and_then(|it| it.from.as_deref()).unwrap_or(absent) {
        "All" => true,
        "Same" => home == namespace,
        "Selector" => {
            let selector = from.and_then(|it| it.selector.as_ref());
            let known = objects.namespaces.get(namespace).map(|known| &**known);
            selector.is_some_and(|selector| selects_namespace(selector, namespace, known))
        }
        // `None`, and values of later versions.
        _ => false,
    }
}

/// Whether a ListenerSet may attach to a Gateway.
pub(super) fn admits_set(
    from: Option<&NamespacesFrom>,
    gateway: &ServiceKey,
    set: &ObjectKey,
    objects: &Objects,
) -> bool {
    admits(from, "None", &gateway.namespace, &set.0, objects)
}
