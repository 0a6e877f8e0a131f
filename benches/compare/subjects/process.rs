//! Running process tree of a proxy, which ends with the bench, however the bench ends.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::rules::Rules;
use super::{Installed, Task, configure};
use crate::failure::{During, Failure};
use crate::measure::process_tree;
use crate::topology::Host;

/// Runs the program as the first process of a PID namespace, which dies with the starting thread (`prctl(2)`,
/// `PR_SET_PDEATHSIG`). The kernel ends every process of a namespace with its first one (`pid_namespaces(7)`), so
/// that not even SIGKILL of the bench leaves a worker behind.
const GUARD: [&str; 8] =
    ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=KILL", "--"];

/// Running subject. Dropping it ends all its processes; kernel paths have none.
#[derive(Debug)]
pub(crate) struct Running {
    program: &'static str,
    dir: PathBuf,
    log: PathBuf,
    guard: Option<Child>,
    /// Held for its `Drop`.
    _rules: Option<Rules>,
}

impl Running {
    /// Starts the task's subject on the gateway, with its files in a new folder in `dir`.
    pub(crate) fn start(
        task: Task,
        installed: &Installed,
        gateway: &Host,
        dir: &Path,
    ) -> Result<Self, Failure> {
        let name = task.entrant.subject.name();
        let dir = dir.join(task.entrant.label());
        let log = dir.join("log");
        let rules = Rules::install(task, gateway)?;
        let program = match &installed.program {
            Some(program) if task.entrant.subject.is_proxy() => program,
            _ => return Ok(Self { program: name, dir, log, guard: None, _rules: rules }),
        };
        fs::create_dir_all(&dir).during(format!("make {}", dir.display()))?;
        let mut command: Vec<OsString> = GUARD.iter().map(OsString::from).collect();
        // The hard limit is set as well, since programs may raise theirs up to it.
        command.extend(["prlimit".into(), format!("--nofile={0}:{0}", task.files).into()]);
        command.push(program.into());
        command.extend(configure::write(task, &dir)?);
        let output = File::create(&log).during(format!("make {}", log.display()))?;
        let errors = output.try_clone().during("share a log file")?;
        let spawn = move || {
            let mut words = command.into_iter();
            let first = words.next().unwrap_or_default();
            Command::new(first).args(words).stdin(Stdio::null()).stdout(output).stderr(errors).spawn()
        };
        let guard = gateway.call(spawn)?.during("run `setpriv` (Debian package util-linux)")?;
        Ok(Self { program: name, dir, log, guard: Some(guard), _rules: rules })
    }

    /// Processes of the program without the guard; empty for kernel paths.
    pub(crate) fn processes(&self) -> Result<Vec<Pid>, Failure> {
        let Some(guard) = self.guard.as_ref() else { return Ok(Vec::new()) };
        let tree = process_tree(pid(guard))?;
        Ok(tree.into_iter().skip(1).collect())
    }

    /// Folder of its files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Fails with the program's last output if it has ended.
    pub(crate) fn still_alive(&mut self) -> Result<(), Failure> {
        let Some(guard) = self.guard.as_mut() else { return Ok(()) };
        match guard.try_wait().during("look after a process")? {
            None => Ok(()),
            Some(status) => Err(Failure::program(self.program, format!("{status}: {}", self.last_words()))),
        }
    }

    /// Last lines of its log.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // End the first process first: the kernel reaps its namespace before it ends, and the guard waits for it, so
        // that the addresses are free when this returns.
        let init = self.processes().ok().and_then(|processes| processes.first().copied());
        let Some(guard) = self.guard.as_mut() else { return };
        let ended = match init {
            Some(init) => kill(init, Signal::SIGKILL).is_ok(),
            None => guard.kill().is_ok(),
        };
        if ended {
            drop(guard.wait());
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}
