//! Decisions of a listener's spec: whether it is accepted, conflicts, and which routes attach.

use std::collections::BTreeMap;

use super::conditions::{ACCEPTED, CONFLICTED, RESOLVED_REFS};
use super::listeners::{self, ListenerConflict, ListenerOwner, ListenerProtocol, MergedListener};
use super::outcome::ListenerOutcome;
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{RouteKey, RouteKind};

/// Decisions about listeners, by the object that has them. `routes` returns the number of routes that are attached to the listener with
/// an index in `merged`, and the one that serves it.
pub(super) fn outcomes(
    merged: &[MergedListener<'_>],
    routes: impl Fn(usize) -> (u32, Option<RouteKey>),
) -> BTreeMap<ListenerOwner, Vec<ListenerOutcome>> {
    let outcome = |index: usize, listener: &MergedListener<'_>| {
        let (attached_routes, route) = routes(index);
        ListenerOutcome {
            name: listener.spec.name.clone(),
            port: listener.spec.port,
            protocol: listener.spec.protocol.clone(),
            supported_kinds: listener.kind().into_iter().collect(),
            attached_routes,
            accepted: accepted(listener),
            conflicted: conflicted(listener),
            resolved_refs: resolved_kinds(listener),
            route,
        }
    };
    let mut by_owner: BTreeMap<ListenerOwner, Vec<ListenerOutcome>> = BTreeMap::new();
    for (index, listener) in merged.iter().enumerate() {
        by_owner.entry(listener.owner.clone()).or_default().push(outcome(index, listener));
    }
    by_owner
}

fn accepted(listener: &MergedListener<'_>) -> DesiredCondition {
    let no = |reason, message: String| DesiredCondition::no(ACCEPTED, reason, message);
    if listener.excess {
        let message = format!(
            "The Gateway has more than {} listeners with its ListenerSets; this one is beyond them.",
            listeners::MOST_MERGED_LISTENERS
        );
        return no("TooManyListeners", message);
    }
    match listener.protocol {
        ListenerProtocol::Tcp | ListenerProtocol::Udp | ListenerProtocol::TlsPassthrough => {}
        ListenerProtocol::TlsTerminate => {
            let message =
                "TLS is not terminated here: Sheave never holds private keys. Choose tls.mode Passthrough.";
            return no("UnsupportedValue", message.to_owned());
        }
        ListenerProtocol::Http | ListenerProtocol::Https | ListenerProtocol::Other => {
            let message =
                format!("{:?} is not TCP, UDP or TLS; the listener is not served.", listener.spec.protocol);
            return no("UnsupportedProtocol", message);
        }
    }
    if let Some(conflict) = listener.conflict {
        return no(conflict.reason(), conflict_message(listener));
    }
    if listener.port.is_none() {
        let message =
            format!("{} is not a port (1 to 65535); the listener is not served.", listener.spec.port);
        return no("PortUnavailable", message);
    }
    DesiredCondition::yes(ACCEPTED, ACCEPTED, "The listener is valid.".to_owned())
}

fn conflict_message(listener: &MergedListener<'_>) -> String {
    let text = listener.conflict.map(ListenerConflict::text).unwrap_or_default();
    format!("Another listener of this Gateway has {text}.")
}

fn conflicted(listener: &MergedListener<'_>) -> DesiredCondition {
    match listener.conflict {
        Some(conflict) => DesiredCondition::yes(CONFLICTED, conflict.reason(), conflict_message(listener)),
        None => {
            let message = "No other listener of this Gateway conflicts with it.".to_owned();
            DesiredCondition::no(CONFLICTED, "NoConflicts", message)
        }
    }
}

fn resolved_kinds(listener: &MergedListener<'_>) -> DesiredCondition {
    if listener.has_invalid_kinds() {
        let rest = listener.kind().map_or("none", RouteKind::name);
        let message = format!(
            "allowedRoutes.kinds has a kind that a listener with protocol {:?} does not route. Routed: {rest}.",
            listener.spec.protocol
        );
        return DesiredCondition::no(RESOLVED_REFS, "InvalidRouteKinds", message);
    }
    DesiredCondition::yes(RESOLVED_REFS, RESOLVED_REFS, "Every reference is valid.".to_owned())
}
