//! Minimal kubelet and DaemonSet controller for one node and the gateways of `deploy/base`: Pods are processes, each in its own PID
//! namespace, with the arguments, environment, probes and periods of the manifest. Independent of the cases.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid as ProcessId;
use serde_json::Value;

use crate::stage::{Home, Sheave, Stage};
use crate::support::patience::{eventually_within, let_pass, patience};

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base/gateway.yaml");
/// Interval of probes, shorter than on a node, whose periods are for many Pods.
const PERIOD: Duration = Duration::from_millis(100);

/// DaemonSet of the gateways, on one node.
pub(crate) struct DaemonSet<'s> {
    stage: &'s Stage<'s>,
    home: &'s Home,
    object: Value,
    started: usize,
    pod: Pod<'s>,
}

/// Pod of the DaemonSet.
pub(crate) struct Pod<'s> {
    /// Process whose child is the Pod's main process.
    pub(crate) sheave: Sheave<'s>,
    number: usize,
}

/// Required part of an object.
fn part<'v>(object: &'v Value, pointer: &str) -> &'v Value {
    object.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {object}"))
}

impl<'s> DaemonSet<'s> {
    /// Starts its first Pod and waits until it is ready.
    pub(crate) fn start(stage: &'s Stage<'s>, home: &'s Home) -> Self {
        let text = std::fs::read_to_string(MANIFEST).expect("the manifest is there");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
        let object = documents.into_iter().find(|it| it["kind"] == "DaemonSet").expect("a DaemonSet");
        let rolling = part(&object, "/spec/updateStrategy/rollingUpdate");
        assert_eq!((&rolling["maxSurge"], &rolling["maxUnavailable"]), (&1.into(), &0.into()));
        let pod = create(stage, home, &object, 0);
        let mut this = Self { stage, home, object, started: 1, pod };
        wait_until_ready(stage, home, &this.object, &mut this.pod);
        this
    }

    /// `kubectl rollout restart`: the next Pod starts next to the present one, which is deleted once the next one is ready. Returns
    /// the former Pod, which has been told to end.
    pub(crate) fn roll(&mut self) -> Pod<'s> {
        let mut next = create(self.stage, self.home, &self.object, self.started);
        self.started += 1;
        wait_until_ready(self.stage, self.home, &self.object, &mut next);
        // minReadySeconds, shorter than on a node.
        let_pass(10 * PERIOD);
        assert!(next.sheave.is_ready(), "{}", next.sheave.log());
        let former = std::mem::replace(&mut self.pod, next);
        former.signal(Signal::SIGTERM);
        former
    }

    /// `kubectl rollout undo` before the next Pod counts as available: the next Pod is deleted, although it serves by now, and the
    /// present one stays. Its container exits with an error and is restarted. Returns the next Pod.
    pub(crate) fn roll_in_vain(&mut self) -> Pod<'s> {
        let mut next = create(self.stage, self.home, &self.object, self.started);
        self.started += 1;
        wait_until_ready(self.stage, self.home, &self.object, &mut next);
        self.pod.sheave.expect_running();
        next.signal(Signal::SIGTERM);
        let ended = self.pod.sheave.wait();
        assert_eq!(ended.code(), Some(69), "{}", self.pod.sheave.log());
        self.pod = create(self.stage, self.home, &self.object, self.pod.number);
        wait_until_ready(self.stage, self.home, &self.object, &mut self.pod);
        next
    }
}

fn container(object: &Value) -> &Value {
    part(object, "/spec/template/spec/containers/0")
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list");
    list.iter().map(|it| it.as_str().expect("a text").to_owned()).collect()
}

/// Command with the configuration of this home, which all Pods of the node share.
fn configured(mut command: Vec<String>, home: &Home) -> Vec<String> {
    let config = command.iter_mut().find(|it| it.ends_with("/config.yaml")).expect("a configuration");
    *config = home.config();
    command
}

fn create<'s>(stage: &'s Stage<'s>, home: &Home, object: &Value, number: usize) -> Pod<'s> {
    let container = container(object);
    let name = format!("sheave-gateway-{number}");
    let given = |variable: &str| match variable {
        "POD_NAME" => name.clone(),
        "POD_NAMESPACE" => "sheave-system".to_owned(),
        "NODE_NAME" => stage.node().to_owned(),
        "NODE_IP" => crate::stage::NODE_ADDRESS.to_string(),
        other => panic!("the manifest has a new variable: {other}"),
    };
    let variables = part(container, "/env").as_array().expect("a list").iter();
    let variables = variables.map(|it| it["name"].as_str().expect("a name"));
    let mut command: Vec<String> =
        ["unshare", "--pid", "--fork", "--kill-child", "env"].map(str::to_owned).into();
    command.extend(variables.map(|it| format!("{it}={}", given(it))));
    command.push(sheave_test_support::program::path().to_owned());
    command.extend(configured(texts(part(container, "/args")), home));
    Pod { sheave: stage.launch_as(&command, home), number }
}

/// Runs the startup probe until it succeeds, and then the readiness probe, like a kubelet.
fn wait_until_ready(stage: &Stage<'_>, home: &Home, object: &Value, pod: &mut Pod<'_>) {
    let container = container(object);
    let mut probe = configured(texts(part(container, "/startupProbe/exec/command")), home);
    sheave_test_support::program::path().clone_into(&mut probe[0]);
    let most = part(container, "/startupProbe/failureThreshold").as_u64().expect("a number");
    let mut failures = 0;
    eventually_within(patience(60.0), "the Pod has started", || {
        pod.sheave.expect_running();
        let inside = ["--target".to_owned(), pod.main_process().to_string(), "--pid".to_owned()];
        let probed = stage.host.finish("nsenter", &[&inside[..], &probe].concat());
        failures += 1;
        assert!(failures <= most, "the kubelet would have given up: {}", probed.stderr);
        if probed.code() == Some(0) {
            return Ok(());
        }
        let_pass(PERIOD);
        Err(probed.stderr)
    });
    assert_eq!(part(container, "/readinessProbe/httpGet/path"), "/readyz");
    pod.sheave.wait_until_ready();
}

impl Pod<'_> {
    /// Sends a signal to process 1 of its container.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(ProcessId::from_raw(self.main_process()), signal).expect("it runs");
    }

    /// Its process ID as seen by this process.
    fn main_process(&self) -> i32 {
        let parent = self.sheave.id();
        eventually_within(patience(10.0), "the container has its process", || {
            let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
            children
                .map_err(|error| error.to_string())?
                .trim()
                .parse::<i32>()
                .map_err(|error| error.to_string())
        })
    }
}
