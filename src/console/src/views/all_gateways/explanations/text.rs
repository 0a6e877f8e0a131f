//! Text of the answers of all gateways: which gateway the client reaches, what it does, and what others do differently.

use sheave_control::projection::explain::ExplainView;
use sheave_control::text::first_few;

use super::{ANNOUNCED, ExplanationGroupView, ExplanationsView, SilentGatewayView};
use crate::views::escape::line;
use crate::views::explain::{Answer, outcome};

/// Limit of gateways in a line, and of reasons that only one group has.
const NAMED: usize = 5;

/// The whole text, with a newline at the end.
pub(super) fn render(view: &ExplanationsView) -> String {
    let Some((first, others)) = view.groups.split_first() else {
        return "No gateway answers.\n".to_owned() + &silent_text(view);
    };
    let mut text =
        line(&headline(view, first)) + "\n" + &Answer::Explained(first.explanation.clone()).to_text();
    if !others.is_empty() || !view.silent.is_empty() {
        text += "\nOther gateways\n";
    }
    for ExplanationGroupView { gateways, explanation, .. } in others {
        let elsewhere =
            explanation.frontend.as_ref().filter(|it| Some(*it) != first.explanation.frontend.as_ref());
        let at = elsewhere.map(|frontend| format!(" at {frontend}")).unwrap_or_default();
        let what = outcome_of(explanation);
        text += &line(&format!("  - on {}, the client{at} {what}", names(gateways)));
        let known = &first.explanation.reasons;
        let own = explanation.reasons.iter().filter(|reason| !known.contains(reason));
        text.extend(own.take(NAMED).map(|reason| line(&format!("      {reason}"))));
    }
    text + &silent_text(view)
}

fn headline(view: &ExplanationsView, first: &ExplanationGroupView) -> String {
    let ExplainView { frontend, service, .. } = &first.explanation;
    let Some(frontend) = frontend else {
        let answering = if view.silent.is_empty() { "" } else { " that answers" };
        return format!("No gateway{answering} serves {service}.");
    };
    let same = match (view.groups.len(), first.gateways.len()) {
        (_, 1) => String::new(),
        (1, count) => format!(" All {count} gateways that answer do the same."),
        (_, count) => {
            format!(" What follows is the same on {count} gateways: {}.", names(&first.gateways))
        }
    };
    // The explanation is of a gateway that the client does not reach.
    let shown = first.gateways.first().map(|node| format!(" On {node}:")).unwrap_or_default();
    let is_silent = |node: &String| view.silent.iter().any(|it| it.node == *node);
    match (view.known_by.as_deref(), view.comes_to.as_slice()) {
        (Some(ANNOUNCED), []) => not_announced(view, frontend) + &shown,
        (Some(ANNOUNCED), owners) if owners.iter().any(is_silent) => {
            let (announce, answer) = (form(owners, "announces", "announce"), form(owners, "does", "do"));
            format!("{} {announce} the address of {frontend}, but {answer} not answer.{shown}", names(owners))
        }
        (Some(ANNOUNCED), [one]) => {
            format!("{one} announces the address of {frontend}, so the client comes to {one}.{same}")
        }
        (Some(ANNOUNCED), several) => {
            let same = if view.groups.len() == 1 { &same } else { &shown };
            format!(
                "{} announce the address of {frontend}, and routers choose among them.{same}",
                names(several)
            )
        }
        (Some(_), owners) if owners.iter().any(is_silent) => {
            let answer = form(owners, "does", "do");
            format!("{frontend} is at an address of {0}, but {0} {answer} not answer.{shown}", names(owners))
        }
        (Some(_), several) => {
            format!("{frontend} is at an address of {}, so the client comes there.{same}", names(several))
        }
        (None, _) if view.groups.len() == 1 => format!("Any gateway may get the client.{same}"),
        (None, _) => {
            format!("Any gateway may get the client, and they differ. On {}:", names(&first.gateways))
        }
    }
}

/// Text if no answering gateway announces the address, and no silent one is named as its owner.
fn not_announced(view: &ExplanationsView, frontend: &str) -> String {
    let silent: Vec<String> = view.silent.iter().map(|it| it.node.clone()).collect();
    match (view.owners.as_slice(), silent.as_slice()) {
        ([], []) => {
            format!("No gateway announces the address of {frontend}: no gateway receives its packets.")
        }
        ([], silent) => {
            format!(
                "No gateway that answers announces the address of {frontend}; {} {} not answer, and may announce it.",
                names(silent),
                form(silent, "does", "do")
            )
        }
        (owners, _) => {
            format!(
                "The address of {frontend} belongs to {}, which {} not announce it at the moment.",
                names(owners),
                form(owners, "does", "do")
            )
        }
    }
}

fn form<'a>(nodes: &[String], one: &'a str, several: &'a str) -> &'a str {
    if nodes.len() > 1 { several } else { one }
}

fn silent_text(view: &ExplanationsView) -> String {
    let lines =
        view.silent.iter().take(NAMED).map(|SilentGatewayView { node, error, .. }| {
            line(&format!("  - {node} does not answer: {error}"))
        });
    let mut text: String = lines.collect();
    let more = view.silent.len().saturating_sub(NAMED);
    if more > 0 {
        text += &format!("  and {more} more do not answer\n");
    }
    text
}

fn outcome_of(view: &ExplainView) -> String {
    match &view.frontend {
        Some(_) => outcome(view),
        None => "is not served".to_owned(),
    }
}

fn names(of: &[String]) -> String {
    first_few(of, ", ", NAMED)
}
