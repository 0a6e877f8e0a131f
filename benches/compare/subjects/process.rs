//! Running process tree of a proxy, which ends with the bench, however the bench ends.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sheave_test_support::host::Host;
use sheave_test_support::process::Process;

use super::rules::Rules;
use super::{Installed, Task, configure};
use crate::failure::{During, Failure};
use crate::measure::process_tree;
use crate::run::Setting;

/// Runs the program as the first process of a PID namespace. The kernel ends every process of a namespace with its first one
/// (`pid_namespaces(7)`), so that not even SIGKILL of the bench leaves a worker behind.
const GUARD: &str = "unshare --pid --fork --kill-child=KILL --";

/// Running subject. Dropping it ends all its processes; kernel paths have none.
pub(crate) struct Running<'a> {
    program: &'static str,
    dir: PathBuf,
    guard: Option<Process>,
    /// Held for its `Drop`.
    _rules: Option<Rules<'a>>,
}

impl<'a> Running<'a> {
    /// Starts the task's subject on the gateway, with its files in a new folder.
    pub(crate) fn start(
        task: Task,
        installed: &Installed,
        gateway: &'a Host,
        setting: &Setting,
    ) -> Result<Self, Failure> {
        let name = task.entrant.subject.name();
        let dir = setting.dir.join(task.entrant.label());
        let rules = Rules::install(task, gateway)?;
        let program = match &installed.program {
            Some(program) if task.entrant.subject.is_proxy() || task.entrant.subject.is_ours() => program,
            _ => return Ok(Self { program: name, dir, guard: None, _rules: rules }),
        };
        fs::create_dir_all(&dir).during(format!("make {}", dir.display()))?;
        // The hard limit is set as well, since programs may raise theirs up to it.
        let mut command = format!("{GUARD} prlimit --nofile={0}:{0}", task.files);
        if let Some(cores) = &setting.pinning.gateway {
            let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
            command += &format!(" taskset --cpu-list {}", cores.join(","));
        }
        let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        words.push(program.display().to_string());
        words.extend(configure::write(task, &dir)?);
        let guard = gateway.start(&words[0], &words[1..]);
        Ok(Self { program: name, dir, guard: Some(guard), _rules: rules })
    }

    /// Processes of the program without the guard; empty for kernel paths.
    pub(crate) fn processes(&self) -> Result<Vec<Pid>, Failure> {
        let Some(guard) = self.guard.as_ref() else { return Ok(Vec::new()) };
        let tree = process_tree(Pid::from_raw(i32::try_from(guard.id()).unwrap_or(i32::MAX)))?;
        Ok(tree.into_iter().skip(1).collect())
    }

    /// Folder of its files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Fails with the program's last output if it has ended.
    pub(crate) fn still_alive(&mut self) -> Result<(), Failure> {
        match self.guard.as_mut().and_then(Process::ended) {
            None => Ok(()),
            Some(status) => Err(Failure::program(self.program, format!("{status}: {}", self.last_words()))),
        }
    }

    /// Last lines of its output.
    pub(crate) fn last_words(&self) -> String {
        let output = self.guard.as_ref().map(|guard| guard.stdout() + &guard.stderr()).unwrap_or_default();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // End the first process first: the kernel reaps its namespace before it ends, and the guard waits for it, so
        // that the addresses are free when this returns.
        let init = self.processes().ok().and_then(|processes| processes.first().copied());
        if let Some((guard, init)) = self.guard.as_mut().zip(init)
            && kill(init, Signal::SIGKILL).is_ok()
        {
            guard.wait();
        }
    }
}
