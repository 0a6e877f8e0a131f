//! Other things in place of a snapshot: a gateway must never hang on one that cannot be read to its end or overwritten.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::api::kinds;

const INSTEAD: &str = "it is not used, and the gateway waits for the API server";

/// The error of a read after `make` put something in the snapshot's place, which a good snapshot then replaces.
fn told_of(make: impl FnOnce(&Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = path(dir.path(), ControlPlane::Local);
    make(&file);
    let told = read(dir.path(), &identity()).unwrap_err().to_string();
    assert!(told.starts_with(&file.display().to_string()) && told.ends_with(INSTEAD), "{told}");
    write(dir.path(), &identity(), &objects()).unwrap();
    assert_eq!(read(dir.path(), &identity()).unwrap().unwrap().objects, objects());
    assert_eq!(files(dir.path()), ["snapshot.jsonl"]);
    told
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn nobody_waits_for_a_fifo_or_reads_a_device() {
    let told = told_of(make_fifo);
    assert!(told.contains("cannot be read: it is not a regular file"), "{told}");
    let told = told_of(|path| symlink("/dev/zero", path).unwrap());
    assert!(told.contains("cannot be read: it is not a regular file"), "{told}");
    let told = told_of(|path| symlink("snapshot.jsonl", path).unwrap());
    assert!(told.contains("cannot be read: Too many levels of symbolic links"), "{told}");
}

#[test]
fn a_directory_is_told_of_with_what_to_do_about_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = path(dir.path(), ControlPlane::Local);
    fs::create_dir(&file).unwrap();
    let told = read(dir.path(), &identity()).unwrap_err().to_string();
    assert!(told.contains("it is not a regular file"), "{told}");
    let error = write(dir.path(), &identity(), &objects()).unwrap_err();
    assert_eq!(error.advice(dir.path()), format!("remove the directory {}", file.display()));
}

#[test]
fn no_more_is_read_of_a_huge_file_than_a_line_may_have() {
    const LENGTH: u64 = 10 << 30;
    let told = told_of(|path| File::create(path).unwrap().set_len(LENGTH).unwrap());
    assert!(told.contains("is damaged: line 1 is longer than 65536 bytes"), "{told}");
    let told = told_of(|path| {
        let header = bytes(&objects()).split_inclusive(|byte| *byte == b'\n').next().unwrap().to_vec();
        fs::write(path, header).unwrap();
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(LENGTH).unwrap();
    });
    assert!(told.contains("is damaged: line 2 is longer than 16777216 bytes"), "{told}");
}

/// Somewhat larger than the largest object of an API server.
#[test]
fn a_large_object_comes_back() {
    let mut store = Store::default();
    let annotations = BTreeMap::from([("x".to_owned(), "\u{1}\"".repeat(1 << 20))]);
    let metadata =
        ObjectMeta { name: Some("web".into()), annotations: Some(annotations), ..ObjectMeta::default() };
    store.put::<kinds::Services>(Service { metadata, ..Service::default() });
    let objects = store.objects();
    assert_eq!(decode(bytes(objects).as_slice(), &identity()).unwrap().objects, *objects);
}

/// A process that is killed during a write leaves a file of any length next to the snapshot, and nothing else.
#[test]
fn a_write_that_broke_off_anywhere_leaves_the_old_snapshot_in_use() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &identity(), &objects()).unwrap();
    let newer = bytes(&Objects::default());
    for length in 0..=newer.len() {
        fs::write(dir.path().join(format!(".snapshot-{length:016x}")), &newer[..length]).unwrap();
        assert_eq!(read(dir.path(), &identity()).unwrap().unwrap().objects, objects());
    }
    folder::remove_leftovers(dir.path(), ControlPlane::Local);
    assert_eq!(files(dir.path()), ["snapshot.jsonl"]);
}
