//! What a run cost: processor time of a process tree and of the whole machine, and memory.
//!
//! It must not know who is measured or why.

use std::fs;
use std::time::Duration;

use nix::unistd::Pid;

use crate::failure::{During, Failure};
use crate::sample::Cost;

/// The unit of `/proc/stat`: USER_HZ, 100 on every architecture that Linux shows to user space here.
const TICK: Duration = Duration::from_millis(10);

/// Processor time up to a moment. Two of them make a [`Cost`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    process: Duration,
    machine: Duration,
}

impl Clock {
    /// Reads both clocks now.
    pub(crate) fn read(processes: &[Pid]) -> Result<Self, Failure> {
        let mut process = Duration::ZERO;
        for pid in processes {
            process += process_time(*pid)?;
        }
        Ok(Self { process, machine: machine_time()? })
    }

    /// What was spent since `self` was read.
    pub(crate) fn until(self, later: Self) -> Cost {
        Cost {
            process: later.process.saturating_sub(self.process),
            machine: later.machine.saturating_sub(self.machine),
        }
    }
}

/// Nanoseconds on a core of all threads; `/proc/PID/stat` counts ticks of ten milliseconds, too coarse for short runs.
fn process_time(pid: Pid) -> Result<Duration, Failure> {
    let tasks = format!("/proc/{pid}/task");
    let mut total = Duration::ZERO;
    for task in fs::read_dir(&tasks).during(format!("list {tasks}"))? {
        let file = task.during(format!("list {tasks}"))?.path().join("schedstat");
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        total += Duration::from_nanos(number(text.split_whitespace().next(), "schedstat")?);
    }
    Ok(total)
}

/// All time of all cores that was neither idle, nor waiting for a disk, nor taken by another guest (see proc(5)).
fn machine_time() -> Result<Duration, Failure> {
    let text = fs::read_to_string("/proc/stat").during("read /proc/stat")?;
    let mut fields = text.split_whitespace().skip(1);
    let mut take = || number(fields.next(), "/proc/stat");
    let (user, nice, system, _idle, _iowait) = (take()?, take()?, take()?, take()?, take()?);
    let (interrupts, soft_interrupts) = (take()?, take()?);
    let ticks = user + nice + system + interrupts + soft_interrupts;
    Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// Memory of the processes in KiB, pages shared with others counted by share.
pub(crate) fn memory_kib(processes: &[Pid]) -> Result<u64, Failure> {
    sum(processes, "smaps_rollup", "Pss:")
}

/// The most resident memory that the processes ever had, in KiB.
pub(crate) fn peak_kib(processes: &[Pid]) -> Result<u64, Failure> {
    sum(processes, "status", "VmHWM:")
}

fn sum(processes: &[Pid], file: &str, key: &str) -> Result<u64, Failure> {
    let mut total = 0;
    for pid in processes {
        let path = format!("/proc/{pid}/{file}");
        let text = fs::read_to_string(&path).during(format!("read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        total += number(line.and_then(|line| line.split_whitespace().next()), &path)?;
    }
    Ok(total)
}

fn number(text: Option<&str>, from: &str) -> Result<u64, Failure> {
    let parsed = text.and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Failure::Unsupported(format!("{from} is not as proc(5) describes it")))
}

/// A process and all that descend from it, the parent first.
pub(crate) fn process_tree(root: Pid) -> Result<Vec<Pid>, Failure> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").during("list /proc")? {
        let name = entry.during("list /proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![root.as_raw()];
    let mut next = 0;
    while let Some(parent) = tree.get(next).copied() {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(tree.into_iter().map(Pid::from_raw).collect())
}

/// Fourth field of `/proc/PID/stat`; the second, the name in brackets, may hold spaces and brackets itself.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}
