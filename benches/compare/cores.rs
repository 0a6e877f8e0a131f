//! Cores of the bench and of the proxies.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::failure::{During, Failure};

/// Cores of each side; `None` leaves them to the scheduler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pinning {
    /// Cores of the proxies.
    pub(crate) gateway: Option<Vec<usize>>,
    /// Cores of client and server.
    pub(crate) ends: Option<Vec<usize>>,
}

/// Keeps this thread, and those that it will start, on some cores.
pub(crate) fn stay_on(cores: &[usize]) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|core| set.set(*core)).during("name cores")?;
    sched_setaffinity(Pid::from_raw(0), &set).during("stay on some cores")
}

/// Runs all threads of the bench and of some processes on one core, until dropped. On a nearly idle machine, waking another core takes longer
/// than everything else in the path of one request, and how long depends on the scheduler's placement.
#[derive(Debug)]
pub(crate) struct OneCore {
    before: Vec<(Pid, CpuSet)>,
}

impl OneCore {
    /// Moves all threads of the bench and of `others` to the first core that this thread may use.
    pub(crate) fn enter(others: &[Pid]) -> Result<Self, Failure> {
        let own = sched_getaffinity(Pid::from_raw(0)).during("read the cores of a thread")?;
        let first = (0..CpuSet::count()).find(|core| own.is_set(*core).unwrap_or_default());
        let mut one = CpuSet::new();
        one.set(first.unwrap_or_default()).during("name a core")?;
        let mut moved = Self { before: Vec::new() };
        for process in [Pid::this()].iter().chain(others) {
            for id in threads(*process)? {
                // The thread may have ended after it was listed.
                let Ok(before) = sched_getaffinity(id) else { continue };
                if sched_setaffinity(id, &one).is_ok() {
                    moved.before.push((id, before));
                }
            }
        }
        Ok(moved)
    }
}

fn threads(process: Pid) -> Result<Vec<Pid>, Failure> {
    let tasks = format!("/proc/{process}/task");
    let mut threads = Vec::new();
    for task in fs::read_dir(&tasks).during(format!("list {tasks}"))? {
        let name = task.during(format!("list {tasks}"))?.file_name();
        threads.extend(name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw));
    }
    Ok(threads)
}

impl Drop for OneCore {
    fn drop(&mut self) {
        for (id, before) in &self.before {
            // A thread that has ended needs no restore.
            sched_setaffinity(*id, before).unwrap_or_default();
        }
    }
}
