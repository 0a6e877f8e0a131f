//! Tests of commands on a machine outside of the cluster, with a port-forward to a gateway.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use crate::support::gateway::Gateway;
use crate::support::manifest::App;
use crate::support::patience::eventually;
use crate::support::port_forward::PodForwards;
use crate::support::process::Finished;
use crate::support::world::{Family, World};
use sheave_test_support::program;

/// A folder with `kubectl-sheave`, a kubeconfig, and a configuration whose admin address has no listener on this
/// machine.
struct Laptop<'w> {
    world: &'w World,
    folder: TempDir,
    api: PodForwards,
}

impl<'w> Laptop<'w> {
    fn new(world: &'w World) -> Self {
        let admin = SocketAddr::from(([127, 0, 0, 1], 9841));
        let api = PodForwards::start(
            &world.gateway,
            admin,
            &[("sheave-gateway-old", false), ("sheave-gateway-x", true)],
        );
        let laptop = Self { world, folder: tempfile::tempdir().expect("a temporary folder"), api };
        fs::write(laptop.path("config.yaml"), "admin: {listen: \"127.0.0.1:9842\"}\n")
            .expect("a file is written");
        fs::write(laptop.path("kubeconfig"), laptop.api.kubeconfig()).expect("a file is written");
        symlink(program::path(), laptop.path("kubectl-sheave")).expect("a link is made");
        laptop
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<String> {
        let config = self.path("config.yaml");
        words.iter().copied().chain(["--config", &config]).map(str::to_owned).collect()
    }

    fn run(&self, program: &str, words: &[&str]) -> Finished {
        self.world.gateway.finish(program, &self.words(words))
    }
}

/// Requests for the Pods of gateways on `node`, and for a forward to the ready one.
fn forwarded(node: &str) -> [String; 2] {
    let pods = "GET /api/v1/namespaces/sheave-system/pods";
    [
        format!(
            "{pods}?&fieldSelector=status.phase%3DRunning{node}&labelSelector=app.kubernetes.io%2Fname%3Dsheave%2C\
             app.kubernetes.io%2Fcomponent%3Dgateway"
        ),
        format!("{pods}/sheave-gateway-x/portforward?&ports=9842"),
    ]
}

#[test]
fn commands_ask_a_gateway_of_the_cluster_through_a_port_forward() {
    let (world, family) = (World::new(1), Family::V4);
    let web = App::new("web", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0));
    let _gateway = Gateway::start(&world, &[web]);
    let laptop = Laptop::new(&world);
    let (plugin, kubeconfig) = (laptop.path("kubectl-sheave"), laptop.path("kubeconfig"));
    let manifests = laptop.path("empty");
    fs::create_dir(&manifests).expect("a folder is made");
    let cluster = ["--kubeconfig", &kubeconfig, "--context", "prod"];
    for (words, part) in [
        (&["status"][..], "(gateway) on node "),
        (&["explain", "e2e/web"], "Service e2e/web"),
        (&["routes"], "e2e/web"),
        (&["gateways"], ""),
        (&["top", "--once"], "e2e/web"),
        (&["diff", "--manifests", &manifests], "0 added, 1 removed"),
    ] {
        let on_node = [words, &["--gateway", "gw-1"], &cluster].concat();
        let told = laptop.run(program::path(), &on_node);
        assert!(told.stdout.contains(part), "{words:?}: {}{}", told.stdout, told.stderr);
        assert_eq!(laptop.api.requests(), forwarded("%2Cspec.nodeName%3Dgw-1"), "{words:?}");
        for program in [&plugin, program::path()] {
            let any = laptop.run(program, &[words, &cluster].concat());
            assert!(any.stdout.contains(part), "{words:?}: {}{}", any.stdout, any.stderr);
            assert_eq!(laptop.api.requests(), forwarded(""), "{words:?}");
        }
        let here = laptop.run(program::path(), words);
        assert!(here.stderr.contains("http://127.0.0.1:9842 does not answer"), "{}", here.stderr);
        assert_eq!(laptop.api.requests(), [""; 0], "only a plugin looks elsewhere by itself");
    }
    // The port-forward lasts as long as the command.
    let watch = world.gateway.start(&plugin, &laptop.words(&[&["watch", "e2e/web"][..], &cluster].concat()));
    eventually("the state of the Service", || {
        if watch.stdout().contains("e2e/web") { Ok(()) } else { Err(watch.stderr()) }
    });
    drop(watch);

    let on_node = [&["routes", "--gateway", "gw-9"][..], &cluster].concat();
    laptop.api.refuse(true);
    let refused = laptop.run(program::path(), &on_node);
    assert!(
        refused.stderr.contains("no way to the gateway on node gw-9: API server http://"),
        "{}",
        refused.stderr
    );
    laptop.api.set_pods(&[]);
    let nobody = laptop.run(program::path(), &on_node);
    assert_eq!(nobody.code(), Some(69));
    assert!(
        nobody.stderr.contains("no Pod with the labels app.kubernetes.io/name=sheave,"),
        "{}",
        nobody.stderr
    );
    let unreachable =
        laptop.run(program::path(), &["status", "--gateway", "gw-1", "--kubeconfig", &kubeconfig]);
    assert!(
        unreachable.code() == Some(2) && unreachable.stderr.contains("API server http://127.0.0.1:1/: "),
        "{}",
        unreachable.stderr
    );
    no_process_at_hand_is_searched_elsewhere(&laptop, &plugin, &cluster);
}

fn no_process_at_hand_is_searched_elsewhere(laptop: &Laptop<'_>, plugin: &str, cluster: &[&str]) {
    laptop.api.requests();
    laptop.run(plugin, &["status", "--admin", "http://127.0.0.1:9841"]).expect_success();
    fs::write(laptop.path("config.yaml"), "").expect("a file is written");
    laptop.run(plugin, &["status"]).expect_success();
    assert_eq!(laptop.api.requests(), [""; 0]);
    // With a named cluster, the process on this machine is not used.
    laptop.run(plugin, &[&["status"][..], cluster].concat());
    assert_eq!(laptop.api.requests().len(), 1);
}
