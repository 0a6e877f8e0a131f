//! Configuration of each proxy: the same number of workers, the same backlog, and timeouts that no run reaches.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{CLOSED_BY_CLIENTS, Task, address, envoy, manifests};
use crate::admin::ADMIN;
use crate::entrant::{Entrant, Scene, Subject};
use crate::failure::{During, Failure};
use crate::ports::{BACKLOG, MANY, TCP, UDP};
use crate::rows::Load;
use crate::topology::{SERVER, endpoint};

/// Path of nginx's stream module in Debian, if it is a separate package.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Message size from which HAProxy splices: that of its buffer (`tune.bufsize`).
const SPLICED: usize = 16_384;

/// Files that nginx opens besides connections.
const SPARE_FILES: u64 = 1_000;

/// Writes the configuration for `task` into `dir`, and returns the arguments that run the program in the foreground.
pub(super) fn write(task: Task, dir: &Path) -> Result<Vec<String>, Failure> {
    match task.entrant.subject {
        Subject::Direct | Subject::Tracked | Subject::KubeProxy | Subject::Ipvs => Ok(Vec::new()),
        Subject::Sheave | Subject::SheaveKernel => sheave(task, dir),
        Subject::Haproxy => {
            let file = save(dir, "haproxy.cfg", &haproxy_config(task))?;
            Ok(vec!["-db".to_owned(), "-f".to_owned(), file])
        }
        Subject::Nginx => {
            let file = save(dir, "nginx.conf", &nginx_config(task))?;
            Ok(["-e", "stderr", "-p", &dir.display().to_string(), "-c", &file].map(str::to_owned).into())
        }
        Subject::Envoy => {
            let file = save(dir, "envoy.yaml", &envoy::config())?;
            let workers = task.entrant.workers.to_string();
            let words =
                ["--disable-hot-restart", "--log-level", "error", "--concurrency", &workers, "-c", &file];
            Ok(words.map(str::to_owned).into())
        }
    }
}

/// Writes a file, and answers its path.
pub(super) fn save(dir: &Path, name: &str, text: &str) -> Result<String, Failure> {
    let file = dir.join(name);
    let path = file.display().to_string();
    fs::write(&file, text).during(format!("write {path}"))?;
    Ok(path)
}

/// HAProxy splices where that is best: it halves the cost of 64 KiB and more, and adds a fifth to that of 1 KiB. `option
/// splice-auto` copies in all these rows.
fn haproxy_config(task: Task) -> String {
    let (address, workers) = (address(Subject::Haproxy), task.entrant.workers);
    let splice = match task.load {
        Load::Bulk { .. } | Load::Request { size: SPLICED.., .. } => {
            "option splice-request\n    option splice-response\n    "
        }
        _ => "",
    };
    let source = if task.entrant.scene == Scene::Local { " source 0.0.0.0 usesrc clientip" } else { "" };
    let listeners = TCP
        .map(|port| {
            format!("listen p{port}\n    bind {address}:{port}\n    server s {SERVER}:{port}{source}\n")
        })
        .concat();
    let many = match task.load {
        Load::CloseFirst => {
            let servers = (0..task.endpoints).map(|n| format!("    server s{n} {}:{MANY}\n", endpoint(n)));
            format!("listen p{MANY}\n    bind {CLOSED_BY_CLIENTS}:{MANY}\n{}", servers.collect::<String>())
        }
        _ => String::new(),
    };
    format!(
        "global
    nbthread {workers}
defaults
    mode tcp
    backlog {BACKLOG}
    {splice}timeout connect 5s
    timeout client 1h
    timeout server 1h
{listeners}{many}"
    )
}

fn nginx_config(Task { entrant: Entrant { workers, scene, .. }, files, .. }: Task) -> String {
    let address = address(Subject::Nginx);
    let source = if scene == Scene::Local { "    proxy_bind $remote_addr transparent;\n" } else { "" };
    let module = if Path::new(STREAM_MODULE).is_file() {
        format!("load_module {STREAM_MODULE};\n")
    } else {
        String::new()
    };
    let server =
        |listen: String, port| format!("    server {{ listen {listen}; proxy_pass {SERVER}:{port}; }}\n");
    // With one socket for all workers, the datagrams of a flow would go to different workers, and most connections to a
    // single one.
    let shared = if workers > 1 { " reuseport" } else { "" };
    let streams =
        TCP.map(|port| server(format!("{address}:{port} backlog={BACKLOG}{shared}"), port)).concat();
    let datagrams = UDP.map(|port| server(format!("{address}:{port} udp rcvbuf=4m{shared}"), port)).concat();
    let connections = files - SPARE_FILES;
    format!(
        "{module}daemon off;
user root;
pid nginx.pid;
worker_processes {workers};
worker_rlimit_nofile {files};
events {{ worker_connections {connections}; }}
stream {{
    proxy_timeout 1h;
    proxy_connect_timeout 5s;
    proxy_half_close on;
{source}{streams}{datagrams}}}
"
    )
}

/// Whether the stream module is built in or installed as a separate module.
pub(super) fn nginx_has_stream() -> bool {
    if Path::new(STREAM_MODULE).is_file() {
        return true;
    }
    let Some(nginx) = super::program("nginx") else { return false };
    let Ok(output) = Command::new(nginx).arg("-V").output() else { return false };
    String::from_utf8_lossy(&output.stderr).split_whitespace().any(|flag| flag == "--with-stream")
}

/// Real manifests and the real binary, as a user would run it.
fn sheave(task: Task, dir: &Path) -> Result<Vec<String>, Failure> {
    let manifests = manifests::write(task, dir)?;
    let workers = task.entrant.workers;
    let path = if task.entrant.subject == Subject::SheaveKernel { "kernel" } else { "proxy" };
    let config = format!(
        "node: gateway
workers: {workers}
path: {path}
stateDir: {}
admin: {{listen: \"{ADMIN}\"}}
timeouts: {{connect: 5s, idle: 1h, udpIdle: 60s}}
logging: {{level: warn}}
",
        dir.join("state").display()
    );
    let config = save(dir, "sheave.yaml", &config)?;
    let words = ["run", "--manifests", &manifests, "--node", "gateway", "--config", &config];
    Ok(words.map(str::to_owned).into())
}
