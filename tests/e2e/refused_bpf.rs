//! A kernel that refuses eBPF, all of it or programs alone: frontends get sockets of their own and classic filters, and it is said
//! once what is missing.

use nix::libc::{EACCES, EINVAL, ENOSYS, EPERM};

use crate::policies::expect_served;
use crate::source_ranges::{REFUSED, expect_never_served, many_ranges, vip, web};
use crate::support::gateway::{Gateway, Settings};
use crate::support::seccomp::RefusedBpf;
use crate::support::world::{CLIENTS, Family, World};
use crate::support::{tcp, udp};

for_both_families!(
    a_profile_that_forbids_bpf_costs_no_client,
    a_kernel_without_bpf_costs_no_client,
    a_verifier_that_refuses_the_programs_costs_no_client,
    a_kernel_that_does_not_know_such_programs_costs_no_client,
);

/// All frontends are to be steered, and the list is larger than a classic filter: both need programs.
fn expect_served_without(refused: RefusedBpf, family: Family, advice: &str) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _datagrams = udp::Server::on_every_backend(&world, family, 9000);
    let listed = many_ranges(family, (0..CLIENTS).step_by(2));
    let settings =
        Settings { refused_bpf: Some(refused), config: "steering: always\n", ..Settings::default() };
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
    let log = gateway.log();
    for what in ["no frontend can be steered", REFUSED] {
        assert_eq!(log.matches(what).count(), 1, "{what:?} is said once: {log}");
    }
    assert_eq!(gateway.ask("/readyz").status, 200);
    assert!(world.client.run(|| tcp::ask(vip(family))).is_ok());
}

fn a_profile_that_forbids_bpf_costs_no_client(family: Family) {
    expect_served_without(RefusedBpf::All(EPERM), family, "seccomp profile that allows bpf(2)");
}

fn a_kernel_without_bpf_costs_no_client(family: Family) {
    expect_served_without(RefusedBpf::All(ENOSYS), family, "Linux has them since 5.9");
}

fn a_verifier_that_refuses_the_programs_costs_no_client(family: Family) {
    expect_served_without(RefusedBpf::Programs(EACCES), family, "the kernel's verifier refuses the program");
}

fn a_kernel_that_does_not_know_such_programs_costs_no_client(family: Family) {
    expect_served_without(RefusedBpf::Programs(EINVAL), family, "Linux has them since 5.9");
}
