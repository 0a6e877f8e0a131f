//! Tests of `watch` with a gateway whose manifests change: a line for each change, and none without.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::host::Host;
use crate::support::manifest::{App, at};
use crate::support::patience::eventually;
use crate::support::process::Process;
use crate::support::world::{Family, World};

for_both_families!(
    a_line_tells_of_each_change,
    a_service_that_is_not_there_is_waited_for,
    a_gateway_that_dies_is_waited_for,
);

fn web(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000)
}

fn watch(world: &World, arguments: &[&str]) -> Process {
    world.gateway.start(sheave_test_support::program::path(), &[&["watch", "e2e/web"], arguments].concat())
}

/// Waits for the line after the first `taken`, and takes it, without its time.
fn next_line(watching: &mut Process, taken: &mut usize) -> String {
    eventually("a line", || {
        watching.expect_running();
        let text = watching.stdout();
        let line = text.lines().nth(*taken).filter(|_| text.ends_with('\n')).map(str::to_owned);
        line.ok_or_else(|| text.clone())
    });
    *taken += 1;
    let text = watching.stdout();
    let line = text.lines().nth(*taken - 1).unwrap();
    line.split_once(' ').map(|(_, line)| line.to_owned()).unwrap()
}

fn a_line_tells_of_each_change(family: Family) {
    let world = World::new(2);
    let gateway = Gateway::start(&world, &[web(family).ready(family.backend(0))]);
    let [first, second] = [0, 1].map(|n| at(family.backend(n), 9000));
    let mut watching = watch(&world, &[]);
    let mut taken = 0;
    let mut line = |watching: &mut Process| next_line(watching, &mut taken);
    let state = line(&mut watching);
    assert!(state.contains(&format!("goes to {first}. Endpoints used: 1 of 1.")), "{state}");
    gateway.apply(&[web(family).all_ready([family.backend(0), family.backend(1)])]);
    assert_eq!(line(&mut watching), format!("endpoint {second} added: Ready, used"));
    gateway.apply(&[web(family).ready(family.backend(1))]);
    assert_eq!(line(&mut watching), format!("endpoint {first} removed"));
    gateway.apply(&[web(family)]);
    assert_eq!(line(&mut watching), "action: Reject (was: Forward)");
    assert_eq!(line(&mut watching), format!("endpoint {second} removed"));
    watching.signal(Signal::SIGINT);
    let ended = watching.finish();
    assert_eq!((ended.code(), ended.stdout.lines().count()), (Some(0), 5), "{}", ended.stdout);
}

fn a_service_that_is_not_there_is_waited_for(family: Family) {
    let world = World::new(1);
    let gateway = Gateway::start(&world, &[]);
    let mut watching = watch(&world, &["-o", "json"]);
    let mut taken = 0;
    let mut json = |watching: &mut Process| -> Value {
        next_line(watching, &mut taken);
        let text = watching.stdout();
        serde_json::from_str(text.lines().nth(taken - 1).unwrap()).expect("a line is JSON")
    };
    let first = json(&mut watching);
    let nothing = "Service e2e/web is not served here (there is no Service e2e/web)";
    assert_eq!((&first["change"], &first["to"]), (&"state".into(), &nothing.into()), "{first}");
    assert_eq!(first["service"], "e2e/web");
    gateway.apply(&[web(family).ready(family.backend(0))]);
    let there = json(&mut watching);
    assert!(there["message"].as_str().unwrap().contains("Endpoints used: 1 of 1."), "{there}");
    gateway.apply(&[]);
    assert_eq!(json(&mut watching)["to"], nothing);
    watching.signal(Signal::SIGTERM);
    assert_eq!(watching.wait().code(), Some(0));
}

fn a_gateway_that_dies_is_waited_for(family: Family) {
    let world = World::new(2);
    let mut gateway = Gateway::start(&world, &[web(family).ready(family.backend(0))]);
    let mut watching = watch(&world, &[]);
    let mut taken = 0;
    let mut line = |watching: &mut Process| next_line(watching, &mut taken);
    line(&mut watching);
    gateway.kill();
    gateway.wait();
    let silent = line(&mut watching);
    assert!(silent.contains("does not answer: Connection refused"), "{silent}");
    gateway.write(
        "apps.yaml",
        &crate::support::manifest::file(&[web(family).all_ready([0, 1].map(|n| family.backend(n)))]),
    );
    let next = gateway.successor(&[]);
    drop(gateway.adopt(next));
    let back = line(&mut watching);
    assert!(back.starts_with("the gateway answers again, after "), "{back}");
    // While the next process starts, it may not have its objects yet.
    eventually("what changed meanwhile is reported", || {
        let text = watching.stdout();
        let added = text.contains(&format!("{} added: Ready, used", at(family.backend(1), 9000)));
        if added || text.contains("Endpoints used: 2 of 2.") { Ok(()) } else { Err(text) }
    });
    watching.signal(Signal::SIGHUP);
    assert_eq!(watching.wait().code(), Some(0));
}

#[test]
fn a_signal_ends_it_while_its_reader_has_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let nonblocking = OFlag::O_NONBLOCK.bits();
    let mut pipe = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(&path).unwrap();
    let full = loop {
        if let Err(error) = pipe.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let host = Host::new("watch");
    let script = "exec \"$0\" watch e2e/web --admin http://127.0.0.1:1 > \"$1\"";
    let arguments = ["-c", script, sheave_test_support::program::path(), &path.display().to_string()];
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut watching = host.start("sh", &arguments);
        eventually("it waits for its reader", || {
            watching.expect_running();
            let threads =
                fs::read_dir(format!("/proc/{}/task", watching.id())).map_err(|it| it.to_string())?;
            let waits = threads.flatten().filter_map(|it| fs::read_to_string(it.path().join("wchan")).ok());
            let waits: Vec<String> = waits.collect();
            if waits.iter().any(|it| it.contains("pipe_write")) { Ok(()) } else { Err(waits.join(" ")) }
        });
        watching.signal(signal);
        assert_eq!(watching.wait().code(), Some(0), "{signal}");
    }
}
