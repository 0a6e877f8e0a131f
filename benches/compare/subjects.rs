//! Who is compared: the routed path without a proxy, Sheave, HAProxy and nginx.
//!
//! It knows names, addresses and where programs are; what is asked of them is in `rows`.

mod configure;
mod process;

use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::topology::SERVER;

pub(crate) use process::Running;

/// One of the compared ways from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Subject {
    /// Routed by the gateway's kernel: the limit of this machine.
    Direct,
    /// The release binary of this project.
    Sheave,
    /// HAProxy in TCP mode, splice forced.
    Haproxy,
    /// nginx with its stream module.
    Nginx,
}

impl Subject {
    /// Everybody, in the order of the runs.
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Sheave, Self::Haproxy, Self::Nginx];

    /// As it is written in the table and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Sheave => "sheave",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    /// Where the client connects.
    pub(crate) fn address(self) -> Ipv4Addr {
        match self {
            Self::Direct => SERVER,
            Self::Sheave => Ipv4Addr::new(203, 0, 113, 10),
            Self::Haproxy => Ipv4Addr::new(203, 0, 113, 11),
            Self::Nginx => Ipv4Addr::new(203, 0, 113, 12),
        }
    }

    /// Looks for the program on this machine.
    pub(crate) fn find(self) -> Presence {
        match self {
            Self::Direct => Presence::Here(Installed { subject: self, program: None, version: kernel() }),
            Self::Sheave => here(self, PathBuf::from(env!("CARGO_BIN_EXE_sheave")), &["version"]),
            Self::Haproxy => match program("haproxy") {
                Some(path) => here(self, path, &["-v"]),
                None => Presence::Absent("not installed: apt-get install haproxy"),
            },
            Self::Nginx => match program("nginx") {
                Some(_) if !configure::nginx_has_stream() => {
                    Presence::Absent("has no stream module: apt-get install libnginx-mod-stream")
                }
                Some(path) => here(self, path, &["-v"]),
                None => Presence::Absent("not installed: apt-get install nginx libnginx-mod-stream"),
            },
        }
    }
}

/// Whether a subject can take part.
#[derive(Debug)]
#[must_use]
pub(crate) enum Presence {
    /// It can.
    Here(Installed),
    /// It cannot; why, and what helps.
    Absent(&'static str),
}

/// A subject that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    /// Which one.
    pub(crate) subject: Subject,
    /// What it says of its version.
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

/// The first line that a program prints, on either stream; nginx answers on stderr.
fn first_line(program: &Path, ask: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(ask).output() else { return "unknown".to_owned() };
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&said).lines().next().unwrap_or("unknown").to_owned()
}

/// Looks along `PATH` and where Debian keeps daemons, which a user's `PATH` often lacks.
fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let daemons = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(daemons).map(|dir| dir.join(name)).find(|file| file.is_file())
}
