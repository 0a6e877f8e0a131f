//! Tests of every way to start the program: each role with each source of objects, and each command that reads manifests. Each
//! process answers a query, and exits with 0.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use sheave_test_support::program;
use tempfile::TempDir;

use crate::fleet_kit::{self, Fleet};
use crate::outage_kit::{address, published_service};
use crate::stage::{Home, Role, Sheave, Stage, pool};
use crate::support::cluster::Cluster;
use crate::support::host::Host;
use crate::support::process::Finished;

/// A Service with an address.
const LOCAL: &str = "\
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {type: LoadBalancer, loadBalancerClass: sheave.dev/l4, clusterIP: 10.96.0.10, \
ports: [{port: 80, protocol: TCP, targetPort: 8080}]}, status: {loadBalancer: {ingress: [{ip: 203.0.113.10, ipMode: Proxy}]}}}\n";

/// A control plane with one member.
const KARMADA: &str = "\
{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: east}, status: {conditions: [{type: Ready, status: 'True'}]}}\n";

/// Folders of manifests, which are removed when dropped.
struct Manifests(TempDir);

impl Manifests {
    fn write() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in [("local", LOCAL), ("karmada", KARMADA)] {
            fs::create_dir(folder.path().join(name)).expect("a folder is made");
            fs::write(folder.path().join(name).join("objects.yaml"), text).expect("a file is written");
        }
        Self(folder)
    }

    fn flags(&self, names: &[&str]) -> Vec<String> {
        let flag = |name: &str| match name {
            "local" => "--manifests",
            _ => "--karmada-manifests",
        };
        let path = |name: &str| self.0.path().join(name).display().to_string();
        names.iter().flat_map(|name| [flag(name).to_owned(), path(name)]).collect()
    }
}

fn expect_0(what: &str, finished: Finished) -> String {
    assert_eq!(finished.code(), Some(0), "{what}\n{}\n{}", finished.stdout, finished.stderr);
    finished.stdout
}

/// Starts the process with these flags, waits until it is ready and queries it.
fn start<'s>(stage: &'s Stage<'_>, (command, home): (&str, &Home), flags: &[String]) -> Sheave<'s> {
    let words = [program::path(), command, "--config", &home.config()].map(str::to_owned);
    let mut process = stage.launch_as(&[&words, flags].concat(), home);
    process.wait_until_ready();
    ask(stage, command, &process);
    process
}

fn ask(stage: &Stage<'_>, command: &str, process: &Sheave<'_>) {
    match command {
        "controller" => assert!(!process.status_text().is_empty()),
        _ => {
            let admin = format!("http://{}", process.admin());
            let told = stage.host.finish(program::path(), &["routes", "-o", "json", "--admin", &admin]);
            let told = expect_0(command, told);
            assert!(told.contains("203.0.113.10"), "{command}: {told}");
        }
    }
}

fn expect_end(command: &str, process: Sheave<'_>) {
    let status = process.stop();
    assert_eq!(status.code(), Some(0), "{command} leaves with 0");
}

#[test]
fn gateways_start_with_manifests_and_with_those_of_karmada() {
    let cluster = Cluster::start("starts");
    let (stage, manifests) = (Stage::new(&cluster), Manifests::write());
    for (command, role) in [("run", Role::Run), ("gateway", Role::Gateway)] {
        for sources in [&["local"][..], &["local", "karmada"]] {
            let home = stage.home_by(role, Path::new(""), "");
            expect_end(command, start(&stage, (command, &home), &manifests.flags(sources)));
        }
    }
}

#[test]
fn roles_start_with_a_kubeconfig_and_with_manifests_of_karmada_alongside() {
    let cluster = Cluster::start("starts-api");
    let (stage, manifests) = (Stage::new(&cluster), Manifests::write());
    let road = stage.road();
    pool(&cluster, "starts", "203.0.113.0/24");
    published_service(&cluster, "web", address(10));
    for (command, role) in [("controller", Role::Controller), ("gateway", Role::Gateway), ("run", Role::Run)]
    {
        stage.gateway_is(true, None);
        expect_end(command, start(&stage, (command, &stage.home(role, &road, "")), &[]));
        if role != Role::Controller {
            let home = stage.home(role, &road, "");
            expect_end(command, start(&stage, (command, &home), &manifests.flags(&["karmada"])));
        }
    }
}

#[test]
fn roles_start_with_a_karmada_control_plane() {
    fleet_kit::play("starts-karmada", |fleet: &Fleet<'_>| {
        let stage = fleet.stage;
        pool(fleet.cluster, "starts", "203.0.113.0/24");
        published_service(fleet.cluster, "web", address(10));
        stage.gateway_is(true, None);
        for (command, role) in
            [("controller", Role::Controller), ("gateway", Role::Gateway), ("run", Role::Run)]
        {
            expect_end(command, start(stage, (command, &fleet.home(role, "")), &[]));
        }
    });
}

#[test]
fn a_gateway_starts_from_its_snapshot_and_takes_over_from_another() {
    let cluster = Cluster::start("starts-again");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    published_service(&cluster, "web", address(10));
    for (command, role) in [("gateway", Role::Gateway), ("run", Role::Run)] {
        let home = stage.home(role, &road, "");
        expect_end(command, start(&stage, (command, &home), &[]));
        road.close();
        let from_snapshot = start(&stage, (command, &home), &[]);
        road.reopen();
        let takeover = ["--takeover".to_owned()];
        let successor = start(&stage, (command, &home), &takeover);
        expect_0("the predecessor leaves", from_snapshot.finish());
        expect_end(command, successor);
    }
}

/// While its predecessor serves, a process waits for newer objects than those of the snapshot. Nobody else would serve if it went on waiting.
#[test]
fn a_process_with_a_snapshot_serves_when_its_predecessor_is_killed() {
    let cluster = Cluster::start("starts-alone");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    published_service(&cluster, "web", address(10));
    for (command, role) in [("gateway", Role::Gateway), ("run", Role::Run)] {
        let home = stage.home(role, &road, "");
        expect_end(command, start(&stage, (command, &home), &[]));
        road.close();
        let predecessor = start(&stage, (command, &home), &[]);
        let words = [program::path(), command, "--config", &home.config(), "--takeover"].map(str::to_owned);
        let mut successor = stage.launch_as(&words, &home);
        successor.wait_for_log("serving its last known objects from the snapshot");
        assert!(!successor.log().contains("ready: "), "the predecessor serves");
        predecessor.kill();
        successor.wait_until_ready();
        ask(&stage, command, &successor);
        expect_end(command, successor);
        road.reopen();
    }
}

#[test]
fn commands_that_read_manifests_leave_with_0() {
    let (host, manifests) = (Host::new("laptop"), Manifests::write());
    let (local, both) = (manifests.flags(&["local"]), manifests.flags(&["local", "karmada"]));
    let run = |words: &[&str], flags: &[String]| {
        let words: Vec<String> =
            words.iter().map(|&word| word.to_owned()).chain(flags.iter().cloned()).collect();
        expect_0(&words.join(" "), host.finish(program::path(), &words))
    };
    for flags in [&local, &both] {
        assert!(run(&["routes", "-o", "json", "--node", "n"], flags).contains("203.0.113.10"));
        assert!(run(&["explain", "shop/web", "--node", "n"], flags).contains("shop/web"));
        run(&["validate"], flags);
    }
    run(&["diff", "--node", "n"], &[local.clone(), local.clone()].concat());
    run(&["migrate"], &local);
    for words in [&["version"][..], &["completions", "bash"], &["man"], &["help"], &["demo", "--for", "1s"]] {
        assert!(!run(words, &[]).is_empty(), "{words:?}");
    }
}

#[test]
fn commands_that_ask_a_process_leave_with_0() {
    let cluster = Cluster::start("starts-asked");
    let (stage, manifests) = (Stage::new(&cluster), Manifests::write());
    let home = stage.home_by(Role::Gateway, Path::new(""), "");
    let gateway = start(&stage, ("gateway", &home), &manifests.flags(&["local", "karmada"]));
    let admin = format!("http://{}", gateway.admin());
    let commands: [&[&str]; 4] =
        [&["top", "--once", "-o", "json"], &["explain", "shop/web"], &["routes"], &["gateways"]];
    for words in commands {
        let told = stage.host.finish(program::path(), &[words, &["--admin", &admin]].concat());
        expect_0(&words.join(" "), told);
    }
    // Degraded, since the Service has no endpoint.
    assert!(!gateway.status_text().is_empty());
    let watch = stage.host.start(program::path(), &["watch", "shop/web", "--admin", &admin]);
    crate::support::patience::eventually("watch prints the decision", || {
        if watch.stdout().is_empty() { Err(watch.stderr()) } else { Ok(()) }
    });
    watch.signal(Signal::SIGINT);
    expect_0("watch", watch.finish());
    expect_end("gateway", gateway);
}
