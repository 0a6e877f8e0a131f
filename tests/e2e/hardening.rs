//! Tests of what a running gateway can no longer do, and that it serves nevertheless.

use std::fs;
use std::net::TcpStream;

use nix::libc::{ENOSYS, EPERM, SYS_bpf, SYS_clone3, SYS_socket, SYS_unshare};

use crate::policies::expect_served;
use crate::source_ranges::{expect_never_served, many_ranges, web};
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::patience::eventually;
use crate::support::seccomp::{Otherwise, Refused};
use crate::support::tcp::Conversation;
use crate::support::transfer::{Plan, Start, exchange};
use crate::support::world::{CLIENTS, Family, World};
use crate::support::{tcp, udp};

for_both_families!(clients_are_served_by_the_calls_that_the_profile_names);

/// Steering, long source lists, long streams, transparent client addresses and new tables, until the end of the
/// drain.
fn clients_are_served_by_the_calls_that_the_profile_names(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let plan = |seed| Plan { seed, bytes: 20_000_000, start: Start::AtOnce };
    let server = move |stream: TcpStream| exchange(&stream, plan(2)).map(drop);
    let _streams = tcp::Server::start(world.backend(0), at(family.backend(0), 9001), server);
    let listed = many_ranges(family, (0..CLIENTS).step_by(2));
    let settings = Settings {
        refused: Some(Refused::Unnamed(Otherwise::End)),
        lame_duck: "1s",
        healthz: "127.0.0.1:10256",
        config: "steering: always\n",
        ..Settings::default()
    };
    let mut gateway = Gateway::start_with(&world, &[web(family).source_ranges(&listed)], &settings);
    (0..CLIENTS).step_by(2).for_each(|client| expect_served(&world, family, client));
    expect_never_served(&world, family, 1);
    let streams = App::new("streams", &[family.vip(1)]).tcp(80, 9001).ready(family.backend(0));
    gateway.apply(&[streams, web(family)]);
    let connect = || TcpStream::connect(at(family.vip(1), 80));
    let client = world.client.run(connect).expect("the frontend is open");
    assert_eq!(exchange(&client, plan(1)).expect("the client's side"), plan(2).fingerprint());
    let local = App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000);
    gateway.apply(&[local.local_policy().ready_here(family.backend(0))]);
    let answer = world.client.run(|| tcp::ask_from(family.client(1), vip(family))).expect("it is served");
    assert_eq!(answer.peer.ip(), family.client(1));
    let answer = udp::Client::new(&world.client, family.client(2), vip(family)).ask().expect("an answer");
    assert_eq!(answer.peer.ip(), family.client(2));
    let mut open = world.client.run(|| Conversation::open(vip(family))).expect("it is served");
    gateway.terminate();
    eventually("it drains", || match gateway.ask("/readyz").status {
        503 => Ok(()),
        other => Err(other),
    });
    open.say("still there?").expect("an echo");
    drop(open);
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
}

#[test]
fn what_the_profile_does_not_name_fails() {
    let world = World::new(1);
    let try_calls = |otherwise| {
        // unshare(CLONE_NEWUSER), socket(AF_ALG), socket(AF_INET), bpf(BPF_OBJ_PIN), clone3().
        let script = r#"
            my ($unshare, $socket, $bpf, $clone3) = splice @ARGV, 0, 4;
            for ([$unshare, 0x10000000], [$socket, 38, 5, 0], [$socket, 2, 1, 0], [$bpf, 6, 0, 0], [$clone3, 0, 0]) {
                $! = 0;
                syscall($$_[0], @{$_}[1..$#$_]);
                print $!+0, " ";
            }
        "#;
        let numbers = [SYS_unshare, SYS_socket, SYS_bpf, SYS_clone3].map(|number| number.to_string());
        let mut command = Refused::Unnamed(otherwise).prefix();
        command.extend(["perl", "-e", script, "--"].map(str::to_owned));
        command.extend(numbers);
        let (program, arguments) = command.split_first().expect("a program");
        world.gateway.finish(program, arguments)
    };
    let failed = try_calls(Otherwise::Fail);
    assert_eq!(failed.stdout, format!("{EPERM} {EPERM} 0 {EPERM} {ENOSYS} "), "{}", failed.stderr);
    assert_eq!(try_calls(Otherwise::End).code(), None, "a signal ends it");
}

/// Capabilities of all threads, from proc_pid_status(5).
#[test]
fn a_running_gateway_has_no_capability_that_it_has_no_use_for() {
    /// DAC_OVERRIDE, DAC_READ_SEARCH, NET_BIND_SERVICE, NET_ADMIN, NET_RAW, SYS_RESOURCE, PERFMON, BPF.
    const MOST: u64 = 0x00c0_0100_3406;
    /// NET_BIND_SERVICE, NET_ADMIN.
    const LEAST: u64 = 0x1400;
    let world = World::new(1);
    let gateway = Gateway::start(&world, &[web(Family::V4)]);
    let tasks = fs::read_dir(format!("/proc/{}/task", gateway.id())).expect("the gateway runs");
    let statuses: Vec<String> =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect();
    assert!(statuses.len() > 2, "it has workers");
    for status in statuses {
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).expect(key).trim();
        assert_eq!(value("NoNewPrivs:"), "1", "{status}");
        for key in ["CapPrm:", "CapEff:"] {
            let mask = u64::from_str_radix(value(key), 16).expect("a mask");
            assert_eq!((mask & !MOST, mask & LEAST), (0, LEAST), "{status}");
        }
    }
}
