//! The configuration of each proxy: one worker, the same backlog, time limits that no run meets.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Subject;
use crate::failure::{During, Failure};
use crate::ports::{BACKLOG, DATAGRAM, TCP};
use crate::topology::SERVER;

/// Where Debian puts nginx's stream module when it is a package of its own.
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// Writes the configuration of `subject` into `dir` and answers the arguments that make it run in the foreground.
pub(super) fn write(subject: Subject, dir: &Path) -> Result<Vec<OsString>, Failure> {
    match subject {
        Subject::Direct => Ok(Vec::new()),
        Subject::Sheave => sheave(dir),
        Subject::Haproxy => {
            let file = save(dir, "haproxy.cfg", &haproxy_config())?;
            Ok(vec!["-db".into(), "-f".into(), file.into()])
        }
        Subject::Nginx => {
            let file = save(dir, "nginx.conf", &nginx_config())?;
            Ok(vec!["-e".into(), "stderr".into(), "-p".into(), dir.into(), "-c".into(), file.into()])
        }
    }
}

fn save(dir: &Path, name: &str, text: &str) -> Result<PathBuf, Failure> {
    let file = dir.join(name);
    fs::write(&file, text).during(format!("write {}", file.display()))?;
    Ok(file)
}

fn haproxy_config() -> String {
    let address = Subject::Haproxy.address();
    let listeners = TCP
        .map(|port| format!("listen p{port}\n    bind {address}:{port}\n    server s {SERVER}:{port}\n"))
        .concat();
    format!(
        "global
    nbthread 1
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

fn nginx_config() -> String {
    let address = Subject::Nginx.address();
    let module = if Path::new(STREAM_MODULE).is_file() {
        format!("load_module {STREAM_MODULE};\n")
    } else {
        String::new()
    };
    let server =
        |listen: String, port| format!("    server {{ listen {listen}; proxy_pass {SERVER}:{port}; }}\n");
    let streams = TCP.map(|port| server(format!("{address}:{port} backlog={BACKLOG}"), port)).concat();
    let datagrams = server(format!("{address}:{DATAGRAM} udp"), DATAGRAM);
    format!(
        "{module}daemon off;
user root;
pid nginx.pid;
worker_processes 1;
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
fn sheave(dir: &Path) -> Result<Vec<OsString>, Failure> {
    let manifests = dir.join("manifests");
    fs::create_dir_all(&manifests).during("make a folder for manifests")?;
    save(&manifests, "bench.yaml", &manifest())?;
    let state = dir.join("state");
    let config = format!(
        "node: gateway
workers: 1
stateDir: {}
admin: {{listen: \"127.0.0.1:9841\"}}
timeouts: {{connect: 5s, idle: 1h, udpIdle: 60s}}
logging: {{level: warn}}
",
        state.display()
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

fn manifest() -> String {
    let port = |indent: &str, port: u16, protocol| {
        format!("{indent}- {{name: p{port}, port: {port}, protocol: {protocol}}}\n")
    };
    let ports = |indent| TCP.map(|tcp| port(indent, tcp, "TCP")).concat() + &port(indent, DATAGRAM, "UDP");
    let (service_ports, slice_ports) = (ports("  "), ports(""));
    let address = Subject::Sheave.address();
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: bench, namespace: default}}
spec:
  type: LoadBalancer
  loadBalancerClass: sheave.dev/l4
  ports:
{service_ports}status:
  loadBalancer: {{ingress: [{{ip: {address}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: bench-1, namespace: default, labels: {{kubernetes.io/service-name: bench}}}}
addressType: IPv4
endpoints:
- {{addresses: [{SERVER}], conditions: {{ready: true}}}}
ports:
{slice_ports}"
    )
}
