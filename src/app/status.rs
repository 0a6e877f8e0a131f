//! What the status says of sources and of the controller.

use std::collections::BTreeMap;
use std::time::Instant;

use sheave_control::controller::ControllerStatus;
use sheave_control::guard::Held;
use sheave_control::snapshot::SnapshotWriter;
use sheave_control::source::api::KindStatus;
use sheave_control::store::Objects;

use crate::status::{ControllerView, GuardView, KindView, SnapshotView, SourceView};

/// The objects of a folder, which is `listed` as a whole or not at all. Files say nothing by themselves, so there is no time
/// at which a kind was last heard of; nor is a snapshot needed beside them.
pub(crate) fn of_manifests(objects: &Objects, listed: bool) -> SourceView {
    let counts = [
        ("Service", objects.services.len()),
        ("EndpointSlice", objects.slices.values().map(BTreeMap::len).sum()),
        ("Node", objects.nodes.len()),
        ("Namespace", objects.namespaces.len()),
        ("AddressPool", objects.pools.len()),
    ];
    let kind = |(kind, objects): (&str, usize)| KindView {
        kind: kind.to_owned(),
        synced: listed,
        objects,
        ..KindView::default()
    };
    SourceView {
        kind: "manifests".to_owned(),
        synced: listed,
        kinds: counts.map(kind).to_vec(),
        ..SourceView::default()
    }
}

/// Of an API server whose kinds are known so well.
pub(crate) fn of_api(server: &str, kinds: &[KindStatus]) -> SourceView {
    let view = |kind: &KindStatus| KindView {
        kind: kind.kind.to_owned(),
        synced: kind.synced,
        objects: kind.objects,
        last_heard_seconds: kind.heard.map(|heard| heard.elapsed().as_secs()),
        restarts: kind.restarts,
        error: kind.error.clone(),
    };
    SourceView {
        kind: "api".to_owned(),
        server: Some(server.to_owned()),
        synced: !kinds.is_empty() && kinds.iter().all(|kind| kind.synced),
        kinds: kinds.iter().map(view).collect(),
        ..SourceView::default()
    }
}

/// Of what is on the disk.
pub(crate) fn of_snapshots(snapshots: &SnapshotWriter) -> SnapshotView {
    let written = snapshots.last_written();
    let age = written.map(|written| jiff::Timestamp::now().duration_since(written).as_secs());
    SnapshotView {
        path: snapshots.path().display().to_string(),
        written_at: written.map(|written| written.to_string()),
        age_seconds: age.map(|age| u64::try_from(age).unwrap_or_default()),
        error: snapshots.error().map(str::to_owned),
    }
}

/// Of the lists that are doubted.
pub(crate) fn of_guard(held: &[Held]) -> Vec<GuardView> {
    let view = |held: &Held| GuardView {
        kind: held.kind.to_owned(),
        there: held.there,
        listed: held.listed,
        kept: held.kept,
        remaining_seconds: held.until.saturating_duration_since(Instant::now()).as_secs(),
    };
    held.iter().map(view).collect()
}

/// Of a controller.
pub(crate) fn of_controller(status: &ControllerStatus) -> ControllerView {
    ControllerView { leading: status.leading, leader: status.leader.clone() }
}
