//! Tests of commands on a machine outside of the cluster, with a port-forward to a gateway. A script takes the
//! place of kubectl.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use crate::support::gateway::Gateway;
use crate::support::manifest::App;
use crate::support::patience::eventually;
use crate::support::process::Finished;
use crate::support::world::{Family, World};
use sheave_test_support::program;

/// A folder with `kubectl`, `kubectl-sheave`, and a configuration whose admin address has no listener on this
/// machine.
struct Laptop<'w> {
    world: &'w World,
    folder: TempDir,
}

impl<'w> Laptop<'w> {
    fn new(world: &'w World) -> Self {
        let laptop = Self { world, folder: tempfile::tempdir().expect("a temporary folder") };
        fs::write(laptop.path("config.yaml"), "admin: {listen: \"127.0.0.1:9842\"}\n")
            .expect("a file is written");
        symlink(program::path(), laptop.path("kubectl-sheave")).expect("a link is made");
        laptop.script("echo pod/sheave-gateway-x");
        laptop
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Makes kubectl lead to the gateway of the world, and run `pods` when asked for Pods.
    fn script(&self, pods: &str) {
        let script = format!(
            "#!/bin/sh\necho $$ \"$@\" >> {}\ncase \"$*\" in\n*\" get pods \"*) {pods} ;;\n\
             *) echo 'Forwarding from 127.0.0.1:9841 -> 9842'; exec /bin/sleep 1000 ;;\nesac\n",
            self.path("called")
        );
        fs::write(self.path("kubectl"), script).expect("a script is written");
        fs::set_permissions(self.path("kubectl"), Permissions::from_mode(0o755)).expect("it may be run");
    }

    fn words<'a>(&'a self, program: &'a str, words: &[&'a str]) -> Vec<String> {
        let (search, config) = (format!("PATH={}", self.folder.path().display()), self.path("config.yaml"));
        let first = [search.as_str(), program].map(str::to_owned);
        let last = ["--config", config.as_str()].map(str::to_owned);
        first.into_iter().chain(words.iter().map(|word| (*word).to_owned())).chain(last).collect()
    }

    fn run(&self, program: &str, words: &[&str]) -> Finished {
        self.world.gateway.finish("env", &self.words(program, words))
    }

    /// Command lines of kubectl since the last call. None of them may still run.
    fn called(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("called")).unwrap_or_default();
        drop(fs::remove_file(self.path("called")));
        let calls = text.lines().map(|line| {
            let (process, words) = line.split_once(' ').expect("its id and its arguments");
            assert!(!fs::exists(format!("/proc/{process}")).unwrap_or(true), "it has ended: {words}");
            words.to_owned()
        });
        calls.collect()
    }
}

#[test]
fn commands_ask_a_gateway_of_the_cluster_through_kubectl() {
    let (world, family) = (World::new(1), Family::V4);
    let web = App::new("web", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0));
    let _gateway = Gateway::start(&world, &[web]);
    let laptop = Laptop::new(&world);
    let plugin = laptop.path("kubectl-sheave");
    let manifests = laptop.path("empty");
    fs::create_dir(&manifests).expect("a folder is made");
    let pods = "--kubeconfig /k --context prod --namespace sheave-system get pods --selector \
                app.kubernetes.io/name=sheave,app.kubernetes.io/component=gateway --field-selector \
                spec.nodeName=gw-1,status.phase=Running --output name";
    let forward = |remote: &str| {
        format!(
            "--kubeconfig /k --context prod --namespace sheave-system port-forward --address 127.0.0.1 {remote} :9842"
        )
    };
    for (words, part) in [
        (&["status"][..], "(gateway) on node "),
        (&["explain", "e2e/web"], "Service e2e/web"),
        (&["routes"], "e2e/web"),
        (&["gateways"], ""),
        (&["top", "--once"], "e2e/web"),
        (&["diff", "--manifests", &manifests], "0 added, 1 removed"),
    ] {
        let cluster = ["--kubeconfig", "/k", "--context", "prod"];
        let on_node = [words, &["--gateway", "gw-1"], &cluster].concat();
        let told = laptop.run(program::path(), &on_node);
        assert!(told.stdout.contains(part), "{words:?}: {}{}", told.stdout, told.stderr);
        assert_eq!(laptop.called(), [pods.to_owned(), forward("pod/sheave-gateway-x")], "{words:?}");
        let any = laptop.run(&plugin, &[words, &cluster].concat());
        assert!(any.stdout.contains(part), "{words:?}: {}{}", any.stdout, any.stderr);
        assert_eq!(laptop.called(), [forward("daemonset/sheave-gateway")], "{words:?}");
        let named = laptop.run(program::path(), &[words, &cluster].concat());
        assert!(named.stdout.contains(part), "{words:?}: {}{}", named.stdout, named.stderr);
        assert_eq!(laptop.called(), [forward("daemonset/sheave-gateway")], "{words:?}");
        let here = laptop.run(program::path(), words);
        assert!(here.stderr.contains("http://127.0.0.1:9842 does not answer"), "{}", here.stderr);
        assert_eq!(laptop.called(), [""; 0], "only a plugin looks elsewhere by itself");
    }
    // The port-forward lasts as long as the command.
    let watch = world.gateway.start("env", &laptop.words(&plugin, &["watch", "e2e/web"]));
    eventually("the state of the Service", || {
        if watch.stdout().contains("e2e/web") { Ok(()) } else { Err(watch.stderr()) }
    });
    drop(watch);

    laptop.script("true");
    let nobody = laptop.run(program::path(), &["routes", "--gateway", "gw-9"]);
    assert_eq!(nobody.code(), Some(69));
    let why =
        "no way to the gateway on node gw-9: no gateway runs there, by the Pods of namespace sheave-system";
    assert!(nobody.stderr.contains(why), "{}", nobody.stderr);
    laptop.script("echo 'error: forbidden' >&2; exit 1");
    let refused = laptop.run(program::path(), &["status", "--gateway", "gw-1"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("error: forbidden"), "{}", refused.stderr);

    // A named process, or one that serves here, is not searched elsewhere.
    drop(fs::remove_file(laptop.path("called")));
    laptop.run(&plugin, &["status", "--admin", "http://127.0.0.1:9841"]).expect_success();
    fs::write(laptop.path("config.yaml"), "").expect("a file is written");
    laptop.run(&plugin, &["status"]).expect_success();
    assert_eq!(laptop.called(), [""; 0]);
    // With a named cluster, the process on this machine is not used.
    laptop.run(&plugin, &["status", "--context", "prod"]).expect_success();
    let [forward] = laptop.called().try_into().expect("kubectl is called once");
    assert!(
        forward.starts_with("--context prod ") && forward.ends_with(" daemonset/sheave-gateway :9841"),
        "{forward}"
    );
}
