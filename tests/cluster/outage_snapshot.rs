//! Tests of unusable snapshots, and of none at all: the gateway reports it, waits for the API server, and then serves.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use crate::outage_kit::{
    address, published_service, serve_web, wait_for_answer, wait_for_snapshot, wait_for_status,
};
use crate::stage::{Home, Role, Stage};
use crate::support::cluster::Cluster;
use crate::support::road::Road;

/// Folder in which not even root can create a file.
const READ_ONLY: &str = "/sys/kernel";

/// Runs a program of the system to its end.
fn run(program: &str, arguments: &[&str]) {
    let status =
        Command::new(program).args(arguments).status().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        status.success(),
        "{program} {arguments:?}: {status}; file systems are mounted by root, or in tests/run"
    );
}

/// Gives this thread, and those that it starts from now on, a mount namespace of their own.
fn own_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace takes root, or tests/run");
    run("mount", &["--make-rprivate", "/"]);
}

/// A small file system in memory, which is removed when this is dropped.
struct Disk(PathBuf);

impl Disk {
    const SIZE: usize = 256 << 10;

    fn mount(at: &Path) -> Self {
        fs::create_dir(at).unwrap();
        run(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={}", Self::SIZE), "tmpfs", &at.display().to_string()],
        );
        Self(at.to_owned())
    }

    /// Creates a file that fills the disk completely.
    fn fill(&self) -> PathBuf {
        let file = self.0.join("filler");
        fs::write(&file, vec![0; Self::SIZE]).expect_err("there is a snapshot as well");
        file
    }
}

impl Disk {
    /// Makes it read-only until `writable`, by a mount over it, since the kernel refuses to remount a file system with files that are open for
    /// writing.
    fn read_only(&self) {
        let at = self.0.display().to_string();
        run("mount", &["--bind", &at, &at]);
        run("mount", &["-o", "remount,bind,ro", &at]);
    }

    fn writable(&self) {
        run("umount", &[&self.0.display().to_string()]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Another process may still use it.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// Runs a case with one Service and its endpoints.
fn with_web(name: &str, case: impl FnOnce(&Cluster, &Stage<'_>)) {
    let cluster = Cluster::start(name);
    let stage = Stage::new(&cluster);
    let _endpoints = serve_web(&cluster, &stage, 110);
    case(&cluster, &stage);
}

/// Starts a gateway that cannot reach the server. It must report this, serve nothing, and serve once the server answers.
fn waits_for_the_server(stage: &Stage<'_>, home: &Home, road: &Road<'_>, told: &[&str]) {
    road.close();
    let mut gateway = stage.launch(home);
    told.iter().for_each(|part| gateway.wait_for_log(part));
    gateway.wait_for_log("the API server cannot be reached: ");
    let why = "not ready: objects have not been listed from the API server yet; see /api/status\n";
    assert_eq!(gateway.readiness().unwrap(), (503, why.to_owned()));
    let status = gateway.page("/api/status");
    assert_eq!(
        (&status["source"]["fromSnapshot"], &status["frontends"]),
        (&false.into(), &0.into()),
        "{status}"
    );
    stage.ask(address(110), 80).unwrap_err();
    road.reopen();
    gateway.wait_until_ready();
    assert_eq!(stage.ask(address(110), 80).unwrap(), "endpoint-0");
    // A good snapshot replaces whatever was there.
    wait_for_status(&gateway, "the snapshot is new", |status| {
        status["source"]["snapshot"]["writtenAt"].is_string()
            && status["source"]["snapshot"]["error"].is_null()
    });
}

/// Lines of a snapshot, except the last one.
fn lines_of(snapshot: &Path) -> Vec<Value> {
    let text = fs::read_to_string(snapshot).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.pop();
    lines
}

/// Writes a snapshot of these lines, with a matching last line.
fn seal(snapshot: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let end = json!({"end": {"objects": lines.len() - 1, "crc32": crc32fast::hash(text.as_bytes())}});
    fs::write(snapshot, format!("{text}{end}\n")).unwrap();
}

/// Makes a gateway write its snapshot, and ends it.
fn write_snapshot(stage: &Stage<'_>, home: &Home) {
    let gateway = stage.start(home);
    wait_for_snapshot(&gateway);
    assert!(gateway.stop().success());
}

#[test]
fn the_first_start_waits_for_the_server() {
    with_web("first", |_, stage| {
        let road = stage.road();
        let home = stage.home(Role::Gateway, &road, "");
        waits_for_the_server(stage, &home, &road, &[]);
        assert!(home.snapshot().is_file());
    });
}

#[test]
fn a_damaged_snapshot_is_not_used() {
    with_web("damaged", |_, stage| {
        let road = stage.road();
        let home = stage.home(Role::Gateway, &road, "");
        write_snapshot(stage, &home);
        // A single flipped bit would send clients elsewhere.
        let text = fs::read_to_string(home.snapshot()).unwrap();
        assert!(text.contains("10.1.0.7"), "{text}");
        fs::write(home.snapshot(), text.replacen("10.1.0.7", "10.1.0.5", 1)).unwrap();
        let told =
            ["snapshot.jsonl is damaged: ", "it is not used, and the gateway waits for the API server"];
        waits_for_the_server(stage, &home, &road, &told);
    });
}

#[test]
fn a_snapshot_of_another_cluster_is_not_used() {
    with_web("other", |_, stage| {
        let (theirs, ours) = (stage.road(), stage.road());
        let (home_there, home) =
            (stage.home(Role::Gateway, &theirs, ""), stage.home(Role::Gateway, &ours, "cluster: here\n"));
        write_snapshot(stage, &home_there);
        fs::create_dir(home.state()).unwrap();
        fs::copy(home_there.snapshot(), home.snapshot()).unwrap();
        let told = ["is from cluster local at ", "and this gateway serves cluster here at "];
        waits_for_the_server(stage, &home, &ours, &told);
    });
}

#[test]
fn a_state_directory_that_cannot_be_written_stops_nobody() {
    with_web("read-only", |_, stage| {
        let road = stage.road();
        let home = stage.home(Role::Gateway, &road, "");
        symlink(READ_ONLY, home.state()).unwrap();
        let gateway = stage.start(&home);
        assert_eq!(stage.ask(address(110), 80).unwrap(), "endpoint-0");
        gateway.wait_for_log("snapshot.jsonl cannot be written: ");
        gateway.wait_for_log("or set `stateDir` in the config to another directory");
        let status = wait_for_status(&gateway, "the status says so", |status| {
            status["source"]["snapshot"]["error"].is_string()
        });
        assert!(status["source"]["snapshot"]["writtenAt"].is_null(), "{status}");
        let text = gateway.status_text();
        assert!(text.contains("  - the snapshot: ") && text.contains(" cannot be written: "), "{text}");
        assert!(gateway.is_ready());

        fs::remove_file(home.state()).unwrap();
        gateway.wait_for_log("the snapshot of the last good input is written again");
        assert!(home.snapshot().is_file());
        assert!(gateway.stop().success());
    });
}

#[test]
fn a_full_disk_stops_nobody_and_is_written_again_when_it_has_room() {
    own_mounts();
    with_web("full", |cluster, stage| {
        let road = stage.road();
        let home = stage.home(Role::Gateway, &road, "");
        let disk = Disk::mount(&home.state());
        let gateway = stage.start(&home);
        wait_for_snapshot(&gateway);
        let filler = disk.fill();
        published_service(cluster, "api", address(111));
        stage.slice("api", &[0]);
        wait_for_answer(stage, address(111), 80, "endpoint-0");
        gateway.wait_for_log("snapshot.jsonl cannot be written: No space left on device");
        gateway.wait_for_log(&format!("free space for it in {}, or set `stateDir`", home.state().display()));
        let before = wait_for_status(&gateway, "the status says so", |status| {
            let snapshot = &status["source"]["snapshot"];
            snapshot["error"].as_str().is_some_and(|error| error.contains("No space left"))
        });
        assert!(
            before["source"]["snapshot"]["writtenAt"].is_string(),
            "the old one is still there: {before}"
        );
        assert_eq!(stage.ask(address(110), 80).unwrap(), "endpoint-0");

        fs::remove_file(filler).unwrap();
        gateway.wait_for_log("the snapshot of the last good input is written again");
        assert!(gateway.stop().success());
        let mut names: Vec<_> =
            fs::read_dir(home.state()).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        let whole = ["events.jsonl", "snapshot.jsonl", "takeover.sock", "udp-ports.lock"];
        assert_eq!(names, whole, "nothing that was written in part is left");
        road.close();
        let _gateway = stage.launch(&home);
        wait_for_answer(stage, address(111), 80, "endpoint-0");
    });
}

/// Same as after an error of the file system (`errors=remount-ro`, ext4(5)).
#[test]
fn a_disk_that_becomes_read_only_stops_nobody_and_keeps_the_last_snapshot() {
    own_mounts();
    with_web("remount", |cluster, stage| {
        let road = stage.road();
        let home = stage.home(Role::Gateway, &road, "");
        let disk = Disk::mount(&home.state());
        let gateway = stage.start(&home);
        wait_for_snapshot(&gateway);
        disk.read_only();
        published_service(cluster, "api", address(111));
        stage.slice("api", &[0]);
        wait_for_answer(stage, address(111), 80, "endpoint-0");
        gateway.wait_for_log("snapshot.jsonl cannot be written: Read-only file system");
        gateway.wait_for_log(&format!("make {} writable", home.state().display()));
        assert_eq!(stage.ask(address(110), 80).unwrap(), "endpoint-0");
        // A restart without the API server serves what was written last.
        assert!(gateway.stop().success());
        road.close();
        let gateway = stage.launch(&home);
        wait_for_answer(stage, address(110), 80, "endpoint-0");
        stage.ask(address(111), 80).unwrap_err();
        road.reopen();
        wait_for_answer(stage, address(111), 80, "endpoint-0");
        disk.writable();
        wait_for_status(&gateway, "the snapshot is new", |_| {
            fs::read_to_string(home.snapshot()).is_ok_and(|text| text.contains("203.0.113.111"))
        });
    });
}

/// After a rollback, the file is from a newer version than the gateway.
#[test]
fn a_snapshot_of_a_newer_version_is_used_as_far_as_it_is_understood() {
    with_web("newer", |_, stage| {
        let road = stage.road();
        let home = stage.home(Role::Gateway, &road, "");
        write_snapshot(stage, &home);
        let mut lines = lines_of(&home.snapshot());
        lines[0]["sheave"] = "99.0.0".into();
        for line in &mut lines[1..] {
            let object = line.as_object_mut().unwrap().values_mut().next().unwrap();
            object["future"] = json!([1]);
            object["spec"]["future"] = json!({"x": null});
        }
        seal(&home.snapshot(), &lines);
        road.close();
        let gateway = stage.launch(&home);
        wait_for_answer(stage, address(110), 80, "endpoint-0");
        road.reopen();
        wait_for_status(&gateway, "the server is heard", |status| status["source"]["fromSnapshot"] == false);
        assert!(gateway.stop().success());
    });
}

/// Opening it would wait for a writer.
#[test]
fn a_fifo_in_the_place_of_a_snapshot_stops_nobody() {
    with_web("fifo", |_, stage| {
        let road = stage.road();
        let home = stage.home(Role::Gateway, &road, "");
        fs::create_dir(home.state()).unwrap();
        run("mkfifo", &[&home.snapshot().display().to_string()]);
        waits_for_the_server(
            stage,
            &home,
            &road,
            &["snapshot.jsonl cannot be read: it is not a regular file; it is not used"],
        );
        assert!(home.snapshot().is_file());
    });
}
