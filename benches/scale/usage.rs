//! Memory and processor time of a process.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};

/// Unit of processor time in /proc (`USER_HZ`); the same on all Linux architectures except Alpha.
const TICKS_PER_SECOND: f64 = 100.0;

/// Resources of a process since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Resident memory in MiB (VmRSS).
    pub(crate) resident: f64,
    /// Peak resident memory in MiB (VmHWM).
    pub(crate) peak: f64,
}

/// Resources of the process with this ID.
pub(crate) fn of(process: u32) -> Usage {
    let status = read(process, "status");
    let mebibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kibibytes = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<f64>().unwrap_or_default();
        kibibytes / 1024.0
    };
    Usage { cpu: cpu(process), resident: mebibytes("VmRSS"), peak: mebibytes("VmHWM") }
}

/// Resets the peak of a process to its current resident memory (proc_pid_clear_refs(5)).
pub(crate) fn forget_peak(process: u32) {
    fs::write(format!("/proc/{process}/clear_refs"), "5").expect("the peak of an own process is reset");
}

/// Parses proc_pid_stat(5): fields 14 and 15, counted after the name, which may contain anything.
fn cpu(process: u32) -> Duration {
    let stat = read(process, "stat");
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

fn read(process: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default()
}

/// Hard limit of open files. Every process that is started here raises its own limit to it.
pub(crate) fn open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard)
}
