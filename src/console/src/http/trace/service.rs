//! First steps: what the gateway decides about the client, and whether the gateway serves at all.

use crate::views::explain::outcome;
use crate::views::numbers::counted;
use crate::views::trace::StepView;

use super::subject::Subject;

/// Whether the Service exists, is served, admits the client, and has an endpoint for it.
pub(super) fn decision(subject: &Subject) -> StepView {
    let view = &subject.view;
    let step = StepView::new("service", "the objects, and what this gateway decides for the client");
    let reason = || view.reasons.first().cloned().unwrap_or_default();
    let problem = || view.problems.first().cloned();
    if !subject.exists {
        return step.stopped(reason(), "check the name, the namespace and the port");
    }
    if view.frontend.is_none() {
        let why = problem().unwrap_or_else(reason);
        return step.stopped(format!("it is not served here: {why}"), explained(subject));
    }
    if let Some(why) = &view.closed {
        return step.stopped(format!("this gateway cannot open the frontend: {why}"), explained(subject));
    }
    if !view.allowed {
        let who = view.reasons.iter().find(|reason| reason.contains("not admitted")).cloned();
        let found = who.unwrap_or_else(|| "the source ranges do not admit the client".to_owned());
        return step.stopped(
            found,
            "add the client's network to loadBalancerSourceRanges, or ask with its real address",
        );
    }
    let found = format!("the client {}", outcome(view));
    match view.action.as_deref() {
        Some("Forward") if view.refusing.is_some() => step.doubtful(
            found,
            "raise the limit that the Problem names, or find out who opens so many connections",
        ),
        // The probe of the endpoints tells more than their health.
        Some("Forward") => step.ok(found),
        Some("Drop") => step.stopped(
            format!("{found}: the traffic policy is Local, and no endpoint is on this node"),
            "send clients to gateways that have an endpoint, run one here, or use the policy Cluster",
        ),
        _ => step.stopped(found, explained(subject)),
    }
}

fn explained(subject: &Subject) -> String {
    format!("`{}` has all reasons", subject.command("explain", None))
}

/// Whether this gateway serves, drains or is not ready.
pub(super) fn gateway(subject: &Subject) -> StepView {
    let status = &subject.status;
    let step = StepView::new("gateway", "whether this gateway serves");
    match &status.not_ready {
        _ if status.draining => {
            step.stopped("it drains: new connections are refused", "ask the gateway that has taken over")
        }
        _ if status.lame_duck => {
            step.doubtful("it is about to drain, and serves until then", "ask the gateway that takes over")
        }
        Some(why) => step.stopped(format!("it is not ready: {why}"), "`sheave status` says what to do"),
        None => step.ok(format!("it serves, with {}", counted(status.frontends, "frontend"))),
    }
}
