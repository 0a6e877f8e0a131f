//! Tests of two versions side by side: this one, and that of `SHEAVE_TEST_BEFORE_BINARY`, which `tests/run` builds from the previous
//! commit. If it is not set, both are this one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::load::Mixed;
use crate::scale::Amount;
use crate::stage::{
    Home, NODE_ADDRESS, Role, Sheave, Stage, free_port, pool, service, wait_for_addresses, wait_for_condition,
};
use crate::support::cluster::Cluster;
use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::at;
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp;
use crate::support::world::{Family, World};
use crate::timeline::Timeline;
use crate::upgrades::{ADDRESSES, BACKENDS, apps, endpoints, serve, targets};
use sheave_test_support::program;

/// The Service that controllers publish.
const WEB: (&str, &str) = ("Service", "web");

fn before() -> PathBuf {
    std::env::var_os("SHEAVE_TEST_BEFORE_BINARY").map_or_else(|| program::path().into(), PathBuf::from)
}

/// One version takes over from the other unnoticed, or refuses cleanly if the protocols differ.
fn upgrade(from: &Path, to: &Path) {
    let (world, family, amount) = (World::with_addresses(BACKENDS, ADDRESSES), Family::V4, Amount::full());
    let _servers = serve(&world, family);
    let settings = Settings { program: Some(from.to_owned()), ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &apps(family, &endpoints(family), false), &settings);
    let load = Mixed::start(&world.client, amount, targets(&world, family, amount));
    let mut timeline = Timeline::default();
    gateway.install(to);
    let mut successor = gateway.successor(&[]);
    let took_over = timeline.during("the upgrade".to_owned(), || {
        eventually_within(patience(20.0), "it takes over or gives up", || {
            let log = successor.stderr();
            match (log.contains("took over"), log.contains("by protocol")) {
                (false, false) => Err(log),
                (took_over, _) => Ok(took_over),
            }
        })
    });
    if !took_over {
        assert_eq!(successor.wait().code(), Some(69), "{}", successor.stderr());
        gateway.expect_running();
    }
    let tallies = load.stop();
    timeline.expect_no_failure(&tallies);
    let what = if took_over { "took over" } else { "refused, as they have other protocols" };
    println!("upgrade from {} to {}: {what}", from.display(), to.display());
}

#[test]
fn this_version_takes_over_from_the_one_before() {
    upgrade(&before(), Path::new(program::path()));
}

#[test]
fn the_version_before_takes_over_from_this_one() {
    upgrade(Path::new(program::path()), &before());
}

/// One version writes a snapshot, and the other serves from it.
fn snapshot(writer: &Path, reader: &Path) {
    let cluster = Cluster::simulated("skew");
    let stage = Stage::new(&cluster);
    let _endpoints = stage.endpoints();
    service(&cluster, "web", "");
    publish(&cluster, "web", "203.0.113.110");
    stage.slice("web", &[0]);
    let road = stage.road();
    let home = stage.home(Role::Gateway, &road, "");
    let gateway = start(&stage, writer, &home);
    eventually_within(patience(30.0), "the snapshot is written", || {
        let status = gateway.page("/api/status");
        if status["source"]["snapshot"]["writtenAt"].is_null() { Err(status.to_string()) } else { Ok(()) }
    });
    assert!(gateway.stop().success());
    road.close();
    let gateway = stage.launch_program(&[], &reader.display().to_string(), &home);
    let address = "203.0.113.110".parse().expect("an address");
    assert_eq!(stage.wait_until_served(address, 80), "endpoint-0");
    assert_eq!(gateway.page("/api/status")["source"]["fromSnapshot"], true);
}

fn publish(cluster: &Cluster, name: &str, address: &str) {
    let status =
        serde_json::json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "Proxy"}]}}});
    cluster.merge_status("Service", name, "someone", &status).expect("a Service takes a status");
}

fn start<'s>(stage: &'s Stage<'_>, program: &Path, home: &Home) -> Sheave<'s> {
    let mut sheave = stage.launch_program(&[], &program.display().to_string(), home);
    sheave.wait_until_ready();
    sheave
}

#[test]
fn this_version_reads_the_snapshot_of_the_one_before() {
    snapshot(&before(), Path::new(program::path()));
}

#[test]
fn the_version_before_reads_the_snapshot_of_this_one() {
    snapshot(Path::new(program::path()), &before());
}

/// A gateway of one version reports what it cannot bind, and a controller of the other publishes that.
fn report(gateway: &Path, controller: &Path) {
    let cluster = Cluster::simulated("skew");
    let stage = Stage::new(&cluster);
    pool(&cluster, "skew", "203.0.113.40");
    service(&cluster, "web", "");
    stage.slice("web", &[0]);
    let port = stage.host.run(|| free_port(NODE_ADDRESS));
    let (road, other_road) = (stage.road(), stage.road());
    let config = format!("report: {{listen: \"0.0.0.0:{port}\"}}\n");
    let squatter = tcp::Server::who_am_i(&stage.host, at([203, 0, 113, 40].into(), 80), "squatter");
    let _gateway = start(&stage, gateway, &stage.home(Role::Gateway, &road, &config));
    stage.gateway_is(true, port);
    let _controller = start(&stage, controller, &stage.home(Role::Controller, &other_road, ""));
    wait_for_addresses(&cluster, "web");
    let (reason, _) = wait_for_condition(&cluster, WEB, "sheave.dev/Programmed", "False");
    assert_ne!(reason, "NoGateway");
    drop(squatter);
    wait_for_condition(&cluster, WEB, "sheave.dev/Programmed", "True");
}

#[test]
fn a_controller_of_this_version_reads_reports_of_the_one_before() {
    report(&before(), Path::new(program::path()));
}

#[test]
fn a_controller_of_the_version_before_reads_reports_of_this_one() {
    report(Path::new(program::path()), &before());
}

/// The definition of AddressPools is of the previous version, the controller of this one. Without `SHEAVE_TEST_BEFORE_CRD` both are the
/// same.
#[test]
fn this_version_serves_by_the_definition_of_the_one_before() {
    let definition = std::env::var_os("SHEAVE_TEST_BEFORE_CRD")
        .map_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base/crd.yaml").into(), PathBuf::from);
    let cluster = Cluster::without_definition("skew");
    cluster.apply(&fs::read_to_string(definition).expect("the definition is readable"));
    let stage = Stage::new(&cluster);
    pool(&cluster, "skew", "203.0.113.40");
    service(&cluster, "web", "");
    let road = stage.road();
    stage.gateway_is(true, None);
    let _controller = start(&stage, Path::new(program::path()), &stage.home(Role::Controller, &road, ""));
    let addresses = wait_for_addresses(&cluster, "web");
    assert_eq!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["203.0.113.40"]);
}
