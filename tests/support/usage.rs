//! Memory and processor time of a process.

use std::fs;
use std::time::Duration;

/// Unit of processor time in /proc (`USER_HZ`): 10 ms on all Linux architectures except Alpha.
const TICK: Duration = Duration::from_millis(10);

/// Resources of a process since its start.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Resident memory in KiB (VmRSS).
    pub resident_kib: u64,
    /// Peak resident memory in KiB (VmHWM).
    pub peak_kib: u64,
}

impl Usage {
    /// Resident memory in MiB.
    pub fn resident_mib(&self) -> f64 {
        self.resident_kib as f64 / 1024.0
    }

    /// Peak resident memory in MiB.
    pub fn peak_mib(&self) -> f64 {
        self.peak_kib as f64 / 1024.0
    }
}

/// Resources of the process with this ID. Panics if it has ended.
pub fn of(process: u32) -> Usage {
    let status = read(process, "status");
    let kib = |name: &str| {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).expect("running processes have memory");
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number of KiB")
    };
    Usage { cpu: cpu(process), resident_kib: kib("VmRSS"), peak_kib: kib("VmHWM") }
}

/// Resets the peak of a process to its current resident memory (proc_pid_clear_refs(5)).
pub fn forget_peak(process: u32) {
    fs::write(format!("/proc/{process}/clear_refs"), "5").expect("the peak of an own process is reset");
}

/// Parses proc_pid_stat(5): fields 14 and 15, counted after the name, which may contain anything.
fn cpu(process: u32) -> Duration {
    let stat = read(process, "stat");
    let (_, fields) = stat.rsplit_once(')').expect("the name is in brackets");
    let ticks =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>().expect("a number"));
    TICK * ticks.sum::<u32>()
}

fn read(process: u32, file: &str) -> String {
    let path = format!("/proc/{process}/{file}");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
