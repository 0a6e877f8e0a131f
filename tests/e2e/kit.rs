//! Tests of the test kit itself, on which all other cases rely.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::support::host::Host;
use crate::support::patience::{eventually, patience};
use crate::support::tcp;
use crate::support::transfer::{Plan, Start, exchange};
use crate::support::udp;
use crate::support::world::{Family, World};
use crate::support::{manifest::at, sockets};

for_both_families!(
    a_forwarding_gateway_joins_client_and_backend,
    a_gateway_without_forwarding_lets_nothing_through,
    the_black_hole_swallows_connections,
    a_reset_is_seen_as_one,
    a_link_that_is_cut_swallows_everything_until_it_is_mended,
);

fn a_forwarding_gateway_joins_client_and_backend(family: Family) {
    let world = World::new(2);
    for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        world.gateway.sysctl(name, "1");
    }
    let backend = world.backend(0);
    let plan = Plan { seed: 1, bytes: 3_000_000, start: Start::AtOnce };
    let (server, connections) = tcp::Server::handing_over(backend, at(family.backend(0), 9000));
    let receiving = std::thread::spawn(move || {
        let stream = connections.recv_timeout(patience(10.0)).unwrap();
        exchange(&stream, Plan { seed: 2, bytes: 2_000_000, start: Start::AfterTheirEnd }).unwrap()
    });
    let received = world.client.run(|| exchange(&tcp::connect(server.addr()).unwrap(), plan)).unwrap();
    assert_eq!(received, Plan { seed: 2, bytes: 2_000_000, start: Start::AfterTheirEnd }.fingerprint());
    assert_eq!(receiving.join().unwrap(), plan.fingerprint());

    let _server = udp::Server::who_am_i(backend, at(family.backend(0), 53), "zero");
    let answer = udp::Client::new(&world.client, family.client(3), at(family.backend(0), 53)).ask().unwrap();
    assert_eq!((answer.name.as_str(), answer.peer.ip()), ("zero", family.client(3)));
}

fn a_gateway_without_forwarding_lets_nothing_through(family: Family) {
    let world = World::new(1);
    let server = tcp::Server::echo(world.backend(0), at(family.backend(0), 9000));
    let connecting = world.client.run(|| tcp::connect_from(None, server.addr(), patience(0.3)));
    assert_eq!(connecting.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(sockets::listening(world.backend(0), server.addr()).len(), 1);
    let refused = world.client.run(|| tcp::connect(at(family.vip(0), 80)));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn the_black_hole_swallows_connections(family: Family) {
    let world = World::new(1);
    let connecting =
        world.gateway.run(|| tcp::connect_from(None, at(family.black_hole(), 80), patience(0.3)));
    assert_eq!(connecting.unwrap_err().kind(), ErrorKind::TimedOut);
}

fn a_reset_is_seen_as_one(family: Family) {
    let world = World::new(1);
    let (server, connections) = tcp::Server::handing_over(&world.gateway, at(family.vip(1), 9000));
    let mut client = world.client.run(|| tcp::connect(server.addr())).unwrap();
    tcp::reset(connections.recv_timeout(patience(10.0)).unwrap());
    let error = std::io::Read::read(&mut client, &mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

fn a_link_that_is_cut_swallows_everything_until_it_is_mended(family: Family) {
    let world = World::with_addresses(1, 2);
    let to = at(family.backend_address(0, 1), 9000);
    let _server = tcp::Server::who_am_i(world.backend(0), to, "there");
    let ask = || world.gateway.run(|| tcp::ask(to));
    assert_eq!(ask().unwrap().name, "there");
    for _ in 0..2 {
        world.cut(0);
        let connecting = world.gateway.run(|| tcp::connect_from(None, to, patience(0.3)));
        assert_eq!(connecting.unwrap_err().kind(), ErrorKind::TimedOut);
        world.mend(0);
        assert_eq!(ask().unwrap().name, "there");
    }
}

#[test]
fn hosts_are_apart_and_leave_no_name_behind() {
    let (one, other) = (Host::new("one"), Host::new("other"));
    one.ip(&["addr add 192.0.2.1/32 dev lo".to_owned()]);
    assert!(one.finish("ip", &["addr"]).expect_success().contains("192.0.2.1"));
    assert!(!other.finish("ip", &["addr"]).expect_success().contains("192.0.2.1"));
}

#[test]
fn a_process_ends_with_its_handle() {
    let host = Host::new("short-lived");
    let process = host.start("cat", &["/dev/zero"]);
    let folder = format!("/proc/{}", process.id());
    assert!(Path::new(&folder).exists());
    drop(process);
    eventually(
        "the process is gone",
        || if Path::new(&folder).exists() { Err("still there") } else { Ok(()) },
    );
}

/// A file that `main.rs` does not include would not be compiled, and its cases would never run.
#[test]
fn every_file_of_cases_is_part_of_the_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files: BTreeSet<String> = names
        .filter_map(|path| Some(path.file_name()?.to_str()?.strip_suffix(".rs")?.to_owned()))
        .filter(|name| name != "main")
        .collect();
    let main = fs::read_to_string(folder.join("main.rs")).unwrap();
    let declared = main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let declared: BTreeSet<String> = declared.filter(|name| *name != "support").map(str::to_owned).collect();
    assert_eq!(files, declared);
}
