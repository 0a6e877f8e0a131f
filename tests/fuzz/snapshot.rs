//! Fuzz target: any bytes as a snapshot, and any text as its lines, with a matching last line. It is loaded as a whole or
//! refused with an error; a loaded one can be projected, written and loaded again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use crate::invariants::{check, scratch};
use serde_json::json;
use sheave_control::api::store::ControlPlane;
use sheave_control::sources::snapshot::{self, Identity, Snapshot, SnapshotError};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| scratch().expect("a temporary folder"));

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let part = if first & 1 == 0 { ControlPlane::Local } else { ControlPlane::Karmada };
    let sealed = if first & 2 == 0 { rest.to_vec() } else { sealed(rest) };
    let (dir, identity) = (FOLDER.path(), identity(part));
    std::fs::write(snapshot::path(dir, part), sealed).expect("the temporary folder can be written");
    let Some(loaded) = load(dir, &identity) else { return };
    check(&loaded.objects);
    snapshot::write(dir, &identity, &loaded.objects).expect("it can be written again");
    let again = load(dir, &identity).expect("what was written can be read");
    assert_eq!(count(&again), count(&loaded));
    check(&again.objects);
}

fn load(dir: &Path, identity: &Identity) -> Option<Snapshot> {
    match snapshot::read(dir, identity) {
        Ok(loaded) => loaded,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(".jsonl") && text.contains("it is not used"), "{text}");
            assert!(text.len() < 4096 || matches!(error, SnapshotError::OtherCluster { .. }), "{text}");
            None
        }
    }
}

/// These lines with a matching first and last line.
fn sealed(lines: &[u8]) -> Vec<u8> {
    let header = json!({
        "sheaveSnapshot": 1, "sheave": "0", "server": "https://a/", "cluster": "c", "writtenAt": "2026-01-01T00:00:00Z",
    });
    let mut text = format!("{header}\n").into_bytes();
    text.extend(lines);
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let objects = text.iter().filter(|byte| **byte == b'\n').count() - 1;
    let end = json!({"end": {"objects": objects, "crc32": crc32fast::hash(&text)}});
    text.extend(format!("{end}\n").into_bytes());
    text
}

fn identity(part: ControlPlane) -> Identity {
    Identity { part, server: "https://a/".to_owned(), cluster: "c".to_owned(), authorities: BTreeSet::new() }
}

fn count(snapshot: &Snapshot) -> [usize; 6] {
    let objects = &snapshot.objects;
    let fleet = &objects.fleet;
    let works = fleet.works.values().map(BTreeMap::len).sum();
    [
        objects.services.len(),
        objects.nodes.len(),
        objects.pools.len(),
        fleet.services.len(),
        works,
        fleet.clusters.len(),
    ]
}
