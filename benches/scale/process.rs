//! Sheave as a process that uses the test API server. It ends when its handle is dropped.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::apiserver::ApiServer;
use crate::support::http;
use crate::support::patience::{eventually_within, let_pass, patience};
use crate::support::process::Process;
use crate::support::usage::{self, Usage};

/// Time limit in seconds of any step.
const LONG: f64 = 180.0;
/// A process that uses less than this in [`LOOK`] is at rest.
const RESTING: Duration = Duration::from_millis(25);
const LOOK: Duration = Duration::from_millis(500);
/// Number of consecutive quiet intervals, since a snapshot is written a second after the first objects.
const QUIET: u32 = 5;

/// Running gateway or controller.
pub(crate) struct Sheave {
    process: Process,
    admin: SocketAddr,
    /// Held for its `Drop`.
    _folder: TempDir,
    started: Instant,
}

impl Sheave {
    /// Starts `sheave <role>` without waiting.
    pub(crate) fn start(role: &str, server: &ApiServer) -> Self {
        Self::start_with(role, server, None, "")
    }

    /// Starts with a Karmada control plane, or with further keys of the configuration.
    pub(crate) fn start_with(
        role: &str,
        server: &ApiServer,
        karmada: Option<&ApiServer>,
        settings: &str,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str| folder.path().join(name);
        fs::write(file("kubeconfig"), server.kubeconfig(role)).expect("a file is written");
        let mut config = format!("kubeconfig: {}\n{settings}", file("kubeconfig").display());
        if let Some(karmada) = karmada {
            fs::write(file("karmada"), karmada.kubeconfig(role)).expect("a file is written");
            config += &format!("karmada: {{kubeconfig: {}}}\n", file("karmada").display());
        }
        Self::launch(role, folder, &config, &[])
    }

    /// Starts a gateway on a manifest, without an API server.
    pub(crate) fn start_on_manifest(manifest: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manifests = folder.path().join("manifests");
        fs::create_dir(&manifests).expect("a folder is made");
        fs::write(manifests.join("objects.yaml"), manifest).expect("a file is written");
        Self::launch("gateway", folder, "", &["--manifests".as_ref(), manifests.as_os_str()])
    }

    fn launch(role: &str, folder: TempDir, settings: &str, arguments: &[&OsStr]) -> Self {
        let file = |name: &str| folder.path().join(name);
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let admin = free.expect("a free port");
        let config = format!(
            "node: node-000.example.internal\nadmin: {{listen: \"{admin}\"}}\nstateDir: {}\nworkers: 1\n{settings}",
            file("state").display(),
        );
        fs::write(file("config.yaml"), config).expect("a file is written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sheave"));
        command.arg(role).arg("--config").arg(file("config.yaml")).args(arguments).stdin(Stdio::null());
        let started = Instant::now();
        let process = Process::start(format!("sheave {role}"), command);
        Self { process, admin, _folder: folder, started }
    }

    /// Waits until `/readyz` succeeds, and returns the time since process start.
    pub(crate) fn ready(&mut self) -> Duration {
        eventually_within(patience(LONG), "the process is ready", || {
            self.process.expect_running();
            match http::get(self.admin, "/readyz") {
                Ok(response) if response.status == 200 => Ok(()),
                Ok(response) => Err(response.body),
                Err(error) => Err(error.to_string()),
            }
        });
        self.started.elapsed()
    }

    /// Waits until it is nearly idle and a gateway has written its snapshot; at most half a minute.
    pub(crate) fn rest(&self) {
        let mut quiet = 0;
        let mut before = self.usage().cpu;
        for _ in 0..60 {
            let_pass(LOOK);
            let now = self.usage().cpu;
            quiet = if now.saturating_sub(before) < RESTING { quiet + 1 } else { 0 };
            before = now;
            if quiet >= QUIET {
                return;
            }
        }
    }

    /// Resources used so far.
    pub(crate) fn usage(&self) -> Usage {
        usage::of(self.process.id())
    }

    /// Address of its admin server.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Resets its peak memory.
    pub(crate) fn forget_peak(&self) {
        usage::forget_peak(self.process.id());
    }

    /// Reads `/metrics` at full speed without keeping it: the duration, and the number of bytes and lines.
    pub(crate) fn scrape(&self) -> (Duration, usize, usize) {
        let asked = Instant::now();
        let mut stream = TcpStream::connect(self.admin).expect("the admin server takes connections");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request is sent");
        let (mut buffer, mut bytes, mut lines) = (vec![0; 64 << 10], 0, 0);
        while let length @ 1.. = stream.read(&mut buffer).expect("metrics are answered") {
            bytes += length;
            lines += buffer[..length].iter().filter(|byte| **byte == b'\n').count();
        }
        (asked.elapsed(), bytes, lines)
    }

    /// Value of a series in `/metrics`; 0 if there is none.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = http::get(self.admin, "/metrics").expect("metrics are answered").body;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        value.unwrap_or_default()
    }

    /// A JSON page of the admin server.
    pub(crate) fn page(&self, path: &str) -> Value {
        let body = http::get(self.admin, path).expect("the admin server answers").body;
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// Response time of a page.
    pub(crate) fn asked(&self, path: &str) -> Duration {
        let asked = Instant::now();
        http::get(self.admin, path).expect("the admin server answers");
        asked.elapsed()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }
}
