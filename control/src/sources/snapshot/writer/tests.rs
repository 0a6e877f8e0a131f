//! Times of writes on a simulated clock, and the handling of failures.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::api::store::ControlPlane;
use crate::sources::snapshot::tests::{identity, objects};
use crate::sources::snapshot::{path, read};
use tempfile::TempDir;

fn writer(dir: &TempDir) -> SnapshotWriter {
    SnapshotWriter::new(dir.path(), identity(), None)
}

/// Acts like the gateway's loop until nothing happens for `time`. Returns the times at which writes started.
async fn idle_for(writer: &mut SnapshotWriter, time: Duration) -> Vec<Duration> {
    let begun = Instant::now();
    let mut starts = Vec::new();
    while tokio::time::timeout_at(begun + time, writer.due()).await.is_ok() {
        starts.push(begun.elapsed());
        writer.start(&objects());
    }
    starts
}

fn seconds(starts: &[Duration]) -> Vec<u64> {
    starts.iter().map(Duration::as_secs).collect()
}

#[tokio::test(start_paused = true)]
async fn the_first_write_is_soon_and_the_next_ones_are_rare() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(&dir);
    assert!(idle_for(&mut writer, Duration::from_secs(100)).await.is_empty(), "nothing changed");
    writer.changed();
    writer.changed();
    assert_eq!(seconds(&idle_for(&mut writer, Duration::from_secs(100)).await), [1]);
    let written = writer.last_written();
    assert_eq!(read(dir.path(), &identity()).unwrap().unwrap().written_at, written.unwrap());
    writer.changed();
    writer.start(&objects());
    writer.changed();
    assert_eq!(seconds(&idle_for(&mut writer, Duration::from_secs(100)).await), [10]);
    assert!(writer.last_written() > written);
    assert_eq!(writer.error(), None);
}

#[tokio::test(start_paused = true)]
async fn a_flush_writes_what_is_not_written_and_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(&dir);
    writer.flush(&objects()).await;
    assert_eq!(read(dir.path(), &identity()).unwrap(), None, "nothing was worth keeping yet");
    writer.changed();
    writer.flush(&objects()).await;
    let inode = fs::metadata(path(dir.path(), ControlPlane::Local)).unwrap().ino();
    writer.flush(&objects()).await;
    assert_eq!(fs::metadata(path(dir.path(), ControlPlane::Local)).unwrap().ino(), inode);
    writer.changed();
    writer.start(&Objects::default());
    // A write in progress is awaited, and changes of the meantime follow.
    writer.changed();
    writer.flush(&objects()).await;
    assert_eq!(read(dir.path(), &identity()).unwrap().unwrap().objects, objects());
}

#[tokio::test(start_paused = true)]
async fn leftovers_go_with_the_first_write() {
    let dir = tempfile::tempdir().unwrap();
    let leftover = dir.path().join(".snapshot-00");
    fs::write(&leftover, "half").unwrap();
    let mut writer = writer(&dir);
    assert!(leftover.exists(), "a new writer touches nothing");
    writer.changed();
    writer.flush(&objects()).await;
    assert!(!leftover.exists());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_written_is_tried_again_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    // A file in place of the directory: not even root can write into it.
    let state = dir.path().join("state");
    fs::write(&state, "").unwrap();
    let known = Some(Timestamp::UNIX_EPOCH);
    let mut writer = SnapshotWriter::new(&state, identity(), known);
    writer.changed();
    assert_eq!(seconds(&idle_for(&mut writer, Duration::from_secs(35)).await), [1, 11, 21, 31]);
    let error = writer.error().expect("it failed");
    assert!(error.contains(&state.display().to_string()), "{error}");
    assert_eq!(writer.last_written(), known, "what was there before is still there");
    fs::remove_file(&state).unwrap();
    assert_eq!(seconds(&idle_for(&mut writer, Duration::from_secs(100)).await), [6]);
    assert_eq!(writer.error(), None);
    assert_eq!(read(&state, &identity()).unwrap().unwrap().objects, objects());
}

#[test]
fn what_takes_long_is_written_seldom() {
    let pauses = [0, 250, 500, 60_000].map(|took| pause_after(Duration::from_millis(took)));
    assert_eq!(pauses, [EVERY, EVERY, Duration::from_secs(20), LONGEST]);
}
