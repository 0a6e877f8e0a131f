//! Real inotify, with every way in which editors and ConfigMap mounts change a folder. The tests wait for events and never only
//! for time.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// Long enough for a loaded machine, and shorter than RESYNC, so that what arrives in time was reported by the kernel.
const DEADLINE: Duration = Duration::from_secs(8);

fn service(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n")
}

fn names(loaded: &Loaded) -> Vec<String> {
    loaded.objects.services.keys().map(|key| key.name.to_string()).collect()
}

/// Waits for a state with exactly these Services.
async fn expect(watch: &mut FileWatch, wanted: &[&str]) -> Arc<Loaded> {
    let found = timeout(DEADLINE, async {
        loop {
            let loaded = watch.next().await.unwrap();
            if names(&loaded) == wanted {
                return loaded;
            }
        }
    });
    found.await.unwrap_or_else(|_| panic!("{wanted:?} did not come"))
}

/// A watched folder with one file, whose first state was received.
async fn watched() -> (TempDir, FileWatch) {
    let dir = tempfile::tempdir().unwrap();
    // A folder inside, so that tests do not get each other's events through the parent folder.
    let inside = dir.path().join("manifests");
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("a.yaml"), service("a")).unwrap();
    let mut watch = watch(&inside);
    expect(&mut watch, &["a"]).await;
    (dir, watch)
}

#[tokio::test]
async fn files_written_renamed_over_and_deleted_take_effect() {
    let (dir, mut watch) = watched().await;
    let inside = dir.path().join("manifests");
    fs::write(inside.join("b.yaml"), service("b")).unwrap();
    expect(&mut watch, &["a", "b"]).await;
    // Like an editor that saves: a new file replaces the old one.
    fs::write(inside.join(".a.yaml.new"), service("c")).unwrap();
    fs::rename(inside.join(".a.yaml.new"), inside.join("a.yaml")).unwrap();
    expect(&mut watch, &["b", "c"]).await;
    fs::remove_file(inside.join("b.yaml")).unwrap();
    expect(&mut watch, &["c"]).await;
}

#[tokio::test]
async fn an_empty_folder_has_a_first_state_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = watch(dir.path());
    let first = expect(&mut watch, &[]).await;
    assert!(first.problems.is_empty());
}

#[tokio::test]
async fn a_broken_file_is_told_and_keeps_its_objects() {
    let (dir, mut watch) = watched().await;
    fs::write(dir.path().join("manifests/a.yaml"), "a: b: c\n").unwrap();
    let loaded = expect(&mut watch, &["a"]).await;
    assert_eq!(loaded.problems.len(), 1);
}

#[tokio::test]
async fn a_file_written_in_place_step_by_step_never_loses_what_it_gave() {
    let (dir, mut watch) = watched().await;
    let path = dir.path().join("manifests/a.yaml");
    let whole = service("a") + &service("b");
    fs::write(&path, &whole).unwrap();
    expect(&mut watch, &["a", "b"]).await;
    // The file is emptied, and the arrival of another file shows that the empty one was scanned.
    let mut file = fs::File::create(&path).unwrap();
    fs::write(dir.path().join("manifests/c.yaml"), service("c")).unwrap();
    let seen = watch.next().await.unwrap();
    assert_eq!(names(&seen), ["a", "b", "c"]);
    std::io::Write::write_all(&mut file, service("a").as_bytes()).unwrap();
    fs::write(dir.path().join("manifests/d.yaml"), service("d")).unwrap();
    let seen = watch.next().await.unwrap();
    assert_eq!(names(&seen), ["a", "b", "c", "d"]);
    std::io::Write::write_all(&mut file, service("b").as_bytes()).unwrap();
    drop(file);
    // An intended deletion takes effect without another event.
    fs::write(&path, service("a")).unwrap();
    expect(&mut watch, &["a", "c", "d"]).await;
}

#[tokio::test]
async fn a_mounted_config_map_is_followed_when_its_data_link_is_swapped() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("mounted");
    for (version, name) in [("..1", "a"), ("..2", "b")] {
        fs::create_dir_all(inside.join(version)).unwrap();
        fs::write(inside.join(version).join("web.yaml"), service(name)).unwrap();
    }
    symlink("..1", inside.join("..data")).unwrap();
    symlink("..data/web.yaml", inside.join("web.yaml")).unwrap();
    let mut watch = watch(&inside);
    expect(&mut watch, &["a"]).await;
    // Like the kubelet's AtomicWriter: a new link is renamed over the old one, and the old version is deleted.
    symlink("..2", inside.join("..data_tmp")).unwrap();
    fs::rename(inside.join("..data_tmp"), inside.join("..data")).unwrap();
    fs::remove_dir_all(inside.join("..1")).unwrap();
    expect(&mut watch, &["b"]).await;
}

#[tokio::test]
async fn a_folder_deleted_and_made_again_is_watched_again() {
    let (dir, mut watch) = watched().await;
    let inside = dir.path().join("manifests");
    for name in ["b", "c"] {
        fs::remove_dir_all(&inside).unwrap();
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("a.yaml"), service(name)).unwrap();
        expect(&mut watch, &[name]).await;
        fs::write(inside.join("b.yaml"), service("later")).unwrap();
        expect(&mut watch, &[name, "later"]).await;
    }
}

#[tokio::test]
async fn a_folder_that_goes_keeps_its_objects_until_another_takes_its_place() {
    let (dir, mut watch) = watched().await;
    let inside = dir.path().join("manifests");
    fs::rename(&inside, dir.path().join("old")).unwrap();
    let kept = expect(&mut watch, &["a"]).await;
    assert_eq!(kept.problems.len(), 1);
    fs::create_dir(dir.path().join("new")).unwrap();
    fs::write(dir.path().join("new/a.yaml"), service("b")).unwrap();
    fs::rename(dir.path().join("new"), &inside).unwrap();
    let replaced = expect(&mut watch, &["b"]).await;
    assert!(replaced.problems.is_empty());
}

#[tokio::test]
async fn a_folder_that_is_a_link_is_followed_when_the_link_is_swapped() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("web.yaml"), service(name)).unwrap();
    }
    let link = dir.path().join("current");
    symlink("a", &link).unwrap();
    let mut watch = watch(&link);
    expect(&mut watch, &["a"]).await;
    symlink("b", dir.path().join("next")).unwrap();
    fs::rename(dir.path().join("next"), &link).unwrap();
    expect(&mut watch, &["b"]).await;
    fs::write(dir.path().join("b/more.yaml"), service("more")).unwrap();
    expect(&mut watch, &["b", "more"]).await;
}

#[tokio::test]
async fn a_single_file_is_watched() {
    let (dir, _) = watched().await;
    let file = dir.path().join("manifests/a.yaml");
    let mut watch = watch(&file);
    expect(&mut watch, &["a"]).await;
    for name in ["b", "c"] {
        fs::write(&file, service(name)).unwrap();
        expect(&mut watch, &[name]).await;
    }
}

#[tokio::test]
async fn what_the_kernel_cannot_watch_is_polled_until_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("not/yet");
    let mut watch = watch(&inside);
    let first = expect(&mut watch, &[]).await;
    assert_eq!(first.problems.len(), 1);
    fs::create_dir_all(&inside).unwrap();
    fs::write(inside.join("a.yaml"), service("a")).unwrap();
    expect(&mut watch, &["a"]).await;
    fs::write(inside.join("b.yaml"), service("b")).unwrap();
    expect(&mut watch, &["a", "b"]).await;
}

#[tokio::test]
async fn writing_without_a_pause_does_not_keep_other_changes_back() {
    let (dir, mut watch) = watched().await;
    let inside = dir.path().join("manifests");
    let noise = inside.join("noise.txt");
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let writer = spawn_blocking(move || {
        while stopped.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty) {
            fs::write(&noise, "x").unwrap();
        }
    });
    fs::write(inside.join("b.yaml"), service("b")).unwrap();
    expect(&mut watch, &["a", "b"]).await;
    stop.send(()).unwrap();
    writer.await.unwrap();
}

#[tokio::test]
async fn each_of_many_changes_takes_effect_soon_after_it_was_made() {
    const CHANGES: usize = 25;
    let (dir, mut watch) = watched().await;
    let inside = dir.path().join("manifests");
    let (mut states, mut newest) = (0, Vec::new());
    let mut next = tokio::time::interval(Duration::from_millis(40));
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for change in 0..CHANGES {
        next.tick().await;
        fs::write(inside.join(".new"), service(&format!("s{change}"))).unwrap();
        fs::rename(inside.join(".new"), inside.join("b.yaml")).unwrap();
        while let Ok(Some(loaded)) = timeout(Duration::ZERO, watch.next()).await {
            states += 1;
            newest = names(&loaded);
        }
    }
    // One state for each change that is 40 ms after the previous one, instead of two states a second for all.
    assert!(states >= CHANGES / 4, "{states} states for {CHANGES} changes");
    // A busy machine may have shown the last one already.
    let last = ["a", &format!("s{}", CHANGES - 1)];
    if newest != last {
        expect(&mut watch, &last).await;
    }
}

#[tokio::test]
async fn our_own_reading_raises_no_alarm() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), service("a")).unwrap();
    let mut alarm = Alarm::new(dir.path());
    alarm.arm();
    let mut folder = Folder::new(dir.path().to_owned(), ControlPlane::Local);
    assert!(folder.scan().changed && !folder.scan().unsettled);
    assert!(timeout(4 * UNSETTLED, alarm.bell.notified()).await.is_err());
    fs::write(dir.path().join("b.yaml"), service("b")).unwrap();
    timeout(DEADLINE, alarm.raised(false)).await.unwrap();
}

#[tokio::test]
async fn dropping_the_watch_ends_the_watching() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, states) = watch::channel(None);
    let task = tokio::spawn(follow(dir.path().to_owned(), ControlPlane::Local, sender));
    drop(states);
    timeout(DEADLINE, task).await.unwrap().unwrap();
}
