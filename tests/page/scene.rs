//! Gateway with manifests, on a host with only loopback, where every address of the cases is local.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually_within, patience};
use crate::support::process::{Finished, Process};
use sheave_test_support::program;

/// Host of gateway and browser.
pub(crate) fn host() -> Host {
    let host = Host::new("page");
    host.ip(
        &["route add local 203.0.113.0/24 dev lo", "route add local 10.200.0.0/16 dev lo"].map(str::to_owned)
    );
    host
}

/// Service in manifests.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) namespace: &'static str,
    pub(crate) name: String,
    pub(crate) address: Option<Ipv4Addr>,
    pub(crate) class: &'static str,
    pub(crate) port_name: &'static str,
    /// Additional keys of the metadata and the spec, as YAML.
    pub(crate) metadata: &'static str,
    pub(crate) spec: &'static str,
    /// Addresses and their readiness.
    pub(crate) endpoints: Vec<(Ipv4Addr, bool)>,
    pub(crate) node: &'static str,
    pub(crate) zone: &'static str,
    pub(crate) slice: &'static str,
}

impl Service {
    /// `shop/NAME` on 203.0.113.LAST, with two ready endpoints.
    pub(crate) fn new(name: &str, last: u8) -> Self {
        Self {
            namespace: "shop",
            name: name.to_owned(),
            address: Some(Ipv4Addr::new(203, 0, 113, last)),
            class: "sheave.dev/l4",
            port_name: "http",
            metadata: "",
            spec: "",
            endpoints: vec![(Ipv4Addr::new(127, 0, 1, last), true), (Ipv4Addr::new(127, 0, 2, last), true)],
            node: "n1",
            zone: "a",
            slice: "x7k2f",
        }
    }

    fn write(&self, text: &mut String) {
        let Self { namespace, name, class, port_name, metadata, spec, node, zone, slice, .. } = self;
        // YAML includes JSON, which quotes any text.
        let name = json!(name);
        let ingress = self.address.map(|ip| format!("{{ip: {ip}}}")).unwrap_or_default();
        let endpoint = |(ip, ready): &(Ipv4Addr, bool)| {
            format!(
                "{{addresses: [{ip}], conditions: {{ready: {ready}}}, nodeName: {}, zone: {}}}",
                json!(node),
                json!(zone)
            )
        };
        let endpoints: Vec<String> = self.endpoints.iter().map(endpoint).collect();
        writeln!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}{metadata}}}\n\
             spec: {{type: LoadBalancer, loadBalancerClass: {class}, ports: [{{name: {port_name}, port: 80, \
             protocol: TCP}}]{spec}}}\nstatus: {{loadBalancer: {{ingress: [{ingress}]}}}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {}, namespace: {namespace}, \
             labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: {port_name}, \
             port: 8080, protocol: TCP}}]\nendpoints: [{}]",
            json!(format!("{}-{slice}", self.name)),
            endpoints.join(", "),
        )
        .expect("a String takes text");
    }
}

/// Running gateway, which is killed when dropped.
pub(crate) struct Gateway<'h> {
    host: &'h Host,
    process: Process,
    pub(crate) admin: SocketAddr,
    folder: TempDir,
}

impl<'h> Gateway<'h> {
    /// Starts a gateway with these Services and additional keys in its configuration, and waits until it is ready.
    pub(crate) fn start(host: &'h Host, services: &[Service], config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("manifests")).expect("a folder is made");
        let port = host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()));
        let admin = port.expect("a free port");
        let state = folder.path().join("state");
        let text =
            format!("admin: {{listen: \"{admin}\"}}\nworkers: 1\nstateDir: {}\n{config}", state.display());
        fs::write(folder.path().join("config.yaml"), text).expect("a file is written");
        write(&folder, services);
        let process = launch(host, &folder, &[]);
        let mut gateway = Self { host, process, admin, folder };
        gateway.wait_until_ready();
        gateway
    }

    fn wait_until_ready(&mut self) {
        eventually_within(patience(90.0), "the gateway is ready", || {
            self.process.expect_running();
            let answer =
                self.host.run(|| http::get(self.admin, "/readyz")).map_err(|error| error.to_string())?;
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        });
    }

    /// Replaces the Services.
    pub(crate) fn apply(&self, services: &[Service]) {
        write(&self.folder, services);
    }

    /// Makes a successor take over, and returns the former process.
    pub(crate) fn upgrade(&mut self) -> Process {
        let successor = launch(self.host, &self.folder, &["--takeover"]);
        eventually_within(patience(20.0), "another process takes over", || {
            if successor.stderr().contains("took over") { Ok(()) } else { Err(successor.stderr()) }
        });
        std::mem::replace(&mut self.process, successor)
    }

    /// Runs `sheave` where the gateway can be reached.
    pub(crate) fn command(&self, arguments: &[&str]) -> Finished {
        self.host.finish(program::path(), arguments)
    }

    /// Folder of its manifests.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Runs `action` where the gateway can be reached.
    pub(crate) fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        self.host.run(action)
    }

    /// URL on its admin server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.admin)
    }
}

fn launch(host: &Host, folder: &TempDir, flags: &[&str]) -> Process {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (manifests, config) = (path("manifests"), path("config.yaml"));
    let command = ["run", "--manifests", &manifests, "--config", &config, "--node", "gw"];
    host.start(program::path(), &[&command, flags].concat())
}

/// Writes the manifests atomically.
fn write(folder: &TempDir, services: &[Service]) {
    let mut text = "apiVersion: v1\nkind: Node\nmetadata: {name: gw}\nstatus: {addresses: []}\n".to_owned();
    services.iter().for_each(|service| service.write(&mut text));
    let staged: PathBuf = folder.path().join("staged.yaml");
    fs::write(&staged, text).expect("a file is written");
    fs::rename(staged, folder.path().join("manifests").join("services.yaml")).expect("a file is moved");
}
