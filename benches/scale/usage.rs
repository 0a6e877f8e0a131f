//! What the kernel says of a process: memory and processor time.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};

/// The unit of processor time in /proc; the same on all Linux architectures but Alpha (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Of one process, since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// User and system time together.
    pub(crate) cpu: Duration,
    /// Resident now, in MiB (VmRSS).
    pub(crate) resident: f64,
    /// Resident at most so far, in MiB (VmHWM).
    pub(crate) peak: f64,
}

/// Of the process with this id.
pub(crate) fn of(process: u32) -> Usage {
    let status = read(process, "status");
    let mebibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kibibytes = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<f64>().unwrap_or_default();
        kibibytes / 1024.0
    };
    Usage { cpu: cpu(process), resident: mebibytes("VmRSS"), peak: mebibytes("VmHWM") }
}

/// Begins the peak of a process anew, at what is resident now (proc_pid_clear_refs(5)).
pub(crate) fn forget_peak(process: u32) {
    fs::write(format!("/proc/{process}/clear_refs"), "5").expect("the peak of an own process is reset");
}

/// proc_pid_stat(5): fields 14 and 15, counted behind the name, which may hold anything.
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

/// The hard limit of open files; every process that is started here raises its own to it.
pub(crate) fn open_files() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard)
}
