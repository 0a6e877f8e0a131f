//! Connection to an admin server in the cluster, which listens on loopback in its Pod. `kubectl port-forward` makes it, with the user's
//! credentials, plugins and proxies.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sheave_dataplane::kill_with_parent;

use crate::options::Options;

/// Name of the controller in the manifests and the chart of `deploy`, in the namespace of its Lease.
const CONTROLLER: &str = "deployment/sheave-controller";
/// Name of the gateways. kubectl prefers a ready Pod (`ActivePods` in kubectl, util/podutils).
const GATEWAYS: &str = "daemonset/sheave-gateway";
/// Labels of the gateways' Pods.
const OF_GATEWAYS: &str = "app.kubernetes.io/name=sheave,app.kubernetes.io/component=gateway";
/// How long kubectl may take; a credential plugin may ask the user.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to read stderr after kubectl has failed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Prefix of the line that kubectl prints once it listens (`ForwardedPort` in client-go, tools/portforward).
const LISTENING: &str = "Forwarding from ";

/// Port-forward that ends when it is dropped, and when the thread that opened it ends. The admin server behind it has no authentication, so
/// the forward must not outlive a command that a signal ends.
#[derive(Debug)]
pub(crate) struct PortForward {
    kubectl: Child,
    /// `host:port` on this machine.
    pub(crate) authority: String,
}

/// Target of a port-forward.
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
    /// Opens a port-forward to the admin server of a process, in the namespace of the configured Lease.
    ///
    /// # Errors
    /// If the port-forward fails, with the reason as text. kubectl itself has written details to stderr.
    pub(crate) fn open(remote: &Remote<'_>, config: &Options) -> Result<Self, String> {
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
        // From here on, `Drop` ends kubectl on every path.
        let mut forward = Self { kubectl, authority: String::new() };
        let opening = Arc::new(AtomicBool::new(true));
        let said = forward.kubectl.stderr.take().map(|stderr| pass_on(stderr, Arc::clone(&opening)));
        match forward.listening() {
            Ok(authority) => forward.authority = authority,
            Err(error) => {
                drop(forward);
                // Print kubectl's last lines before the error. The wait is limited, since another process may hold its stderr open.
                said.map(|said| said.recv_timeout(LAST_WORDS));
                return Err(error);
            }
        }
        opening.store(false, Ordering::Release);
        Ok(forward)
    }

    /// Waits until kubectl listens, and returns the address.
    fn listening(&mut self) -> Result<String, String> {
        let stdout = self.kubectl.stdout.take().ok_or("kubectl has no stdout")?;
        let (sender, first_line) = mpsc::channel();
        // Keeps reading, so that kubectl never blocks on a full pipe.
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            // The receiver may have timed out.
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
        // kubectl may have ended already.
        self.kubectl.kill().ok();
        self.kubectl.wait().ok();
    }
}

/// Passes on stderr of kubectl until the port-forward is open: errors, and prompts for credentials. Later output is dropped, since `sheave
/// top` then has the terminal and the command itself reports a lost connection. The receiver is notified of the end.
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

/// kubectl with the cluster of the command line.
fn kubectl(config: &Options) -> Command {
    let mut command = Command::new("kubectl");
    if let Some(kubeconfig) = &config.kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(context) = &config.context {
        command.args(["--context", context]);
    }
    command.args(["--namespace", &config.namespace]);
    command
}

/// The Pod of the gateway on a Node, named for kubectl. During an update two Pods share the Node's ports, so either will do.
fn pod_on(node: &str, config: &Options) -> Result<String, String> {
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
    found.ok_or_else(|| format!("no gateway runs there, by the Pods of namespace {}", config.namespace))
}
