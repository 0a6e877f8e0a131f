//! Listeners of a Gateway and its ListenerSets, merged, and the conflicts between them. Conflicts are decided from the specs alone,
//! so that they do not depend on the protocols that Sheave supports.

use std::collections::BTreeMap;
use std::sync::Arc;

use sheave_model::ServerNamePattern;

use crate::api::gateway_api::{Gateway, Listener, ListenerSet, RouteKind};
use crate::api::kinds::object_key;
use crate::api::objects::{GatewayApiObjects, ObjectKey};
use crate::api::owners::names_of;
use crate::api::routes::ParentKey;
use crate::api::service_key::ServiceKey;
use crate::projection::age::Age;
use crate::projection::ports;

/// Largest number of listeners of one Gateway with all its ListenerSets; those beyond it are refused. A Gateway alone has at most 64.
pub(crate) const MOST_MERGED_LISTENERS: usize = 1024;

/// The object that has a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListenerOwner {
    /// The Gateway itself.
    Gateway,
    /// A ListenerSet that is attached to it.
    Set(ObjectKey),
}

impl ListenerOwner {
    fn of(set: &ListenerSet) -> Self {
        Self::Set(object_key(&set.metadata))
    }
}

/// Protocol of a listener, with the mode of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenerProtocol {
    Tcp,
    Udp,
    /// TLS that is passed through by server name.
    TlsPassthrough,
    /// TLS that the Gateway should terminate.
    TlsTerminate,
    Http,
    Https,
    /// Unknown, or with a domain prefix.
    Other,
}

impl ListenerProtocol {
    fn of(listener: &Listener) -> Self {
        let mode = listener.tls.as_ref().and_then(|tls| tls.mode.as_deref());
        match listener.protocol.as_str() {
            "TCP" => Self::Tcp,
            "UDP" => Self::Udp,
            "TLS" if mode == Some("Passthrough") => Self::TlsPassthrough,
            "TLS" => Self::TlsTerminate,
            "HTTP" => Self::Http,
            "HTTPS" => Self::Https,
            _ => Self::Other,
        }
    }

    /// The kind of route that Sheave attaches to it.
    pub(super) fn route_kind(self) -> Option<RouteKind> {
        match self {
            Self::Tcp => Some(RouteKind::Tcp),
            Self::Udp => Some(RouteKind::Udp),
            Self::TlsPassthrough => Some(RouteKind::Tls),
            Self::TlsTerminate | Self::Http | Self::Https | Self::Other => None,
        }
    }

    pub(super) fn is_tls(self) -> bool {
        matches!(self, Self::TlsPassthrough | Self::TlsTerminate)
    }

    fn has_hostnames(self) -> bool {
        self.is_tls() || matches!(self, Self::Http | Self::Https)
    }
}

/// Why a listener cannot be told from another one. Of several reasons the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListenerConflict {
    /// Same port, with a protocol that does not share it.
    Protocol,
    /// Same port, protocol and hostname.
    Hostname,
    /// Same port and protocol, which has no hostnames. The API names no reason for this case.
    Listener,
    /// Same name, which only manifests can have.
    Name,
}

impl ListenerConflict {
    /// Reason in conditions.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Protocol => "ProtocolConflict",
            Self::Hostname => "HostnameConflict",
            Self::Listener | Self::Name => "ListenerConflict",
        }
    }

    /// Common property of the two listeners, for messages.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Protocol => "the same port with a protocol that cannot share it",
            Self::Hostname => "the same port, protocol and hostname",
            Self::Listener => "the same port and protocol",
            Self::Name => "the same name",
        }
    }
}

/// A listener of a Gateway or of one of its ListenerSets.
#[derive(Clone, Debug)]
pub(super) struct MergedListener<'a> {
    pub(super) owner: ListenerOwner,
    pub(super) spec: &'a Listener,
    /// Index in the list of its owner.
    pub(super) index: usize,
    pub(super) protocol: ListenerProtocol,
    /// Its server names; `None` = all.
    pub(super) pattern: Option<ServerNamePattern>,
    /// `None` if the number is not a port.
    pub(super) port: Option<u16>,
    pub(super) conflict: Option<ListenerConflict>,
    /// Whether there are too many listeners before it.
    pub(super) excess: bool,
}

impl MergedListener<'_> {
    fn new<'a>(owner: &ListenerOwner, index: usize, spec: &'a Listener) -> MergedListener<'a> {
        let hostname = spec.hostname.as_deref().filter(|name| !name.is_empty());
        MergedListener {
            owner: owner.clone(),
            spec,
            index,
            protocol: ListenerProtocol::of(spec),
            pattern: hostname.map(ServerNamePattern::new),
            port: ports::number(spec.port),
            conflict: None,
            excess: false,
        }
    }

    /// The server names that it and a route have in common. Two host names of a route may have the same one in common.
    pub(super) fn common<'h>(
        &'h self,
        hostnames: &'h [ServerNamePattern],
    ) -> impl Iterator<Item = &'h ServerNamePattern> {
        hostnames.iter().filter_map(|hostname| match &self.pattern {
            None => Some(hostname),
            Some(pattern) => pattern.intersection(hostname),
        })
    }

    /// Whether traffic is accepted on it: no conflict, a kind of route that may attach, and a port.
    pub(super) fn is_served(&self) -> bool {
        self.conflict.is_none() && !self.excess && self.port.is_some() && self.kind().is_some()
    }

    /// The kind of route that may attach: that of its protocol, if it allows it.
    pub(super) fn kind(&self) -> Option<RouteKind> {
        let allowed = self.spec.allowed_kinds();
        let is_allowed = |kind: &RouteKind| allowed.is_empty() || allowed.iter().any(|it| it.is(*kind));
        self.protocol.route_kind().filter(is_allowed)
    }

    /// Whether it allows a kind of route that its protocol does not route.
    pub(super) fn has_invalid_kinds(&self) -> bool {
        let routed = self.protocol.route_kind();
        self.spec.allowed_kinds().iter().any(|it| !routed.is_some_and(|kind| it.is(kind)))
    }

    /// Name that is unique among the merged listeners. Displayed as the port of its frontends.
    pub(super) fn full_name(&self) -> String {
        match &self.owner {
            ListenerOwner::Gateway => self.spec.name.clone(),
            ListenerOwner::Set((namespace, set)) => format!("{namespace}/{set}/{}", self.spec.name),
        }
    }
}

/// The listeners of a Gateway and of these ListenerSets, with their conflicts. Between objects the Gateway comes first, then the oldest
/// ListenerSet. Within one object nobody wins, but a listener that is out for an earlier object holds nothing against the others
/// (conformance/tests/listenerset-protocol-conflict.go).
pub(super) fn merge<'a>(gateway: &'a Gateway, sets: &[&'a Arc<ListenerSet>]) -> Vec<MergedListener<'a>> {
    let mut merged: Vec<MergedListener<'a>> = Vec::new();
    let mut by_port: BTreeMap<Option<u16>, Vec<usize>> = BTreeMap::new();
    let of_sets = sets.iter().map(|set| (ListenerOwner::of(set), set.spec.listeners.as_slice()));
    let objects = std::iter::once((ListenerOwner::Gateway, gateway.spec.listeners.as_slice())).chain(of_sets);
    for (owner, listeners) in objects {
        let first = merged.len();
        merged.extend(listeners.iter().enumerate().map(|(at, it)| MergedListener::new(&owner, at, it)));
        for (at, listener) in merged.iter().enumerate().skip(first) {
            by_port.entry(listener.port).or_default().push(at);
        }
        mark_against_earlier(&mut merged, first, &by_port);
        mark_within(&mut merged, first);
        for listener in merged.iter_mut().skip(first.max(MOST_MERGED_LISTENERS)) {
            listener.excess = true;
        }
    }
    merged
}

/// The listeners of a ListenerSet that is not attached, with the conflicts between them.
pub(super) fn alone(set: &ListenerSet) -> Vec<MergedListener<'_>> {
    let owner = ListenerOwner::of(set);
    let listeners = set.spec.listeners.iter().enumerate();
    let mut alone: Vec<_> =
        listeners.map(|(at, listener)| MergedListener::new(&owner, at, listener)).collect();
    mark_within(&mut alone, 0);
    alone
}

/// Marks listeners of one object, from `first` on, that cannot be told apart. Those that are out already hold nothing against others.
fn mark_within(merged: &mut [MergedListener<'_>], first: usize) {
    let mut standing: Vec<usize> = (first..merged.len()).collect();
    standing.retain(|at| merged[*at].conflict.is_none());
    for (index, &one) in standing.iter().enumerate() {
        for &other in &standing[index + 1..] {
            let same_name = merged[one].spec.name == merged[other].spec.name;
            let by_name = same_name.then_some(ListenerConflict::Name);
            let Some(conflict) = conflict(&merged[one], &merged[other]).or(by_name) else { continue };
            for at in [one, other] {
                let known = merged[at].conflict;
                merged[at].conflict = Some(known.map_or(conflict, |known| known.min(conflict)));
            }
        }
    }
}

/// Marks listeners from `first` on that conflict with one of an earlier object. One that is out itself holds nothing against others.
fn mark_against_earlier(
    merged: &mut [MergedListener<'_>],
    first: usize,
    by_port: &BTreeMap<Option<u16>, Vec<usize>>,
) {
    for at in first..merged.len() {
        let earlier = by_port.get(&merged[at].port).into_iter().flatten().take_while(|other| **other < first);
        let mut standing =
            earlier.filter(|other| merged[**other].conflict.is_none() && !merged[**other].excess);
        let found = standing.find_map(|other| conflict(&merged[*other], &merged[at]));
        merged[at].conflict = found;
    }
}

/// Whether two listeners conflict, and how (Gateway API, "Distinct Listeners").
fn conflict(one: &MergedListener<'_>, other: &MergedListener<'_>) -> Option<ListenerConflict> {
    use ListenerProtocol::{Other, Tcp, Udp};
    if one.port != other.port || [one.protocol, other.protocol].contains(&Other) {
        return None;
    }
    match (one.protocol, other.protocol) {
        (Udp, Udp) | (Tcp, Tcp) => Some(ListenerConflict::Listener),
        (Udp, _) | (_, Udp) => None,
        (Tcp, _) | (_, Tcp) => Some(ListenerConflict::Protocol),
        (one, other) if one.is_tls() && other.is_tls() && one != other => Some(ListenerConflict::Protocol),
        (first, second) if first == second && first.has_hostnames() && one.pattern == other.pattern => {
            Some(ListenerConflict::Hostname)
        }
        _ => None,
    }
}

/// The ListenerSets that name a Gateway, the oldest first. One without a creation time is the youngest.
pub(in crate::projection) fn sets_of<'a>(
    key: &ServiceKey,
    objects: &'a GatewayApiObjects,
) -> Vec<&'a Arc<ListenerSet>> {
    let parent = ParentKey::Gateway(key.clone());
    let names_it = |set: &&Arc<ListenerSet>| {
        set.metadata.deletion_timestamp.is_none() && ParentKey::of_set(set).as_ref() == Some(&parent)
    };
    let mut sets: Vec<&Arc<ListenerSet>> = objects.listener_sets.values().filter(names_it).collect();
    sets.sort_by_key(|set| (Age::of(&set.metadata), names_of(&set.metadata)));
    sets
}
