//! Cost of a run: processor time of a process tree and of the whole machine, context switches, and memory.
//!
//! Independent of what is measured and why.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

use crate::failure::{During, Failure};
use crate::sample::Cost;

/// Unit of `/proc/stat`: USER_HZ, which is 100 on all supported architectures.
const TICK: Duration = Duration::from_millis(10);

/// Cost up to a moment. Two of them give a [`Cost`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    process: Duration,
    machine: Duration,
    switches: u64,
}

impl Clock {
    /// Reads all clocks.
    pub(crate) fn read(processes: &[Pid]) -> Result<Self, Failure> {
        let (mut process, mut switches) = (Duration::ZERO, own_switches()?);
        for pid in processes {
            let (time, times) = process_time(*pid)?;
            process += time;
            switches += times;
        }
        Ok(Self { process, machine: machine_time()?, switches })
    }

    /// Cost since `self` was read.
    pub(crate) fn until(self, later: Self) -> Cost {
        Cost {
            process: later.process.saturating_sub(self.process),
            machine: later.machine.saturating_sub(self.machine),
            switches: later.switches.saturating_sub(self.switches),
        }
    }
}

/// Nanoseconds on a core of all threads, and how often one got a core. `/proc/PID/stat` counts in ticks of ten milliseconds, which is
/// too coarse for short runs.
fn process_time(pid: Pid) -> Result<(Duration, u64), Failure> {
    let tasks = format!("/proc/{pid}/task");
    let (mut total, mut times) = (Duration::ZERO, 0);
    for task in fs::read_dir(&tasks).during(format!("list {tasks}"))? {
        let file = task.during(format!("list {tasks}"))?.path().join("schedstat");
        // The thread may have ended after it was listed.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        // Fields: time on a core, time waiting for one, and how often it got one (Documentation/scheduler/sched-stats.rst of the
        // kernel).
        let mut fields = text.split_whitespace();
        total += Duration::from_nanos(number(fields.next(), "schedstat")?);
        times += number(fields.nth(1), "schedstat")?;
    }
    Ok((total, times))
}

/// How often a thread of the bench, which is client and server, got a core, including threads that have ended.
fn own_switches() -> Result<u64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).during("read the usage of resources")?;
    let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
    Ok(u64::try_from(switches).unwrap_or_default())
}

/// Time of all cores, except idle time, disk waits and time stolen by other guests (proc(5)).
fn machine_time() -> Result<Duration, Failure> {
    let text = fs::read_to_string("/proc/stat").during("read /proc/stat")?;
    let mut fields = text.split_whitespace().skip(1);
    let mut take = || number(fields.next(), "/proc/stat");
    let (user, nice, system, _idle, _iowait) = (take()?, take()?, take()?, take()?, take()?);
    let (interrupts, soft_interrupts) = (take()?, take()?);
    let ticks = user + nice + system + interrupts + soft_interrupts;
    Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// Number of TCP segments sent in the network namespace of the calling thread.
pub(crate) fn segments_sent() -> Result<u64, Failure> {
    const FILE: &str = "/proc/thread-self/net/snmp";
    let text = fs::read_to_string(FILE).during(format!("read {FILE}"))?;
    // The first line has the names, the second the values.
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut named = names.split_whitespace().zip(values.split_whitespace());
    number(named.find(|(name, _)| *name == "OutSegs").map(|(_, value)| value), FILE)
}

/// Sockets in TIME_WAIT of the calling thread's network namespace.
pub(crate) fn time_waits() -> Result<u64, Failure> {
    const FILE: &str = "/proc/thread-self/net/sockstat";
    let text = fs::read_to_string(FILE).during(format!("read {FILE}"))?;
    let mut words = text.lines().filter_map(|line| line.strip_prefix("TCP:")).flat_map(str::split_whitespace);
    words.find(|word| *word == "tw");
    number(words.next(), FILE)
}

/// Memory of the processes in KiB (PSS, which divides shared pages between processes).
pub(crate) fn memory_kib(processes: &[Pid]) -> Result<u64, Failure> {
    sum(processes, "smaps_rollup", "Pss:")
}

/// Peak resident memory of the processes, in KiB.
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

/// A process and all its descendants, the process itself first.
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

/// Fourth field of `/proc/PID/stat`. The second, the name in brackets, may itself contain spaces and brackets.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}
