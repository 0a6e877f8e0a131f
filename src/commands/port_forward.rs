//! A way to an admin server in the cluster, which listens on loopback in its Pod: `kubectl port-forward`, which has the user's
//! credentials, plugins and proxies.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sheave_dataplane::kill_with_parent;

use crate::config::Config;

/// Where the manifests and the chart of `deploy` have the controller, in the namespace of its Lease.
const CONTROLLER: &str = "deployment/sheave-controller";
/// The same of the gateways. kubectl takes a Pod that is ready before others (`ActivePods` in kubectl, util/podutils).
const GATEWAYS: &str = "daemonset/sheave-gateway";
/// The labels of the gateways' Pods.
const OF_GATEWAYS: &str = "app.kubernetes.io/name=sheave,app.kubernetes.io/component=gateway";
/// How long kubectl may take: credentials may come from a plugin that asks the user.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long what it said before its end may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What kubectl prints once it listens (`ForwardedPort` in client-go, tools/portforward).
const LISTENING: &str = "Forwarding from ";

/// A port-forward, which ends when it is dropped, and with the thread that opened it: the admin server behind it asks nobody who they
/// are, so that it must not outlive a command that a signal ends.
#[derive(Debug)]
pub(crate) struct PortForward {
    kubectl: Child,
    /// The `host:port` on this machine.
    pub(crate) authority: String,
}

/// What a port-forward leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Remote<'a> {
    /// One of the controllers.
    Controller,
    /// A ready gateway.
    AnyGateway,
    /// The gateway on this Node.
    GatewayOn(&'a str),
}

impl PortForward {
    /// To the admin server of a process whose Pod is in the namespace of the configured Lease.
    ///
    /// # Errors
    /// Why there is none. kubectl itself has said more on stderr.
    pub(crate) fn open(remote: &Remote<'_>, config: &Config) -> Result<Self, String> {
        let target = match remote {
            Remote::Controller => CONTROLLER.to_owned(),
            Remote::AnyGateway => GATEWAYS.to_owned(),
            Remote::GatewayOn(node) => pod_on(node, config)?,
        };
        let mut command = kubectl(config);
        let port = format!(":{}", config.admin_listen.port());
        command.args(["port-forward", "--address", "127.0.0.1", &target, &port]);
        kill_with_parent(&mut command);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let kubectl = spawned.map_err(|error| format!("kubectl: {error}"))?;
        // From here on it is ended whatever happens.
        let mut forward = Self { kubectl, authority: String::new() };
        let opening = Arc::new(AtomicBool::new(true));
        let said = forward.kubectl.stderr.take().map(|stderr| pass_on(stderr, Arc::clone(&opening)));
        match forward.listening() {
            Ok(authority) => forward.authority = authority,
            Err(error) => {
                drop(forward);
                // What it said comes before what is made of it; whoever else has its stderr is not waited for.
                said.map(|said| said.recv_timeout(LAST_WORDS));
                return Err(error);
            }
        }
        opening.store(false, Ordering::Release);
        Ok(forward)
    }

    /// Where it listens, as soon as it does.
    fn listening(&mut self) -> Result<String, String> {
        let stdout = self.kubectl.stdout.take().ok_or("kubectl has no stdout")?;
        let (sender, first_line) = mpsc::channel();
        // Reads on, so that kubectl never waits for a reader.
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // Whoever waited may have gone.
            sender.send(stdout.read_line(&mut line).map(|_| line)).ok();
            io::copy(&mut stdout, &mut io::sink()).ok();
        });
        let line = match first_line.recv_timeout(PATIENCE) {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => return Err(format!("kubectl: {error}")),
            Err(_) => return Err(format!("kubectl port-forward took longer than {} s", PATIENCE.as_secs())),
        };
        let address = line.strip_prefix(LISTENING).and_then(|rest| rest.split(" -> ").next());
        let address = address.filter(|address| address.parse::<std::net::SocketAddr>().is_ok());
        address.map(str::to_owned).ok_or_else(|| "kubectl port-forward ended".to_owned())
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.kubectl.kill().ok();
        self.kubectl.wait().ok();
    }
}

/// Passes on what kubectl says while the way is opened: why there is none, or what credentials ask for. Later `sheave top` has the terminal,
/// and the command itself reports that nothing answers. The receiver hears of the end.
fn pass_on(mut stderr: ChildStderr, opening: Arc<AtomicBool>) -> mpsc::Receiver<()> {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = [0; 1024];
        while let Ok(length @ 1..) = stderr.read(&mut bytes) {
            if opening.load(Ordering::Acquire) {
                io::stderr().write_all(&bytes[..length]).ok();
            }
        }
        drop(ended);
    });
    end
}

/// kubectl with the cluster that the command line means.
fn kubectl(config: &Config) -> Command {
    let mut command = Command::new("kubectl");
    if let Some(kubeconfig) = &config.kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(context) = &config.context {
        command.args(["--context", context]);
    }
    command.args(["--namespace", &config.lease.namespace]);
    command
}

/// The Pod of the gateway on a Node, as kubectl names it. Two of them, while one replaces the other, share the Node's ports.
fn pod_on(node: &str, config: &Config) -> Result<String, String> {
    let mut command = kubectl(config);
    let running = format!("spec.nodeName={node},status.phase=Running");
    command.args([
        "get",
        "pods",
        "--selector",
        OF_GATEWAYS,
        "--field-selector",
        &running,
        "--output",
        "name",
    ]);
    kill_with_parent(&mut command);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("kubectl: {error}"))?;
    if !output.status.success() {
        return Err("kubectl get pods failed".to_owned());
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let found = names.lines().find(|name| name.starts_with("pod/")).map(str::to_owned);
    found.ok_or_else(|| format!("no gateway runs there, by the Pods of namespace {}", config.lease.namespace))
}
