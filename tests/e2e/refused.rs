//! Tests of kernels and machines that lack features. Without eBPF or without its programs, frontends get sockets of their own
//! and classic filters; without bundles of datagrams, each datagram is sent alone. Missing features are logged once.

use nix::libc::{EACCES, EINVAL, ENOSYS, EPERM};

use crate::policies::expect_served;
use crate::source_ranges::{REFUSED, expect_never_served, many_ranges, web};
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::seccomp::Refused;
use crate::support::world::{CLIENTS, Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    a_profile_that_forbids_bpf_costs_no_client,
    a_kernel_without_bpf_costs_no_client,
    a_verifier_that_refuses_the_programs_costs_no_client,
    a_kernel_that_does_not_know_such_programs_costs_no_client,
    a_kernel_without_bundles_of_datagrams_loses_none,
    a_machine_with_one_core_has_one_worker_that_serves_all,
);

/// All frontends are to be steered, and the list is larger than a classic filter: both need programs.
fn expect_served_without(refused: Refused, family: Family, advice: &str) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let listed = many_ranges(family, (0..CLIENTS).step_by(2));
    let settings = Settings { refused: Some(refused), config: "steering: always\n", ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[web(family).source_ranges(&listed)], &settings);
    for client in 0..CLIENTS {
        if client % 2 == 0 {
            expect_served(&world, family, client);
        } else {
            expect_never_served(&world, family, client);
        }
    }
    gateway.apply(&[web(family)]);
    (0..CLIENTS).for_each(|client| expect_served(&world, family, client));
    let steering = gateway.steering();
    assert_eq!(
        (steering["steered"].as_u64(), steering["sockets"].as_u64()),
        (Some(0), Some(2)),
        "{steering}"
    );
    let why = steering["unavailable"].as_str().unwrap_or_default();
    assert!(why.contains(advice), "{steering}");
    for what in ["no frontend can be steered", REFUSED] {
        gateway.wait_for_log(what, 1..=1);
    }
    assert_eq!(gateway.ask("/readyz").status, 200);
    assert!(world.client.run(|| tcp::ask(vip(family))).is_ok());
}

fn a_profile_that_forbids_bpf_costs_no_client(family: Family) {
    expect_served_without(Refused::Bpf(EPERM), family, "seccomp profile that allows bpf(2)");
}

fn a_kernel_without_bpf_costs_no_client(family: Family) {
    expect_served_without(Refused::Bpf(ENOSYS), family, "Linux has them since 5.9");
}

fn a_verifier_that_refuses_the_programs_costs_no_client(family: Family) {
    expect_served_without(Refused::BpfPrograms(EACCES), family, "the kernel's verifier refuses the program");
}

fn a_kernel_that_does_not_know_such_programs_costs_no_client(family: Family) {
    expect_served_without(Refused::BpfPrograms(EINVAL), family, "Linux has them since 5.9");
}

fn a_kernel_without_bundles_of_datagrams_loses_none(family: Family) {
    let world = World::new(1);
    let _server = udp::Server::echo(world.backend(0), at(family.backend(0), 9000));
    let app = App::new("dns", &[family.vip(0)]).udp(53, 9000).ready(family.backend(0));
    let settings = Settings { refused: Some(Refused::UdpBundles), ..Settings::default() };
    let gateway = Gateway::start_with(&world, &[app], &settings);
    let client = udp::Client::new(&world.client, family.client(0), at(family.vip(0), 53));
    // More than a batch, all of one size that fits bundles, and then the longest one.
    let burst: Vec<Vec<u8>> = (0..40).map(|number| vec![number; 1200]).collect();
    burst.iter().for_each(|datagram| client.send(datagram).expect("the gateway takes it"));
    for datagram in &burst {
        assert!(client.receive().expect("an answer") == *datagram);
    }
    let longest = vec![7; udp::LARGEST];
    assert!(client.exchange(&longest).expect("an answer") == longest);
    for option in ["UDP_GRO", "UDP_SEGMENT"] {
        let each = usize::from(settings.workers);
        gateway.wait_for_log(option, each..=each);
    }
}

fn a_machine_with_one_core_has_one_worker_that_serves_all(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let settings = Settings { workers: 0, one_core: true, ..Settings::default() };
    let app = web(family).ready(family.backend(1));
    let gateway = Gateway::start_with(&world, &[app], &settings);
    gateway.wait_for_log("workers=1 ", 1..);
    let mut open: Vec<tcp::Conversation> = (0..CLIENTS)
        .map(|client| {
            let from = family.client(client);
            world.client.run(|| tcp::Conversation::open_from(from, vip(family))).expect("it is served")
        })
        .collect();
    (0..CLIENTS).for_each(|client| expect_served(&world, family, client));
    open.iter_mut().for_each(|conversation| conversation.say("still there?").expect("an echo"));
}
