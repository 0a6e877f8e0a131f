//! Problems that follow from the decisions about a Gateway.

use super::conditions::ACCEPTED;
use super::outcome::{GatewayOutcome, ListenerOutcome, NO_VALID_BACKEND, SUPERSEDED};
use super::set_object;
use crate::api::problem::report::Report;
use crate::api::problem::{Problem, ProblemPort, reason};
use crate::api::service_key::ServiceKey;

/// Reports listeners and routes that are not served.
pub(super) fn report(key: &ServiceKey, outcome: &GatewayOutcome, problems: &mut Vec<Problem>) {
    report_listeners(key, outcome, problems);
    report_routes(outcome, problems);
}

/// Problems of listeners that are not served.
fn report_listeners(key: &ServiceKey, outcome: &GatewayOutcome, problems: &mut Vec<Problem>) {
    let own = std::iter::once((key.object(), &outcome.listeners));
    let of_sets = outcome.sets.iter().map(|(set, found)| (set_object(set), &found.listeners));
    for (object, listeners) in own.chain(of_sets) {
        let mut report = Report::about(object);
        for (index, listener) in listeners.iter().enumerate().filter(|(_, listener)| !listener.accepted.holds)
        {
            let reason = if listener.conflicted.holds {
                reason::LISTENER_CONFLICT
            } else {
                reason::UNSUPPORTED_LISTENER
            };
            let port = problem_port(listener);
            report.add(reason, format!("spec.listeners[{index}]"), port, listener.accepted.message.clone());
        }
        problems.extend(report.into_problems());
    }
    if let Some(refused) = &outcome.refused {
        let mut report = Report::about(key.object());
        report.add(reason::NOT_SERVED, "", None, refused.message.clone());
        problems.extend(report.into_problems());
    }
}

fn problem_port(listener: &ListenerOutcome) -> Option<ProblemPort> {
    let protocol = if listener.protocol == "UDP" { "UDP" } else { "TCP" };
    Some(ProblemPort { port: u16::try_from(listener.port).ok()?, protocol })
}

/// Problems of routes that do not serve as they request.
fn report_routes(outcome: &GatewayOutcome, problems: &mut Vec<Problem>) {
    for (route, parents) in &outcome.routes {
        let mut report = Report::about(route.object());
        for parent in parents {
            if let Some(serving) = parent.serving.as_ref().filter(|it| it.reason == SUPERSEDED) {
                report.add(reason::ROUTE_SUPERSEDED, "", None, serving.message.clone());
            }
            let serves_nothing = parent.serving.as_ref().is_some_and(|it| it.reason == NO_VALID_BACKEND);
            // With every reference valid, only the weights are left as the cause.
            if serves_nothing && parent.resolved_refs.holds {
                let message = "no backend has a weight, so every connection is refused";
                report.add(reason::NO_WEIGHT, "spec.rules[0].backendRefs", None, message.to_owned());
            }
            for condition in [&parent.accepted, &parent.resolved_refs] {
                if !condition.holds {
                    let reason = match condition.kind {
                        ACCEPTED => reason::ROUTE_NOT_ACCEPTED,
                        _ => reason::BACKEND_REF_INVALID,
                    };
                    report.add(reason, "", None, format!("{} ({})", condition.message, condition.reason));
                }
            }
        }
        problems.extend(report.into_problems());
    }
}
