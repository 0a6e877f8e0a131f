//! Decisions of a route's spec at each of its parents.

use super::attachment::{Attachment, NotAttached};
use super::backend_refs::ResolvedRef;
use super::conditions::{ACCEPTED, RESOLVED_REFS};
use super::listeners::MergedListener;
use super::outcome::{NO_VALID_BACKEND, RouteParent, SERVING, SUPERSEDED};
use super::server_names::{NameCount, NameTarget};
use super::serving::Serving;
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{ParentReference, RouteKind};

/// State of a route at each of its parents.
pub(super) fn parents(
    (at, attachment): (usize, &Attachment),
    refs: &[ResolvedRef],
    // Empty if the Gateway serves nothing.
    merged: &[MergedListener<'_>],
    serving: &Serving,
) -> Vec<RouteParent> {
    let parent = |(reference, attached): &(_, Result<Vec<usize>, NotAttached>)| RouteParent {
        reference: ParentReference::clone(reference),
        accepted: route_accepted(attachment.key.kind, attached),
        resolved_refs: route_refs(refs),
        serving: attached.as_ref().ok().map(|listeners| {
            let served = listeners.iter().filter_map(|at| Some((*at, merged.get(*at)?)));
            let served: Vec<_> = served.filter(|(_, listener)| listener.is_served()).collect();
            match (served.is_empty(), attachment.key.kind) {
                (true, _) => serves_nothing(
                    "ListenerNotAccepted",
                    "None of its listeners is served: see their conditions.",
                ),
                (_, RouteKind::Tls) => serves_names(at, &served, serving, refs),
                (_, RouteKind::Tcp | RouteKind::Udp) => {
                    let won = served.iter().filter(|(listener, _)| serving.whole.get(listener) == Some(&at));
                    serves_listeners(won.count(), listeners.len(), refs)
                }
            }
        }),
    };
    attachment.parents.iter().map(parent).collect()
}

fn route_accepted(kind: RouteKind, attached: &Result<Vec<usize>, NotAttached>) -> DesiredCondition {
    let no = |reason, message: String| DesiredCondition::no(ACCEPTED, reason, message);
    match attached {
        Ok(_) => DesiredCondition::yes(ACCEPTED, ACCEPTED, "The route is attached.".to_owned()),
        Err(NotAttached::NoMatchingParent) => {
            let message = "The parent has no listener with this sectionName and port.";
            no("NoMatchingParent", message.to_owned())
        }
        Err(NotAttached::NotAllowedByListeners) => {
            let message =
                format!("No listener that the parentRef selects allows a {} of this namespace.", kind.name());
            no("NotAllowedByListeners", message)
        }
        Err(NotAttached::NoMatchingListenerHostname) => {
            let message =
                "No listener that the parentRef selects has a hostname in common with spec.hostnames.";
            no("NoMatchingListenerHostname", message.to_owned())
        }
        Err(NotAttached::UnsupportedValue) => {
            no("UnsupportedValue", "A route has exactly one rule (spec.rules).".to_owned())
        }
    }
}

fn route_refs(refs: &[ResolvedRef]) -> DesiredCondition {
    let mut invalid = refs.iter().filter_map(|it| it.target.as_ref().err()).peekable();
    let Some(first) = invalid.peek() else {
        return DesiredCondition::yes(RESOLVED_REFS, RESOLVED_REFS, "Every backend exists.".to_owned());
    };
    let reason = first.reason.name();
    let messages: Vec<String> = invalid.map(|it| format!("{} {}", it.field, it.message)).collect();
    DesiredCondition::no(RESOLVED_REFS, reason, format!("{}.", messages.join("; ")))
}

fn serves_nothing(reason: &'static str, message: &str) -> DesiredCondition {
    DesiredCondition::no(SERVING, reason, message.to_owned())
}

/// Whether a route serves listeners of TCP or UDP, of which it has `won` so many.
fn serves_listeners(won: usize, all: usize, refs: &[ResolvedRef]) -> DesiredCondition {
    if won == 0 {
        return serves_nothing(SUPERSEDED, "An older route serves each of its listeners.");
    }
    let message = match all {
        1 => "Its listener sends traffic to it.".to_owned(),
        all => format!("{won} of its {all} listeners send traffic to it."),
    };
    serves(message, refs)
}

/// Whether the route with this index serves server names of TLS listeners.
fn serves_names(
    route: usize,
    served: &[(usize, &MergedListener<'_>)],
    serving: &Serving,
    refs: &[ResolvedRef],
) -> DesiredCondition {
    let counts = served.iter().filter_map(|&(listener, merged)| {
        serving.names.get(&merged.port?)?.counts.get(&NameTarget { listener, route })
    });
    let NameCount { won, wanted } = counts.fold(NameCount::default(), |sum, it| NameCount {
        won: sum.won + it.won,
        wanted: sum.wanted + it.wanted,
    });
    match (won, wanted - won) {
        (0, _) => {
            let message = "Older routes or narrower listeners have each of its server names.";
            serves_nothing(SUPERSEDED, message)
        }
        (_, 0) => serves("Its listeners send the traffic of its server names to it.".to_owned(), refs),
        (_, lost) => {
            let message = format!(
                "Its listeners send it the traffic of {won} of its {wanted} server names; older routes or narrower listeners \
                 have the other {lost}."
            );
            serves(message, refs)
        }
    }
}

/// `Serving` of a route that traffic goes to, if a backend is valid.
fn serves(message: String, refs: &[ResolvedRef]) -> DesiredCondition {
    if refs.iter().any(|it| it.weight > 0 && it.target.is_ok()) {
        return DesiredCondition::yes(SERVING, "Serving", message);
    }
    serves_nothing(NO_VALID_BACKEND, "No backend with a weight is valid, so connections are refused.")
}
