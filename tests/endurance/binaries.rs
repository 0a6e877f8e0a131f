//! Tests of upgrades to programs that cannot serve, under load: nothing fails, and the next upgrade to a good one
//! succeeds.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::load::Mixed;
use crate::scale::Amount;
use crate::support::gateway::{Gateway, Settings};
use crate::support::length::by_length;
use crate::support::patience::{eventually, let_pass};
use crate::support::world::{Family, World};
use crate::timeline::Timeline;
use crate::upgrades::{ADDRESSES, BACKENDS, apps, endpoints, serve, targets};

/// Replaces a program that may be running.
fn install(program: &Path, text: &[u8], mode: u32) {
    let staged = program.with_extension("staged");
    fs::write(&staged, text).expect("a program is written");
    fs::set_permissions(&staged, Permissions::from_mode(mode)).expect("it has a mode");
    fs::rename(staged, program).expect("it is moved");
}

/// The new main process, if the notification names one.
fn main_process(told: &str) -> Option<Pid> {
    let id = told.strip_prefix("MAINPID=")?.lines().next()?;
    id.parse().ok().map(Pid::from_raw)
}

#[test]
fn upgrades_to_broken_programs_change_nothing() {
    let (world, family, amount) = (World::with_addresses(BACKENDS, ADDRESSES), Family::V4, Amount::full());
    let _servers = serve(&world, family);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("sheave");
    let good = fs::read(sheave_test_support::program::path()).expect("the program is readable");
    install(&program, &good, 0o755);
    let settings = Settings { managed: true, program: Some(program.clone()), ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &apps(family, &endpoints(family), false), &settings);
    assert_eq!(gateway.notification(), "READY=1");
    let load = Mixed::start(&world.client, amount, targets(&world, family, amount));
    let mut timeline = Timeline::default();
    let broken: [(&str, &str, u32, &str); 3] = [
        ("one that exits at once", "#!/bin/sh\nexit 1\n", 0o755, "it has ended: exit status: 1"),
        ("one that crashes at once", "#!/bin/sh\nkill -SEGV $$\n", 0o755, "signal: 11"),
        ("one that is not executable", "#!/bin/sh\n", 0o644, "it cannot be started: Permission denied"),
    ];
    for (what, text, mode, why) in broken {
        install(&program, text.as_bytes(), mode);
        timeline.during(format!("the upgrade to {what}"), || {
            gateway.reload();
            eventually(what, || {
                let log = gateway.log();
                if log.lines().any(|line| line.contains("this one goes on") && line.contains(why)) {
                    Ok(())
                } else {
                    Err(log)
                }
            });
        });
        gateway.expect_running();
        let_pass(Duration::from_millis(by_length(50, 2000)));
    }
    let starts = || gateway.log().matches("started another process").count();
    let started = starts();
    // It ends when its folder is removed, so that none is left.
    install(
        &program,
        format!("#!/bin/sh\nwhile [ -e {} ]; do sleep 0.1; done\n", program.display()).as_bytes(),
        0o755,
    );
    timeline.during("the upgrade to one that hangs".to_owned(), || {
        gateway.reload();
        eventually("it has started", || if starts() > started { Ok(()) } else { Err("not yet") });
        let_pass(Duration::from_millis(by_length(200, 5000)));
    });
    install(&program, &good, 0o755);
    let told = timeline.during("the upgrade to a good one".to_owned(), || {
        gateway.reload();
        std::iter::repeat_with(|| gateway.notification())
            .find_map(|it| main_process(&it))
            .expect("it says so")
    });
    let_pass(Duration::from_millis(by_length(200, 2000)));
    let log = gateway.log();
    assert!(log.contains("has not taken over yet: starting another one"), "{log}");
    let tallies = load.stop();
    // It is not a child of this process, so nothing else ends it.
    kill(told, Signal::SIGKILL).expect("it runs");
    timeline.expect_no_failure(&tallies);
    let totals: Vec<String> = tallies.iter().map(ToString::to_string).collect();
    println!("upgrades to 4 broken programs and a good one, none noticed: {}", totals.join(", "));
}
