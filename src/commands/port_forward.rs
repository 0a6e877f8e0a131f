//! A way to a controller's admin server, which listens on loopback in its Pod: `kubectl port-forward`, which has the user's credentials,
//! plugins and proxies.

use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sheave_control::api::store::ServiceKey;
use sheave_dataplane::kill_with_parent;

/// Where the manifests and the chart of `deploy` have the controller, in the namespace of its Lease.
const CONTROLLER: &str = "deployment/sheave-controller";
/// How long kubectl may take: credentials may come from a plugin that asks the user.
const PATIENCE: Duration = Duration::from_secs(30);
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

impl PortForward {
    /// To `port` of a controller whose Lease is this one, with this kubeconfig and context.
    ///
    /// # Errors
    /// Why there is none. kubectl itself has said more on stderr.
    pub(crate) fn open(
        lease: &ServiceKey,
        port: u16,
        kubeconfig: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Self, String> {
        let mut command = Command::new("kubectl");
        if let Some(kubeconfig) = kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        if let Some(context) = context {
            command.args(["--context", context]);
        }
        let remote = format!(":{port}");
        command.args([
            "--namespace",
            &lease.namespace,
            "port-forward",
            "--address",
            "127.0.0.1",
            CONTROLLER,
            &remote,
        ]);
        kill_with_parent(&mut command);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let kubectl = spawned.map_err(|error| format!("kubectl: {error}"))?;
        // From here on it is ended whatever happens.
        let mut forward = Self { kubectl, authority: String::new() };
        forward.authority = forward.listening()?;
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
