//! Sentences about the rules that decided what a class of clients gets.

use std::collections::BTreeSet;

use sheave_model::{EndpointAddr, Frontend, FrontendKind, Route};

use crate::projection::eligibility;
use crate::projection::endpoints::merged::MergedEndpoints;
use crate::projection::nodes::ClusterContext;

use crate::projection::eligibility::{
    ClusterScope, EligibilityRule, Hint, HintsVerdict, TopologyHints, TopologyMode, TrafficPolicy,
};

/// Location of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientSide {
    /// Outside the cluster.
    Outside,
    /// Inside it.
    Inside,
}

/// Sentences about what decided for a class of clients of a frontend, starting with the policy.
pub(super) fn reasons(
    frontend: &Frontend,
    side: ClientSide,
    rule: EligibilityRule,
    merged: &MergedEndpoints,
    context: &ClusterContext,
) -> Vec<String> {
    let mut reasons = vec![policy_reason(frontend.kind, side, rule.policy, context)];
    reasons.extend(closed(frontend, merged));
    reasons.extend(hints(rule, merged, context));
    let route = match side {
        ClientSide::Outside => &frontend.external,
        ClientSide::Inside => &frontend.internal,
    };
    if rule.fallback && matches!(route, Route::Forward(_)) {
        reasons.push("no endpoint is ready there: those that terminate but still serve are used".to_owned());
    }
    reasons.push(outcome(route, rule.policy));
    reasons
}

fn policy_reason(
    kind: FrontendKind,
    side: ClientSide,
    policy: TrafficPolicy,
    context: &ClusterContext,
) -> String {
    let whom = match (kind, side) {
        (FrontendKind::ClusterIp, _) => "internalTrafficPolicy",
        (_, ClientSide::Outside) => "externalTrafficPolicy",
        (_, ClientSide::Inside) => {
            return "clients inside the cluster get the endpoints of the whole cluster here, whatever the traffic \
                    policies say"
                .to_owned();
        }
    };
    match policy {
        TrafficPolicy::Cluster => format!("{whom} is Cluster: endpoints of the whole cluster may be used"),
        TrafficPolicy::Local if context.node.is_empty() => {
            format!("{whom} is Local, and this gateway's node is not known: no endpoint counts as local")
        }
        TrafficPolicy::Local => {
            format!("{whom} is Local: only endpoints on this node, {}, may be used", context.node)
        }
    }
}

/// Sentence about the clusters that get no new connections. The endpoints there have the reason.
fn closed(frontend: &Frontend, merged: &MergedEndpoints) -> Option<String> {
    let closed =
        merged.traits.iter().zip(&merged.candidates).filter(|(it, _)| it.scope == ClusterScope::Closed);
    let clusters = closed.filter_map(|(_, candidate)| frontend.backends.get(candidate.backend as usize));
    let names: BTreeSet<&str> = clusters.map(|backend| &*backend.cluster).collect();
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty()).then(|| format!("nothing new goes to {}", names.join(", ")))
}

/// A kind of topology hints.
struct HintKind<'a> {
    what: &'static str,
    of: fn(TopologyHints) -> Hint,
    mode: TopologyMode,
    /// The name that the hints would have to contain.
    here: &'a str,
}

/// Sentences about the effect of topology hints; empty if no serving endpoint has any.
fn hints(rule: EligibilityRule, merged: &MergedEndpoints, context: &ClusterContext) -> Vec<String> {
    let node =
        HintKind { what: "node", of: |hints| hints.node, mode: TopologyMode::SameNode, here: &context.node };
    let zone =
        HintKind { what: "zone", of: |hints| hints.zone, mode: TopologyMode::SameZone, here: &context.zone };
    let given =
        |kind: &HintKind<'_>| merged.traits.iter().any(|traits| (kind.of)(traits.hints) != Hint::Absent);
    let mut reasons = Vec::new();
    for kind in [node, zone].iter().filter(|kind| given(kind)) {
        let HintKind { what, here, .. } = kind;
        if rule.policy == TrafficPolicy::Local {
            return vec!["topology hints have no say under policy Local".to_owned()];
        }
        if rule.mode == kind.mode {
            reasons.push(format!(
                "every ready endpoint has {what} hints, and some name this {what}, {here}: only those are used"
            ));
            break;
        }
        reasons.push(match eligibility::check_hints(&merged.traits, kind.of) {
            HintsVerdict::MissingAt(index) => missing(what, merged.addr(index)),
            _ if here.is_empty() => format!("{what} hints do not count: this gateway's {what} is not known"),
            HintsVerdict::NobodyHere | HintsVerdict::Count => {
                format!("{what} hints do not count: those of no ready endpoint name this {what}, {here}")
            }
        });
    }
    reasons
}

fn missing(what: &str, addr: Option<EndpointAddr>) -> String {
    let who = addr.map_or_else(|| "one".to_owned(), |addr| addr.to_string());
    format!("{what} hints do not count: {who} is ready and has none")
}

fn outcome(route: &Route, policy: TrafficPolicy) -> String {
    match (route, policy) {
        (Route::Forward(candidates), _) if candidates.len() == 1 => "one endpoint may be chosen".to_owned(),
        (Route::Forward(candidates), _) => format!("{} endpoints may be chosen", candidates.len()),
        (Route::Reject, _) => {
            "no endpoint serves anywhere: clients are refused (TCP reset, ICMP port unreachable)".to_owned()
        }
        (Route::Drop, TrafficPolicy::Local) => {
            "endpoints serve elsewhere, but none on this node: packets are silently dropped".to_owned()
        }
        (Route::Drop, TrafficPolicy::Cluster) => {
            "no endpoint may be used: packets are silently dropped".to_owned()
        }
    }
}
