//! Text of the status: what the process does, the source of its objects, and what is wrong, with remedies.

use super::{AnnouncingView, ControllerView, GuardView, KindView, ProcessView, SnapshotView, SourceView};
use crate::views::escape::line;
use crate::views::numbers::{counted, span};
use crate::views::problem::ProblemView;
use crate::views::services::ServiceCounts;
use crate::views::steering::SteeringView;
use crate::views::text_table::{columns, or_dash};

/// Role of a process that forwards nothing.
const CONTROLLER: &str = "controller";

/// The whole text, with a newline at the end.
pub(super) fn render(view: &ProcessView) -> String {
    let mut text = headline(view);
    text += &source(&view.source, "Source");
    if let Some(karmada) = &view.karmada {
        text += &format!("\n{}", source(karmada, "Karmada"));
    }
    text += &unwell(view);
    text += &unhealthy(view);
    let wrong = wrong(view);
    if wrong.is_empty() {
        return text + "\nNothing is wrong.\n";
    }
    text += "\nWhat is wrong, and what to do\n";
    text.extend(wrong.iter().map(|sentence| line(&format!("  - {sentence}"))));
    if let Some(ControllerView { problems, more_problems, .. }) = &view.controller {
        text += &listed("Problems that the controller reports", problems, *more_problems, "");
    }
    let more = view.problems.saturating_sub(view.first_problems.len());
    text + &listed("Problems", &view.first_problems, more, "; `sheave routes` lists all")
}

/// Services that are broken or degraded.
fn unwell(view: &ProcessView) -> String {
    if view.first_unwell.is_empty() {
        return String::new();
    }
    let mut text = "\nServices that are not well\n".to_owned();
    text.extend(view.first_unwell.iter().map(|service| line(&format!("  - {service}"))));
    let all = view.services.map_or(0, |counts| counts.broken + counts.degraded);
    let more = all.saturating_sub(view.first_unwell.len());
    if more > 0 {
        text += &format!("  and {more} more; `sheave top` lists all\n");
    }
    text
}

/// Endpoints that fail, even if their Services are not affected.
fn unhealthy(view: &ProcessView) -> String {
    if view.first_unhealthy.is_empty() {
        return String::new();
    }
    let mut text = "\nUnhealthy endpoints\n".to_owned();
    text.extend(view.first_unhealthy.iter().map(|endpoint| line(&format!("  - {endpoint}"))));
    let more = view.unhealthy_endpoints.saturating_sub(view.first_unhealthy.len());
    if more > 0 {
        text += &format!("  and {more} more\n");
    }
    text
}

/// List under a title; `where_else` names what lists `more`.
fn listed(title: &str, problems: &[ProblemView], more: usize, where_else: &str) -> String {
    if problems.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{title}\n");
    text.extend(problems.iter().map(|problem| line(&format!("  - {problem}"))));
    if more > 0 {
        text += &format!("  and {more} more{where_else}\n");
    }
    text
}

fn headline(view: &ProcessView) -> String {
    let ProcessView { version, role, node, generation, frontends, .. } = view;
    let up = span(view.uptime_seconds);
    let mut text = line(&format!("Sheave {version} ({role}) on node {node}, up for {up}."));
    if role != CONTROLLER {
        text += &format!("Routing table: generation {generation}, {}.\n", counted(*frontends, "frontend"));
    }
    text.extend(view.services.iter().map(|counts| {
        let ServiceCounts { broken, degraded, ok } = counts;
        format!("Services: {ok} serving, {degraded} degraded, {broken} broken.\n")
    }));
    text.extend(view.steering.iter().map(SteeringView::to_text));
    text.extend(view.steering.iter().filter_map(|steering| unreached(steering, *frontends)));
    text.extend(view.announcing.iter().map(announcing));
    match &view.controller {
        Some(ControllerView { leading: true, gateways, services, .. }) => {
            let gateways = counted(gateways.unwrap_or_default(), "gateway");
            let services = counted(services.unwrap_or_default(), "Service");
            text += &format!("Controller: this one leads; {gateways} ready, {services} served.\n");
        }
        Some(ControllerView { leader: Some(leader), .. }) => {
            text += &line(&format!("Controller: {leader} leads; this one is on standby."));
        }
        _ => {}
    }
    text
}

/// Number of frontends in the table that accept nothing, as a sentence.
fn unreached(steering: &SteeringView, frontends: usize) -> Option<String> {
    let unreached = frontends
        .checked_sub(steering.sockets + steering.steered + steering.kernel)
        .filter(|count| *count > 0)?;
    let accept = if unreached == 1 { "accepts" } else { "accept" };
    let unreached = counted(unreached, "frontend");
    Some(format!("Not reached: {unreached}, which {accept} nothing here; the Problems say why.\n"))
}

fn announcing(view: &AnnouncingView) -> String {
    let AnnouncingView { heard_by, counted, addresses, announced, .. } = view;
    if view.shared {
        return format!(
            "Announcing: {announced} of {addresses} addresses here, by BGP (`sheave gateways`).\n"
        );
    }
    format!(
        "Announcing: {announced} of {addresses} addresses here; heard by {heard_by} of {counted} gateways (`sheave gateways`).\n"
    )
}

fn source(source: &SourceView, title: &str) -> String {
    let mut text = match &source.server {
        Some(server) => line(&format!("{title}: API server {server}.")),
        None => format!("{title}: a folder of manifests.\n"),
    };
    if let Some(SnapshotView { path, age_seconds: Some(age), .. }) = &source.snapshot {
        text += &line(&format!("Snapshot: {path}, written {} ago.", span(*age)));
    }
    if source.kinds.is_empty() {
        return text;
    }
    let header = ["KIND", "OBJECTS", "LISTED", "LAST HEARD OF", "LISTED AGAIN"];
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

/// All that is wrong, worst first.
pub(super) fn wrong(view: &ProcessView) -> Vec<String> {
    let source = &view.source;
    let mut wrong = Vec::new();
    if view.lame_duck {
        wrong.push(
            "it is about to drain: it is not ready any more, but still accepts new connections".to_owned(),
        );
    }
    if view.draining {
        wrong.push("it is draining: nothing new is accepted, and open connections finish".to_owned());
    }
    wrong.extend(view.announcing.iter().flat_map(wrong_with_announcing));
    if view.worker_stuck {
        wrong.push(
            "a worker does not answer: its connections hang and it accepts nothing new; if that lasts, restart the process"
                .to_owned(),
        );
    }
    wrong.extend(unsynced(view, source, &LOCAL));
    wrong.extend(source_errors(&source.kinds, &LOCAL));
    if let Some(karmada) = &view.karmada {
        wrong.extend(unsynced(view, karmada, &KARMADA));
        wrong.extend(source_errors(&karmada.kinds, &KARMADA));
    }
    wrong.extend(view.guard.iter().map(doubted));
    for source in std::iter::once(source).chain(&view.karmada) {
        if let Some(SnapshotView { error: Some(error), .. }) = &source.snapshot {
            wrong.push(format!("the snapshot: {error}"));
        }
    }
    wrong.extend(view.controller.as_ref().and_then(no_leader));
    if let Some(ControllerView { gateways: Some(0), .. }) = view.controller
        && source.synced
    {
        wrong.push(
            "no gateway is ready, so nothing is served: check that gateways run, and that the Service of `gateways.service` in the config \
             selects their Pods"
                .to_owned(),
        );
    }
    wrong.extend(view.controller.as_ref().and_then(refused_writes));
    wrong.extend(view.controller.as_ref().and_then(problems_of_controller));
    wrong.extend(view.services.and_then(not_serving));
    wrong.extend(problems_of_gateway(view));
    if wrong.is_empty()
        && let Some(why) = &view.not_ready
    {
        wrong.push(format!("it is not ready: {why}"));
    }
    wrong
}

fn wrong_with_announcing(view: &AnnouncingView) -> Vec<String> {
    let AnnouncingView { state, heard_by, counted, warnings, .. } = view;
    let alone = match state.as_str() {
        "fenced" => Some(format!(
            "it announces no address: it is heard by {heard_by} of {counted} gateways, and needs more than half; check UDP \
             port `announce.heartbeat.port` between the gateways, and their keys"
        )),
        "minority" => Some(format!(
            "it announces addresses without a majority: it is heard by {heard_by} of {counted} gateways; restart the others, or \
             check UDP port `announce.heartbeat.port` between the gateways, and their keys"
        )),
        _ => None,
    };
    alone.into_iter().chain(warnings.iter().cloned()).collect()
}

fn problems_of_controller(view: &ControllerView) -> Option<String> {
    match view.problems.len() + view.more_problems {
        _ if view.problems.is_empty() => None,
        1 => Some("the controller reports one Problem, listed below".to_owned()),
        count => Some(format!("the controller reports {count} Problems, listed below")),
    }
}

fn problems_of_gateway(view: &ProcessView) -> Option<String> {
    match (view.problems, view.first_problems.len()) {
        _ if view.role == CONTROLLER => None,
        (0, _) => None,
        // An older version does not list them.
        (1, 0) => Some("there is one Problem; `sheave routes` shows it".to_owned()),
        (count, 0) => Some(format!("there are {count} Problems; `sheave routes` shows them")),
        (1, _) => Some("there is one Problem, listed below".to_owned()),
        (count, _) => Some(format!("there are {count} Problems, listed below")),
    }
}

fn not_serving(counts: ServiceCounts) -> Option<String> {
    let count =
        |number: usize, state| (number > 0).then(|| format!("{} {state}", counted(number, "Service")));
    let states: Vec<String> =
        [count(counts.broken, "broken"), count(counts.degraded, "degraded")].into_iter().flatten().collect();
    let all = counts.broken + counts.degraded;
    (all > 0).then(|| {
        let (are, each) = if all == 1 { ("is", "its") } else { ("are", "each one's") };
        format!(
            "there {are} {}, listed above; `sheave explain` tells {each} endpoints apart",
            states.join(" and ")
        )
    })
}

/// Problems of a controller itself. In the view of all gateways, these are the only ones shown for it.
pub(super) fn wrong_with_controller(view: &ControllerView) -> Vec<String> {
    no_leader(view).into_iter().chain(refused_writes(view)).collect()
}

fn no_leader(view: &ControllerView) -> Option<String> {
    (!view.leading && view.leader.is_none()).then(|| {
        "no controller leads: traffic continues, but no address is allocated and no status published; check the \
         controllers' logs and the Lease (`leaderElection.lease` in the config)"
            .to_owned()
    })
}

fn refused_writes(view: &ControllerView) -> Option<String> {
    let count = view.write_failures.filter(|count| *count > 0)?;
    Some(format!(
        "the API server keeps refusing what the controller writes to {}: see the Problems with the reason WriteRefused, here \
         or as Events; usually an admission webhook or policy is in the way",
        counted(count, "object")
    ))
}

/// How sentences name a source, and what is not served without it.
struct Names {
    server: &'static str,
    folder: &'static str,
    nothing: &'static str,
    by_snapshot: &'static str,
    of_it: &'static str,
}

const LOCAL: Names =
    Names { server: "API server", folder: "folder", nothing: "nothing", by_snapshot: "", of_it: "" };
/// Services are served even without this source.
const KARMADA: Names = Names {
    server: "Karmada API server",
    folder: "folder of the Karmada control plane",
    nothing: "no MultiClusterService",
    by_snapshot: " MultiClusterServices",
    of_it: " of the Karmada control plane",
};

fn unsynced(view: &ProcessView, source: &SourceView, names: &Names) -> Option<String> {
    let SourceView { synced, from_snapshot, server, .. } = source;
    let Names { server: it, folder, nothing, by_snapshot, of_it: _ } = names;
    let age = source.snapshot.as_ref().and_then(|snapshot| snapshot.age_seconds);
    let old = age.map(|age| format!(", {} old", span(age))).unwrap_or_default();
    match server {
        _ if *synced => None,
        Some(server) if view.role == CONTROLLER => Some(format!(
            "it leads, but allocates no address and writes no status until the {it} at {server} answers: check that the \
             server runs and is reachable from this node"
        )),
        Some(server) if *from_snapshot => Some(format!(
            "it serves{by_snapshot} from the snapshot{old}, and sees no changes until the {it} at {server} answers: check \
             that the server runs and is reachable from this node"
        )),
        Some(server) => Some(format!(
            "it serves {nothing} until the {it} at {server} answers: check that the server runs and is reachable from \
             this node"
        )),
        None => Some(format!("it serves {nothing} until the {folder} can be listed: check that it exists")),
    }
}

/// One sentence for all kinds with the same error, which usually means that the server is unreachable.
fn source_errors(kinds: &[KindView], source: &Names) -> Vec<String> {
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
        let away = error.contains("cannot be reached");
        let advice = if away { ": check that the server runs and is reachable from this node" } else { "" };
        format!(
            "{}{} cannot be watched: {error}; their last known state stays in force{advice}",
            names.join(", "),
            source.of_it
        )
    };
    by_error.into_iter().map(sentence).collect()
}

fn doubted(guard: &GuardView) -> String {
    let GuardView { kind, there, listed, kept, remaining_seconds } = guard;
    format!(
        "the API server lists {listed} {kind}s where there were {there}: the {kept} missing ones stay in force for another \
         {} in case the list is wrong; if they were deleted on purpose, wait",
        span(*remaining_seconds)
    )
}
