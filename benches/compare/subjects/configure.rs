//! The configuration of each proxy: as many workers as the others, the same backlog, time limits that no run meets.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{address, manifests};
use crate::entrant::{Entrant, Subject};
use crate::failure::{During, Failure};
use crate::ports::{BACKLOG, TCP, UDP};
use crate::topology::SERVER;

/// Where Debian puts nginx's stream module when it is a package of its own.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Where Sheave answers questions about itself, on the gateway.
pub(crate) const ADMIN: &str = "127.0.0.1:9841";

/// Writes the configuration of `entrant` into `dir` and answers the arguments that make it run in the foreground.
pub(super) fn write(entrant: Entrant, dir: &Path) -> Result<Vec<OsString>, Failure> {
    let workers = entrant.workers;
    match entrant.subject {
        Subject::Direct | Subject::Dnat => Ok(Vec::new()),
        Subject::Sheave => sheave(entrant, dir),
        Subject::Haproxy => {
            let file = save(dir, "haproxy.cfg", &haproxy_config(workers))?;
            Ok(vec!["-db".into(), "-f".into(), file.into()])
        }
        Subject::Nginx => {
            let file = save(dir, "nginx.conf", &nginx_config(workers))?;
            Ok(vec!["-e".into(), "stderr".into(), "-p".into(), dir.into(), "-c".into(), file.into()])
        }
    }
}

pub(super) fn save(dir: &Path, name: &str, text: &str) -> Result<PathBuf, Failure> {
    let file = dir.join(name);
    fs::write(&file, text).during(format!("write {}", file.display()))?;
    Ok(file)
}

fn haproxy_config(workers: usize) -> String {
    let address = address(Subject::Haproxy);
    let listeners = TCP
        .map(|port| format!("listen p{port}\n    bind {address}:{port}\n    server s {SERVER}:{port}\n"))
        .concat();
    format!(
        "global
    nbthread {workers}
defaults
    mode tcp
    backlog {BACKLOG}
    option splice-request
    option splice-response
    timeout connect 5s
    timeout client 1h
    timeout server 1h
{listeners}"
    )
}

fn nginx_config(workers: usize) -> String {
    let address = address(Subject::Nginx);
    let module = if Path::new(STREAM_MODULE).is_file() {
        format!("load_module {STREAM_MODULE};\n")
    } else {
        String::new()
    };
    let server =
        |listen: String, port| format!("    server {{ listen {listen}; proxy_pass {SERVER}:{port}; }}\n");
    // With one socket for all workers the datagrams of a flow would go to now one, now the other, and connections mostly
    // to one.
    let shared = if workers > 1 { " reuseport" } else { "" };
    let streams =
        TCP.map(|port| server(format!("{address}:{port} backlog={BACKLOG}{shared}"), port)).concat();
    let datagrams = UDP.map(|port| server(format!("{address}:{port} udp rcvbuf=4m{shared}"), port)).concat();
    format!(
        "{module}daemon off;
user root;
pid nginx.pid;
worker_processes {workers};
worker_rlimit_nofile 20000;
events {{ worker_connections 19000; }}
stream {{
    proxy_timeout 1h;
    proxy_connect_timeout 5s;
    proxy_half_close on;
{streams}{datagrams}}}
"
    )
}

/// Built in, or a module that Debian ships apart.
pub(super) fn nginx_has_stream() -> bool {
    if Path::new(STREAM_MODULE).is_file() {
        return true;
    }
    let Some(nginx) = super::program("nginx") else { return false };
    let Ok(output) = Command::new(nginx).arg("-V").output() else { return false };
    String::from_utf8_lossy(&output.stderr).split_whitespace().any(|flag| flag == "--with-stream")
}

/// Real manifests and the real binary, as a user would run it.
fn sheave(entrant: Entrant, dir: &Path) -> Result<Vec<OsString>, Failure> {
    let manifests = manifests::write(entrant.scene, dir)?;
    let workers = entrant.workers;
    let config = format!(
        "node: gateway
workers: {workers}
stateDir: {}
admin: {{listen: \"{ADMIN}\"}}
timeouts: {{connect: 5s, idle: 1h, udpIdle: 60s}}
logging: {{level: warn}}
",
        dir.join("state").display()
    );
    let config = save(dir, "sheave.yaml", &config)?;
    Ok(vec![
        "run".into(),
        "--manifests".into(),
        manifests.into(),
        "--node".into(),
        "gateway".into(),
        "--config".into(),
        config.into(),
    ])
}
