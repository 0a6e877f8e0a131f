//! FRR on a host: its daemons with a configuration, whatever else of FRR the machine runs.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::support::host::Host;
use crate::support::patience::{eventually, eventually_within, patience};
use crate::support::process::Process;

/// Where Debian has them: not on the search path.
const FOLDER: &str = "/usr/lib/frr";
/// Which run, in the order of their start.
const DAEMONS: [&str; 3] = ["zebra", "bfdd", "bgpd"];

/// The daemons of one host.
pub(crate) struct Frr {
    folder: TempDir,
    daemons: Vec<Process>,
}

impl Frr {
    /// Starts the daemons with this configuration.
    pub(crate) fn start(host: &Host, config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        // The daemons run as a user in the group `frrvty`. In a user namespace there is none but root; here it is root's group.
        let groups = fs::read_to_string("/etc/group").expect("groups");
        let others = groups.lines().filter(|line| !line.starts_with("frrvty:"));
        let groups: String =
            others.map(|line| format!("{line}\n")).chain(["frrvty:x:0:\n".to_owned()]).collect();
        fs::write(path("group"), groups).expect("a file is written");
        fs::write(path("vtysh.conf"), "").expect("a file is written");
        fs::write(path("frr.conf"), format!("{config}\nlog timestamp precision 6\n"))
            .expect("a file is written");
        fs::write(path("empty.conf"), "").expect("a file is written");
        let mut daemons = Vec::new();
        for name in DAEMONS {
            let script = format!(
                "mount --bind {group} /etc/group && TZ=UTC exec {FOLDER}/{name} -u root -g root -f {empty} -i {pid} -z {zserv} \
                 --vty_socket {sockets} -P 0 --log stdout {more}",
                group = path("group"),
                empty = path("empty.conf"),
                pid = path(&format!("{name}.pid")),
                zserv = path("zserv.api"),
                sockets = folder.path().display(),
                more = match name {
                    "bfdd" => format!("--bfdctl {}", path("bfdd.sock")),
                    // The kernel puts one IPv6 route in the place of another. Otherwise zebra deletes the old one first.
                    "zebra" => "--v6-rr-semantics".to_owned(),
                    _ => String::new(),
                },
            );
            daemons.push(host.start("unshare", &["-m", "sh", "-c", script.as_str()]));
            let socket: PathBuf = folder.path().join(format!("{name}.vty"));
            eventually(&format!("{name} answers"), || {
                if socket.exists() { Ok(()) } else { Err("no socket: is the package frr installed?") }
            });
        }
        let frr = Self { folder, daemons };
        let sockets = frr.sockets();
        let read = host.finish("vtysh", &["--vty_socket", &sockets, "--config_dir", &sockets, "-b"]);
        let complaint = format!("{}{}", read.stdout, read.stderr);
        read.expect_success();
        assert!(!complaint.contains('%'), "FRR does not understand its configuration: {complaint}");
        frr
    }

    fn sockets(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// What a command shows.
    pub(crate) fn show(&self, host: &Host, command: &str) -> String {
        host.finish("vtysh", &["--vty_socket", &self.sockets(), "-c", command]).expect_success()
    }

    /// Adds lines to the configuration; `end` leads back to commands.
    pub(crate) fn configure(&self, host: &Host, lines: &[&str]) {
        let sockets = self.sockets();
        let mut arguments = vec!["--vty_socket", &sockets, "-c", "configure terminal"];
        arguments.extend(lines.iter().flat_map(|line| ["-c", line]));
        let said = host.finish("vtysh", &arguments).expect_success();
        assert!(!said.contains('%'), "FRR does not understand {lines:?}: {said}");
    }

    /// Kills all daemons.
    pub(crate) fn kill(mut self) {
        for daemon in &mut self.daemons {
            daemon.signal(Signal::SIGKILL);
            daemon.wait();
        }
    }

    /// When the BGP daemon logged lines with all of these parts, each by the time of its day.
    pub(crate) fn logged(&self, parts: &[&str]) -> Vec<Duration> {
        let log = self.daemons.last().expect("it runs").stdout();
        let lines = log.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.filter_map(time_of).collect()
    }

    /// Waits for the first line with these parts after `since`; how long after.
    pub(crate) fn wait_for(&self, since: Duration, parts: &[&str]) -> Duration {
        eventually_within(patience(60.0), &format!("FRR logs {parts:?}"), || {
            let first = self.logged(parts).into_iter().find(|at| *at >= since);
            first.map(|at| at - since).ok_or("it has not")
        })
    }
}

/// The time of the day, as FRR logs it.
pub(crate) fn time_of_day() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    Duration::from_secs(now.as_secs() % 86_400) + Duration::from_nanos(now.subsec_nanos().into())
}

/// The time of `2026/11/23 18:12:29.123456 BGP: ...`.
fn time_of(line: &str) -> Option<Duration> {
    let time = line.split_whitespace().nth(1)?;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let (hours, minutes, seconds) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    Some(Duration::from_secs_f64(hours * 3600.0 + minutes * 60.0 + seconds))
}
