//! Listeners of a Gateway and its ListenerSets, merged, and the conflicts between them. Conflicts are decided from the specs alone,
//! so that they do not depend on the protocols that Sheave supports.

use std::collections::{BTreeMap, HashMap};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    let mut standing = StandingListeners::default();
    let of_sets = sets.iter().map(|set| (ListenerOwner::of(set), set.spec.listeners.as_slice()));
    let objects = std::iter::once((ListenerOwner::Gateway, gateway.spec.listeners.as_slice())).chain(of_sets);
    for (owner, listeners) in objects {
        let first = merged.len();
        merged.extend(listeners.iter().enumerate().map(|(at, it)| MergedListener::new(&owner, at, it)));
        for at in first..merged.len() {
            let mut earlier = standing.candidates(&merged[at]);
            let found = earlier.find_map(|other| conflict(&merged[other], &merged[at]));
            merged[at].conflict = found;
        }
        mark_within(&mut merged, first);
        for listener in merged.iter_mut().skip(first.max(MOST_MERGED_LISTENERS)) {
            listener.excess = true;
        }
        standing.add(&merged, first);
    }
    merged
}

/// What decides about conflicts.
type ListenerIdentity = (Option<u16>, ListenerProtocol, Option<ServerNamePattern>);

/// Listeners that hold something against those of later objects: neither in conflict themselves nor beyond the limit. Whoever may
/// create ListenerSets decides how many listeners there are, so a listener is compared with few of them.
#[derive(Default)]
struct StandingListeners {
    /// The first one of each protocol on each port.
    of_protocols: BTreeMap<Option<u16>, Vec<(ListenerProtocol, usize)>>,
    by_identity: HashMap<ListenerIdentity, usize>,
}

impl StandingListeners {
    /// Indexes of those with which a listener conflicts if it conflicts with any.
    fn candidates<'a>(&'a self, listener: &MergedListener<'_>) -> impl Iterator<Item = usize> + use<'a> {
        let of_protocols = self.of_protocols.get(&listener.port).into_iter().flatten().map(|(_, at)| *at);
        of_protocols.chain(self.by_identity.get(&identity(listener)).copied())
    }

    /// Adds those of an object, which begin at `first`.
    fn add(&mut self, merged: &[MergedListener<'_>], first: usize) {
        let standing =
            merged.iter().enumerate().skip(first).filter(|(_, it)| it.conflict.is_none() && !it.excess);
        for (at, listener) in standing {
            let of_protocols = self.of_protocols.entry(listener.port).or_default();
            if !of_protocols.iter().any(|(protocol, _)| *protocol == listener.protocol) {
                of_protocols.push((listener.protocol, at));
            }
            self.by_identity.entry(identity(listener)).or_insert(at);
        }
    }
}

fn identity(listener: &MergedListener<'_>) -> ListenerIdentity {
    (listener.port, listener.protocol, listener.pattern.clone())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::gateway_api::ListenerTls;

    /// A listener as protocol, mode of TLS, port and hostname.
    type Drawn = (&'static str, Option<&'static str>, i32, Option<&'static str>);

    fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
        let protocol = prop::sample::select(vec!["TCP", "UDP", "TLS", "HTTP", "HTTPS", "SCTP"]);
        let mode = prop::sample::select(vec![Some("Passthrough"), None]);
        let hostname = prop::sample::select(vec![None, Some("a.e"), Some("b.e"), Some("*.e")]);
        prop::collection::vec((protocol, mode, 1..4_i32, hostname), 0..5)
    }

    fn listeners(drawn: &[Drawn]) -> Vec<Listener> {
        let listener = |(at, (protocol, mode, port, hostname)): (usize, &Drawn)| Listener {
            name: format!("l{at}"),
            hostname: hostname.map(str::to_owned),
            port: *port,
            protocol: (*protocol).to_owned(),
            tls: Some(ListenerTls { mode: mode.map(str::to_owned) }),
            allowed_routes: None,
        };
        drawn.iter().enumerate().map(listener).collect()
    }

    proptest! {
        #[test]
        fn few_comparisons_decide_as_all_would(gateway in drawn(), sets in prop::collection::vec(drawn(), 0..6)) {
            let mut whole = Gateway::default();
            whole.spec.listeners = listeners(&gateway);
            let set = |drawn: &Vec<Drawn>| {
                let mut set = ListenerSet::default();
                set.spec.listeners = listeners(drawn);
                Arc::new(set)
            };
            let sets: Vec<Arc<ListenerSet>> = sets.iter().map(set).collect();
            let merged = merge(&whole, &sets.iter().collect::<Vec<_>>());
            let mut first = 0;
            let sizes = std::iter::once(gateway.len()).chain(sets.iter().map(|set| set.spec.listeners.len()));
            for size in sizes {
                let (earlier, own) = (&merged[..first], &merged[first..first + size]);
                for (at, listener) in own.iter().enumerate() {
                    let mut against = earlier.iter().filter(|it| it.conflict.is_none());
                    let with_earlier = against.find_map(|other| conflict(other, listener));
                    let is_out = |it: &MergedListener<'_>| {
                        earlier.iter().filter(|other| other.conflict.is_none()).any(|other| conflict(other, it).is_some())
                    };
                    let others = own.iter().enumerate().filter(|(other, it)| *other != at && !is_out(it));
                    let within = others.filter_map(|(_, other)| conflict(other, listener)).min();
                    prop_assert_eq!(listener.conflict, with_earlier.or(within));
                }
                first += size;
            }
        }
    }
}
