//! Text of all gateways: a table, differences and Problems.

use std::fmt::Write as _;

use sheave_control::text::first_few;

use super::{AllGatewaysView, GatewayStatusView, SharedEndpointView, SharedProblemView};
use crate::views::escape::line;
use crate::views::numbers::span;
use crate::views::problem::LISTED;
use crate::views::status::AnnouncingView;
use crate::views::text_table::{columns, or_dash};

/// Limit of gateways in a line.
const NAMED: usize = 5;

/// The whole text, with a newline at the end.
pub(super) fn render(view: &AllGatewaysView) -> String {
    let mut text = gateways(view);
    text += &listed("What differs", view.differences.iter().cloned(), 0, "");
    text += &listed(
        "What is wrong with the controllers, and what to do",
        view.controller_wrong.iter().cloned(),
        0,
        "",
    );
    text +=
        &listed("What is wrong with a gateway, and what to do", view.gateways.iter().flat_map(wrong), 0, "");
    let answering = view.gateways.iter().filter(|it| it.state != "silent").count();
    let problems = view.problems.iter().map(|shared| {
        let SharedProblemView { problem, gateways, missing } = shared;
        format!("{}: {problem}", whose(gateways, missing, answering))
    });
    let of_controller =
        view.controller_problems.iter().map(|problem| format!("by the controller: {problem}"));
    let more = match view.more_controller_problems {
        0 => String::new(),
        more => format!("  and {more} more by the controller, which gateways may have as well\n"),
    };
    text += &listed("Problems", problems.chain(of_controller), view.more_problems, &more);
    text += &listed("Services that are not well", view.unwell.iter().map(ToString::to_string), 0, "");
    let unhealthy = view.unhealthy.iter().map(|shared| {
        let SharedEndpointView { service, protocol, endpoint, reason, gateways, missing } = shared;
        format!("{}: {endpoint} ({protocol}) of {service}: {reason}", whose(gateways, missing, answering))
    });
    text += &listed("Unhealthy endpoints", unhealthy, view.more_unhealthy, "");
    match &view.leader {
        Some(leader) if view.leading == Some(false) => {
            text + "\n"
                + &line(&format!(
                    "This controller does not lead. Problems that only controllers see are known to the leader, {leader}: run \
                     `sheave status --fleet` there."
                ))
        }
        _ => text,
    }
}

/// Text of the controller and the table of gateways.
fn gateways(view: &AllGatewaysView) -> String {
    let leader = match &view.leader {
        Some(leader) => format!("; {leader} leads"),
        None => "; no controller leads".to_owned(),
    };
    if view.gateways.is_empty() {
        return line(&format!(
            "No gateway, as the controller on {} sees it{leader}: check that gateways run, and that the Service of `gateways.service` in \
             the config selects their Pods.",
            view.asked_by
        ));
    }
    let head = [
        "NODE",
        "ADDRESS",
        "STATE",
        "VERSION",
        "TABLE",
        "FRONTENDS",
        "PROBLEMS",
        "UNHEALTHY",
        "ANNOUNCES",
        "DIFFERS IN",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(view.gateways.iter().map(|gateway| row(gateway).to_vec()));
    let headline = format!("{}, asked by the controller on {}{leader}.", summary(view), view.asked_by);
    line(&headline) + "\n" + &columns(&rows)
}

fn summary(view: &AllGatewaysView) -> String {
    let count = |state: &str| view.gateways.iter().filter(|it| it.state == state).count();
    let words = [
        ("serving", "serving"),
        ("notReady", "not ready"),
        ("lameDuck", "about to drain"),
        ("draining", "draining"),
        ("silent", "silent"),
    ];
    let parts: Vec<String> = words
        .iter()
        .filter(|(state, _)| count(state) > 0)
        .map(|(state, word)| format!("{} {word}", count(state)))
        .collect();
    let total = view.gateways.len();
    let gateways = if total == 1 { "1 gateway".to_owned() } else { format!("{total} gateways") };
    format!("{gateways}: {}", parts.join(", "))
}

fn row(gateway: &GatewayStatusView) -> [String; 10] {
    let number = |number: Option<usize>| number.map_or("-".to_owned(), |number| number.to_string());
    let state = match gateway.state.as_str() {
        "notReady" => "not ready",
        "lameDuck" => "about to drain",
        other => other,
    };
    let hash = gateway.table_hash.as_ref().map(|hash| hash.chars().take(6).collect::<String>());
    let age = gateway.table_age_seconds.map(|age| format!(", {} ago", span(age))).unwrap_or_default();
    let announces = match &gateway.announcing {
        Some(AnnouncingView { announced, addresses, .. }) => format!("{announced} of {addresses}"),
        None => "-".to_owned(),
    };
    [
        gateway.node.clone(),
        or_dash(&gateway.addresses.join(", ")),
        state.to_owned(),
        or_dash(gateway.version.as_deref().unwrap_or_default()),
        hash.map_or("-".to_owned(), |hash| hash + &age),
        number(gateway.frontends),
        number(gateway.problems),
        number(gateway.unhealthy_endpoints),
        announces,
        or_dash(&gateway.differs.join(", ")),
    ]
}

fn wrong(gateway: &GatewayStatusView) -> impl Iterator<Item = String> {
    let what = if gateway.state == "silent" { "it does not answer: " } else { "" };
    let error = gateway.error.iter().map(move |error| format!("{}: {what}{error}", gateway.node));
    error.chain(gateway.wrong.iter().map(|sentence| format!("{}: {sentence}", gateway.node)))
}

/// Names the gateways with a Problem, out of the `answering` ones.
fn whose(gateways: &[String], missing: &[String], answering: usize) -> String {
    let names = |of: &[String]| first_few(of, ", ", NAMED);
    match (gateways.len(), missing.len()) {
        // The state of the other gateways is unknown.
        (have, lack) if have + lack < answering => format!("on {}", names(gateways)),
        (1, 0) => format!("on {}", names(gateways)),
        (count, 0) => format!("on all {count} gateways"),
        (have, lack) if lack < have => format!("on all but {}", names(missing)),
        (_, _) => format!("on {} only", names(gateways)),
    }
}

/// List under a title, with the number of omitted lines, followed by `end`.
fn listed(title: &str, lines: impl Iterator<Item = String>, more: usize, end: &str) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() && end.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}\n");
    text.extend(lines.iter().take(LISTED).map(|it| line(&format!("  - {it}"))));
    let more = more + lines.len().saturating_sub(LISTED);
    if more > 0 {
        // Writing to a String cannot fail.
        writeln!(text, "  and {more} more (`-o json` lists more)").unwrap_or_default();
    }
    text + end
}
