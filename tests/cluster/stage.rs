//! Stage: one machine of the cluster, with its addresses, its Sheave processes, and its Node object. All traffic of a
//! case stays on this machine.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::cluster::{Account, Cluster};
use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually_within, patience};
use crate::support::process::{Finished, Process};
use crate::support::road::Road;
use crate::support::tcp;

/// Range of the cases' pools: routed to this machine, but on no interface.
pub(crate) const POOL: &str = "203.0.113.0/24";
/// Addresses of endpoints, on the loopback interface.
pub(crate) const ENDPOINTS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 1, 0, 7), Ipv4Addr::new(10, 1, 0, 8), Ipv4Addr::new(10, 1, 0, 9)];
/// Address of the machine.
pub(crate) const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Port of every endpoint.
const ENDPOINT_PORT: u16 = 8080;

/// Machine of the cluster.
pub(crate) struct Stage<'c> {
    /// Network namespace of the machine.
    pub(crate) host: Host,
    cluster: &'c Cluster,
    node: String,
}

/// Role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `sheave gateway`.
    Gateway,
    /// `sheave controller`.
    Controller,
    /// `sheave run`.
    Run,
}

/// Running Sheave process, which is killed when dropped.
pub(crate) struct Sheave<'s> {
    process: Process,
    host: &'s Host,
    admin: SocketAddr,
    /// Kept while the process may use it.
    _folder: Arc<TempDir>,
}

/// Configuration and state directory of a process, which outlive restarts.
pub(crate) struct Home {
    role: Role,
    folder: Arc<TempDir>,
    admin: SocketAddr,
}

impl<'c> Stage<'c> {
    /// A machine with a Node in the cluster.
    pub(crate) fn new(cluster: &'c Cluster) -> Self {
        let host = Host::new("node");
        let mut lines = vec![
            format!("addr add {NODE_ADDRESS}/32 dev lo"),
            format!("route add local {POOL} dev lo"),
            "route add local 198.51.100.0/24 dev lo".to_owned(),
        ];
        lines.extend(ENDPOINTS.iter().map(|ip| format!("addr add {ip}/32 dev lo")));
        host.ip(&lines);
        let node = format!("node-{}", cluster.namespace());
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\nstatus: {{addresses: [{{type: InternalIP, address: \
             {NODE_ADDRESS}}}]}}\n"
        ));
        Self { host, cluster, node }
    }

    /// Name of the Node.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// A road from here to the API server.
    pub(crate) fn road(&self) -> Road<'_> {
        self.cluster.road(&self.host)
    }

    /// Prepares a process that reaches the API server by `road`. `config` has additional keys.
    pub(crate) fn home(&self, role: Role, road: &Road<'_>, config: &str) -> Home {
        let account = match role {
            Role::Gateway => Account::Gateway,
            Role::Controller => Account::Controller,
            Role::Run => Account::Administrator,
        };
        self.home_by(role, &self.cluster.kubeconfig(account, road), config)
    }

    /// Prepares a process with the kubeconfig at this path.
    pub(crate) fn home_by(&self, role: Role, kubeconfig: &Path, config: &str) -> Home {
        self.home_on(&self.node, role, kubeconfig, config)
    }

    /// Like [`Stage::home_by`], with another Node name for the process.
    pub(crate) fn home_on(&self, node: &str, role: Role, kubeconfig: &Path, config: &str) -> Home {
        let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        let port = self.host.run(|| free_port(Ipv4Addr::LOCALHOST));
        let admin = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let timeouts = match config.contains("timeouts:") {
            true => "",
            false => "timeouts: {connect: 2s, idle: 1h, udpIdle: 60s, lameDuck: 0s, drain: 20s}\n",
        };
        let text = format!(
            "node: {}\nkubeconfig: {}\nadmin: {{listen: \"{admin}\"}}\nstateDir: {}\nworkers: 2\n\
             {timeouts}{config}",
            node,
            kubeconfig.display(),
            folder.path().join("state").display(),
        );
        fs::write(folder.path().join("config.yaml"), text).expect("a file is written");
        Home { role, folder, admin }
    }

    /// Adds keys to the configuration of a process.
    pub(crate) fn add_to_config(&self, home: &Home, keys: &str) {
        let file = home.folder.path().join("config.yaml");
        let text = fs::read_to_string(&file).expect("a configuration");
        fs::write(file, text + keys).expect("a file is written");
    }

    /// Starts the process without waiting.
    pub(crate) fn launch(&self, home: &Home) -> Sheave<'_> {
        self.launch_behind(&[], home)
    }

    /// Like [`Stage::launch`], with a command prefix.
    pub(crate) fn launch_behind(&self, prefix: &[String], home: &Home) -> Sheave<'_> {
        self.launch_program(prefix, sheave_test_support::program::path(), home)
    }

    /// Like [`Stage::launch_behind`], with another program.
    pub(crate) fn launch_program(&self, prefix: &[String], program: &str, home: &Home) -> Sheave<'_> {
        let command = match home.role {
            Role::Gateway => "gateway",
            Role::Controller => "controller",
            Role::Run => "run",
        };
        let sheave = [program, command, "--config", &home.config()].map(str::to_owned);
        self.launch_as(&[prefix, &sheave].concat(), home)
    }

    /// Like [`Stage::launch`], with a command that starts the process.
    pub(crate) fn launch_as(&self, command: &[String], home: &Home) -> Sheave<'_> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let process = self.host.start(program, arguments);
        Sheave { process, host: &self.host, admin: home.admin, _folder: Arc::clone(&home.folder) }
    }

    /// Starts the process and waits until it is ready.
    pub(crate) fn start(&self, home: &Home) -> Sheave<'_> {
        let mut sheave = self.launch(home);
        sheave.wait_until_ready();
        sheave
    }

    /// Runs another command to its end, with the configuration of that process.
    pub(crate) fn command(&self, home: &Home, command: &str, arguments: &[&str]) -> Finished {
        let config = home.config();
        let all = [&[command, "--config", &config], arguments].concat();
        self.host.finish(sheave_test_support::program::path(), &all)
    }

    /// Sets whether a ready gateway exists on this Node, and its report port, if any.
    pub(crate) fn gateway_is(&self, ready: bool, port: impl Into<Option<u16>>) {
        self.gateway_of_name("gateways", ready, port);
    }

    /// Like [`Stage::gateway_is`], in a slice whose name has this prefix.
    pub(crate) fn gateway_of_name(&self, name: &str, ready: bool, port: impl Into<Option<u16>>) {
        self.gateway_slice(name, &format!("ready: {ready}"), port);
    }

    /// Creates the slice of the gateway with these conditions of its endpoint.
    pub(crate) fn gateway_slice(&self, name: &str, conditions: &str, port: impl Into<Option<u16>>) {
        let port = port.into().map(|port| format!("{{name: report, port: {port}, protocol: TCP}}"));
        self.cluster.apply(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{ns}, namespace: \
             sheave-system, labels: {{kubernetes.io/service-name: sheave-gateways}}}}\naddressType: IPv4\nports: \
             [{port}]\nendpoints: [{{addresses: [{NODE_ADDRESS}], nodeName: {node}, conditions: {{{conditions}}}}}]\n",
            port = port.unwrap_or_default(),
            ns = self.cluster.namespace(),
            node = self.node,
        ));
    }

    /// Starts a server on each endpoint address, named `endpoint-0` and so on.
    pub(crate) fn endpoints(&self) -> Vec<tcp::Server> {
        let start = |(index, ip): (usize, &Ipv4Addr)| {
            let address = SocketAddr::new(IpAddr::V4(*ip), ENDPOINT_PORT);
            tcp::Server::who_am_i(&self.host, address, &format!("endpoint-{index}"))
        };
        ENDPOINTS.iter().enumerate().map(start).collect()
    }

    /// Creates the slice of Service `name` in the case's namespace, with these endpoints (by number) ready.
    pub(crate) fn slice(&self, name: &str, ready: &[usize]) {
        let endpoints: Vec<String> = ready
            .iter()
            .map(|&index| {
                format!(
                    "{{addresses: [{}], nodeName: {}, conditions: {{ready: true}}}}",
                    ENDPOINTS[index], self.node
                )
            })
            .collect();
        self.cluster.apply(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, labels: \
             {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: http, port: {ENDPOINT_PORT}, \
             protocol: TCP}}]\nendpoints: [{}]\n",
            endpoints.join(", ")
        ));
    }

    /// Queries an address from this machine, and returns the name of the endpoint that answers.
    pub(crate) fn ask(&self, address: IpAddr, port: u16) -> std::io::Result<String> {
        self.host.run(|| tcp::ask(SocketAddr::new(address, port))).map(|answer| answer.name)
    }

    /// Waits until an endpoint answers at the address.
    pub(crate) fn wait_until_served(&self, address: IpAddr, port: u16) -> String {
        eventually_within(patience(30.0), &format!("{address}:{port} is served"), || self.ask(address, port))
    }
}

impl Home {
    /// State directory, which the process creates.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Path of its configuration file.
    pub(crate) fn config(&self) -> String {
        self.folder.path().join("config.yaml").display().to_string()
    }

    pub(crate) fn snapshot(&self) -> PathBuf {
        self.state().join("snapshot.jsonl")
    }
}

impl Sheave<'_> {
    /// ID of the process that was started.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Address of its admin server.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Fails if it has ended.
    pub(crate) fn expect_running(&mut self) {
        self.process.expect_running();
    }

    /// Waits until `/readyz` succeeds.
    pub(crate) fn wait_until_ready(&mut self) {
        eventually_within(patience(30.0), "the process is ready", || {
            self.process.expect_running();
            match self.host.run(|| http::get(self.admin, "/readyz")) {
                Ok(response) if response.status == 200 => Ok(()),
                Ok(response) => Err(format!("{} {}", response.status, response.body)),
                Err(error) => Err(error.to_string()),
            }
        });
    }

    /// Whether `/readyz` succeeds.
    pub(crate) fn is_ready(&self) -> bool {
        self.host.run(|| http::get(self.admin, "/readyz")).is_ok_and(|response| response.status == 200)
    }

    /// A JSON page of the admin server.
    pub(crate) fn page(&self, path: &str) -> Value {
        let response = self.host.run(|| http::get(self.admin, path));
        let response = response.unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str(&response.body)
            .unwrap_or_else(|error| panic!("{path}: {error}: {}", response.body))
    }

    /// The text of an admin page.
    pub(crate) fn text(&self, path: &str) -> String {
        let response = self.host.run(|| http::get(self.admin, path));
        response.unwrap_or_else(|error| panic!("{path}: {error}")).body
    }

    /// Status and text of `/readyz`.
    pub(crate) fn readiness(&self) -> std::io::Result<(u16, String)> {
        let response = self.host.run(|| http::get(self.admin, "/readyz"))?;
        Ok((response.status, response.body))
    }

    /// Output of `sheave status`, whatever its exit code.
    pub(crate) fn status_text(&self) -> String {
        let admin = format!("http://{}", self.admin);
        let told = self.host.finish(sheave_test_support::program::path(), &["status", "--admin", &admin]);
        assert!(matches!(told.code(), Some(0..=2)) && !told.stdout.is_empty(), "{}", told.stderr);
        told.stdout
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }

    /// Waits until the log contains this text.
    pub(crate) fn wait_for_log(&self, part: &str) {
        eventually_within(patience(30.0), &format!("the log says {part:?}"), || {
            let log = self.log();
            if log.contains(part) { Ok(()) } else { Err(log) }
        });
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills it without any cleanup, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.process.signal(Signal::SIGKILL);
        self.process.wait();
    }

    /// Waits until it has ended, on its own or by a signal, and returns all of its output.
    pub(crate) fn finish(self) -> Finished {
        self.process.finish()
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// Requests its end, and waits for it.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.process.signal(Signal::SIGTERM);
        self.process.wait()
    }
}

/// An unused port of this address. The calling thread must be inside the right host.
pub(crate) fn free_port(ip: Ipv4Addr) -> u16 {
    let listener = TcpListener::bind((ip, 0)).expect("a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Addresses that a Service publishes.
pub(crate) fn published(service: &Value) -> Vec<IpAddr> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    ingress.iter().filter_map(|ingress| ingress["ip"].as_str()?.parse().ok()).collect()
}

/// Waits until a Service publishes addresses, and returns them.
pub(crate) fn wait_for_addresses(cluster: &Cluster, name: &str) -> Vec<IpAddr> {
    eventually_within(patience(30.0), &format!("Service {name} has an address"), || {
        let service = cluster.get("Service", name).ok_or("no such Service")?;
        let addresses = published(&service);
        if addresses.is_empty() { Err("none is published") } else { Ok(addresses) }
    })
}

/// Condition of a Service: its status, reason and message.
pub(crate) fn condition(object: &Value, kind: &str) -> Option<(String, String, String)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
    let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// Waits until a condition of an object has this status, and returns its reason and message.
pub(crate) fn wait_for_condition(
    cluster: &Cluster,
    (kind, name): (&str, &str),
    condition_type: &str,
    status: &str,
) -> (String, String) {
    let what = format!("{kind} {name} says {condition_type}={status}");
    eventually_within(patience(30.0), &what, || {
        let object = cluster.get(kind, name).ok_or("no such object")?;
        match condition(&object, condition_type) {
            Some((now, reason, message)) if now == status => Ok((reason, message)),
            other => Err(format!("{other:?}")),
        }
    })
}

/// Waits until an object is gone.
pub(crate) fn wait_until_gone(cluster: &Cluster, kind: &str, name: &str) {
    eventually_within(patience(30.0), &format!("{kind} {name} is gone"), || match cluster.get(kind, name) {
        None => Ok(()),
        Some(object) => Err(object.to_string()),
    });
}

/// A pool with these addresses, only for the case's namespace.
pub(crate) fn pool(cluster: &Cluster, name: &str, addresses: &str) {
    cluster.apply(&format!(
        "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: {name}}}\nspec: {{addresses: [{addresses}], \
         namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}}}\n",
        cluster.namespace()
    ));
}

/// A Service of our class with port http 80, and these additional fields in its spec.
pub(crate) fn service(cluster: &Cluster, name: &str, spec: &str) {
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{type: LoadBalancer, loadBalancerClass: \
         sheave.dev/l4, allocateLoadBalancerNodePorts: false, ports: [{{name: http, port: 80, protocol: TCP, targetPort: \
         8080}}]{}{spec}}}\n",
        if spec.is_empty() { "" } else { ", " }
    ));
}

/// Time without changes that counts as rest.
pub(crate) const REST: Duration = Duration::from_secs(3);
/// Same including changed messages, which are written up to 10 s later.
pub(crate) const REST_OF_WORDS: Duration = Duration::from_secs(11);
