//! The status for people: what it does, where its objects come from, and what is wrong with a way out for each.

use std::fmt::Write as _;

use super::{ControllerView, GuardView, KindView, SnapshotView, SourceView, StatusView};
use crate::columns::{columns, or_dash};

/// The whole text, with a newline at the end.
pub(super) fn render(view: &StatusView) -> String {
    let mut text = headline(view);
    text += &source(&view.source);
    let wrong = wrong(view);
    if wrong.is_empty() {
        return text + "\nNothing is wrong.\n";
    }
    text += "\nWhat is wrong, and what to do\n";
    for sentence in wrong {
        // Writing to a String never fails.
        writeln!(text, "  - {sentence}").unwrap_or_default();
    }
    text
}

fn headline(view: &StatusView) -> String {
    let StatusView { version, role, node, generation, frontends, .. } = view;
    let up = span(view.uptime_seconds);
    let mut text = format!("Sheave {version} ({role}) on node {node}, up for {up}.\n");
    if !is_controller(view) {
        let number = if *frontends == 1 { "1 frontend".to_owned() } else { format!("{frontends} frontends") };
        text += &format!("Routing table: generation {generation}, {number}.\n");
    }
    match &view.controller {
        Some(ControllerView { leading: true, .. }) => text += "Controller: this one leads.\n",
        Some(ControllerView { leader: Some(leader), .. }) => {
            text += &format!("Controller: {leader} leads.\n");
        }
        _ => {}
    }
    text
}

fn source(source: &SourceView) -> String {
    let mut text = match &source.server {
        Some(server) => format!("Source: API server {server}.\n"),
        None => "Source: a folder of manifests.\n".to_owned(),
    };
    if let Some(SnapshotView { path, age_seconds: Some(age), .. }) = &source.snapshot {
        text += &format!("Snapshot: {path}, written {} ago.\n", span(*age));
    }
    if source.kinds.is_empty() {
        return text;
    }
    let header = ["KIND", "OBJECTS", "LISTED", "LAST HEARD OF", "WATCH RESTARTS"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(source.kinds.iter().map(|kind| {
        vec![
            kind.kind.clone(),
            kind.objects.to_string(),
            if kind.synced { "yes" } else { "no" }.to_owned(),
            or_dash(&kind.last_heard_seconds.map(|age| span(age) + " ago").unwrap_or_default()),
            kind.restarts.to_string(),
        ]
    }));
    text + "\n" + &columns(&rows)
}

/// The worst first.
fn wrong(view: &StatusView) -> Vec<String> {
    let source = &view.source;
    let mut wrong = Vec::new();
    if view.draining {
        wrong.push("it was told to end: nothing new is accepted, and open connections finish".to_owned());
    }
    wrong.extend(unsynced(view));
    wrong.extend(source_errors(&source.kinds));
    wrong.extend(view.guard.iter().map(doubted));
    if let Some(SnapshotView { error: Some(error), .. }) = &source.snapshot {
        wrong.push(format!("the snapshot: {error}"));
    }
    if let Some(ControllerView { leading: false, leader: None }) = view.controller {
        wrong.push(
            "no controller leads: traffic goes on, but no address is given and no status is published; look at the \
             controllers' logs and at the Lease (`leaderElection.lease` in the config)"
                .to_owned(),
        );
    }
    // A controller by itself has no routes to tell.
    let place =
        if is_controller(view) { "the objects' Events and the log tell" } else { "`sheave routes` tells" };
    match view.problems {
        0 => {}
        1 => wrong.push(format!("there is one Problem; {place} it")),
        count => wrong.push(format!("there are {count} Problems; {place} them")),
    }
    wrong
}

/// Whether it is a controller by itself, which forwards nothing.
fn is_controller(view: &StatusView) -> bool {
    view.role == "controller"
}

fn unsynced(view: &StatusView) -> Option<String> {
    let source = &view.source;
    let SourceView { synced, from_snapshot, server, .. } = source;
    let age = source.snapshot.as_ref().and_then(|snapshot| snapshot.age_seconds);
    let old = age.map(|age| format!(", {} old", span(age))).unwrap_or_default();
    match server {
        _ if *synced => None,
        Some(server) if is_controller(view) => {
            // One that does not lead watches nothing.
            let leads = view.controller.as_ref().is_some_and(|controller| controller.leading);
            leads.then(|| {
                format!(
                    "it decides nothing before the API server at {server} has answered: see that the server runs and can be \
                     reached from here"
                )
            })
        }
        Some(server) if *from_snapshot => Some(format!(
            "it serves by the snapshot{old}, and sees no changes until the API server at {server} has answered: see that the \
             server runs and can be reached from this node"
        )),
        Some(server) => Some(format!(
            "it serves nothing before the API server at {server} has answered: see that the server runs and can be reached \
             from this node"
        )),
        None => Some("it serves nothing before the folder can be listed: see that it is there".to_owned()),
    }
}

/// Kinds with the same error share a sentence: usually the server is away for all of them.
fn source_errors(kinds: &[KindView]) -> Vec<String> {
    let mut by_error: Vec<(&str, Vec<String>)> = Vec::new();
    for kind in kinds {
        let Some(error) = &kind.error else { continue };
        let name = format!("{}s", kind.kind);
        match by_error.iter_mut().find(|(known, _)| known == error) {
            Some((_, names)) => names.push(name),
            None => by_error.push((error, vec![name])),
        }
    }
    let sentence = |(error, names): (&str, Vec<String>)| {
        format!(
            "changes of {} are not heard of: {error}; what is known of them stays in force",
            names.join(", ")
        )
    };
    by_error.into_iter().map(sentence).collect()
}

fn doubted(guard: &GuardView) -> String {
    let GuardView { kind, there, listed, kept, remaining_seconds } = guard;
    format!(
        "the API server lists {listed} {kind}s where there were {there}: the {kept} that it lacks stay in force for another \
         {}, in case the list is wrong; if they were deleted on purpose, wait",
        span(*remaining_seconds)
    )
}

/// As much as people read: `42 s`, `3 min`, `5 h 20 min`, `9 d 4 h`.
fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{minutes} min"),
        7_200..172_800 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}
