//! What the spec of a route decides at each of its parents.

use std::collections::BTreeMap;

use super::attachment::{Attachment, NotAttached};
use super::backend_refs::ResolvedRef;
use super::conditions::{ACCEPTED, RESOLVED_REFS};
use super::listeners::MergedListener;
use super::outcome::{NO_VALID_BACKEND, RouteParent, SERVING, SUPERSEDED};
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::{ParentReference, RouteKind};

/// State of a route at each of its parents.
pub(super) fn parents(
    (at, attachment): (usize, &Attachment),
    refs: &[ResolvedRef],
    // Empty if the Gateway serves nothing.
    merged: &[MergedListener<'_>],
    serving: &BTreeMap<usize, usize>,
) -> Vec<RouteParent> {
    let parent = |(reference, attached): &(_, Result<Vec<usize>, NotAttached>)| RouteParent {
        reference: ParentReference::clone(reference),
        accepted: route_accepted(attachment.key.kind, attached),
        resolved_refs: route_refs(refs),
        serving: attached.as_ref().ok().map(|listeners| {
            let wins = |listener: &usize| serving.get(listener) == Some(&at);
            route_serving(listeners, wins, merged, refs)
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

fn route_serving(
    listeners: &[usize],
    wins: impl Fn(&usize) -> bool,
    merged: &[MergedListener<'_>],
    refs: &[ResolvedRef],
) -> DesiredCondition {
    let no = |reason, message: &str| DesiredCondition::no(SERVING, reason, message.to_owned());
    let served = listeners
        .iter()
        .filter(|listener| merged.get(**listener).is_some_and(MergedListener::is_served))
        .count();
    let won = listeners.iter().filter(|listener| wins(listener)).count();
    if served == 0 {
        return no("ListenerNotAccepted", "None of its listeners is served: see their conditions.");
    }
    if won == 0 {
        return no(SUPERSEDED, "An older route serves each of its listeners.");
    }
    if !refs.iter().any(|it| it.weight > 0 && it.target.is_ok()) {
        return no(NO_VALID_BACKEND, "No backend with a weight is valid, so connections are refused.");
    }
    let message = match listeners.len() {
        1 => "Its listener sends traffic to it.".to_owned(),
        all => format!("{won} of its {all} listeners send traffic to it."),
    };
    DesiredCondition::yes(SERVING, "Serving", message)
}
