//! Builds the views of sources, guard, snapshot and controller from their status.

use std::time::Instant;

use sheave_control::api::kinds::counts;
use sheave_control::api::store::{ControlPlane, Objects};
use sheave_control::controller::ControllerStatus;
use sheave_control::sources::api_server::KindStatus;
use sheave_control::sources::mass_deletion_guard::HeldKind;
use sheave_control::sources::snapshot::SnapshotWriter;

use super::{ControllerView, GuardView, KindView, SnapshotView, SourceView};
use crate::views::problem::ProblemView;

/// View of a folder, which is `listed` as a whole or not at all. Files have no watch, so there is no time of the
/// last event, and they need no snapshot.
pub fn of_manifests(part: ControlPlane, objects: &Objects, listed: bool) -> SourceView {
    let kind = |(kind, objects): (&str, usize)| KindView {
        kind: kind.to_owned(),
        synced: listed,
        objects,
        ..KindView::default()
    };
    SourceView {
        kind: "manifests".to_owned(),
        synced: listed,
        kinds: counts(part, objects).into_iter().map(kind).collect(),
        ..SourceView::default()
    }
}

/// Counts the objects of a snapshot in place of those that the API server has not listed yet.
pub fn recount(kinds: &mut [KindView], part: ControlPlane, objects: &Objects) {
    for (name, count) in counts(part, objects) {
        for kind in kinds.iter_mut().filter(|kind| kind.kind == name) {
            kind.objects = count;
        }
    }
}

/// View of an API server with these kinds. A source without kinds is synced.
pub fn of_api(server: &str, kinds: &[KindStatus]) -> SourceView {
    let view = |kind: &KindStatus| KindView {
        kind: kind.kind.to_owned(),
        synced: kind.synced,
        objects: kind.objects,
        last_heard_seconds: kind.heard.map(|heard| heard.elapsed().as_secs()),
        restarts: kind.lists.saturating_sub(1),
        watches: kind.restarts,
        error: kind.error.clone(),
    };
    SourceView {
        kind: "api".to_owned(),
        server: Some(server.to_owned()),
        synced: kinds.iter().all(|kind| kind.synced || !kind.needed),
        kinds: kinds.iter().map(view).collect(),
        ..SourceView::default()
    }
}

/// View of the snapshot on disk.
pub fn of_snapshots(snapshots: &SnapshotWriter) -> SnapshotView {
    let written = snapshots.last_written();
    let age = written.map(|written| jiff::Timestamp::now().duration_since(written).as_secs());
    SnapshotView {
        path: snapshots.path().display().to_string(),
        written_at: written.map(|written| written.to_string()),
        age_seconds: age.map(|age| u64::try_from(age).unwrap_or_default()),
        error: snapshots.error().map(str::to_owned),
    }
}

/// View of the lists that are held back.
pub fn of_guard(held: &[HeldKind]) -> Vec<GuardView> {
    let view = |held: &HeldKind| GuardView {
        kind: held.kind.to_owned(),
        there: held.there,
        listed: held.listed,
        kept: held.kept,
        remaining_seconds: held.until.saturating_duration_since(Instant::now()).as_secs(),
    };
    held.iter().map(view).collect()
}

/// View of a controller.
pub fn of_controller(status: &ControllerStatus) -> ControllerView {
    let listed = status.first_problems.iter().map(|problem| ProblemView::new(problem, None));
    ControllerView {
        leading: status.leading,
        leader: status.leader.clone(),
        gateways: status.leading.then_some(status.gateways),
        services: status.leading.then_some(status.services),
        write_failures: status.leading.then_some(status.write_failures),
        problems: listed.collect(),
        more_problems: status.problems.saturating_sub(status.first_problems.len()),
    }
}

#[cfg(test)]
mod tests {
    use sheave_control::api::problem::{ObjectRef, Problem, reason};
    use sheave_control::controller::FIRST_PROBLEMS;

    use super::*;

    #[test]
    fn what_the_snapshot_holds_is_counted_though_nothing_was_listed() {
        let kind = |kind: &str| KindView { kind: kind.to_owned(), ..KindView::default() };
        let mut kinds = [kind("Service"), kind("Node")];
        let mut objects = Objects::default();
        objects.nodes.insert("a".into(), std::sync::Arc::default());
        recount(&mut kinds, ControlPlane::Local, &objects);
        assert_eq!(kinds.map(|kind| kind.objects), [0, 1]);
    }

    #[test]
    fn the_first_problems_of_a_leader_are_listed_and_the_others_counted() {
        let problem = Problem {
            object: ObjectRef { kind: "Service", namespace: "shop".into(), name: "web".into() },
            reason: reason::NO_ADDRESS,
            field: String::new(),
            message: "no pool has an address".to_owned(),
            port: None,
        };
        let problem = std::sync::Arc::new(problem);
        let first_problems = vec![problem; FIRST_PROBLEMS];
        let leads = ControllerStatus {
            leading: true,
            gateways: 1,
            services: 3,
            problems: FIRST_PROBLEMS + 2,
            first_problems,
            ..ControllerStatus::default()
        };
        let view = of_controller(&leads);
        assert_eq!(
            (view.gateways, view.services, view.problems.len(), view.more_problems),
            (Some(1), Some(3), FIRST_PROBLEMS, 2)
        );
        assert_eq!(of_controller(&ControllerStatus::default()), ControllerView::default());
    }
}
