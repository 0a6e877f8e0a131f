//! Process metrics with the names of Prometheus' own client libraries. Values that cannot be read have no series.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::exposition::Exposition;
use super::families as names;

/// The unit of times in proc_pid_stat(5): `USER_HZ`, which is 100 on every machine that Sheave runs on.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn write(text: &mut Exposition) {
    if let Some(Stat { used, started }) =
        fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::parse)
    {
        text.family(&names::PROCESS_CPU).add_fraction("", used as f64 / TICKS_PER_SECOND);
        if let Some(boot) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(boot_time) {
            text.family(&names::PROCESS_START)
                .add_fraction("", boot as f64 + started as f64 / TICKS_PER_SECOND);
        }
    }
    if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident_bytes) {
        text.family(&names::PROCESS_MEMORY).add(&[], bytes);
    }
    if let Some(open) = open_files() {
        text.family(&names::PROCESS_OPEN_FDS).add(&[], open);
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        text.family(&names::PROCESS_MAX_FDS).add(&[], limit);
    }
}

/// Fields of proc_pid_stat(5), in ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Time in user and kernel mode.
    used: u64,
    /// Start time since boot.
    started: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in brackets may contain anything, so parse after it: from the third field on. Fields 14, 15 and 22 are
        // needed.
        let mut fields =
            text.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse::<u64>().ok()).skip(11);
        let used = fields.next()?? + fields.next()??;
        Some(Self { used, started: fields.nth(6)?? })
    }
}

/// Boot time in seconds since 1970.
fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn resident_bytes(status: &str) -> Option<u64> {
    let size = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(size.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Number of open files. Since Linux 6.2 it is the size of the folder; before, entries are counted, which takes 0.1 s for a
/// million.
fn open_files() -> Option<u64> {
    let folder = "/proc/self/fd";
    match fs::metadata(folder).ok()?.len() {
        0 => Some(fs::read_dir(folder).ok()?.count() as u64),
        open => Some(open),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_is_skipped() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194304 150 0 0 0 120 30 0 0 20 0 5 0 8899 1000 200";
        assert_eq!(Stat::parse(text), Some(Stat { used: 150, started: 8_899 }));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_every_series() {
        let mut text = Exposition::default();
        write(&mut text);
        let text = text.finish().unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
        };
        let now = jiff::Timestamp::now().as_second() as f64;
        assert!(((now - 86_400.0)..=now + 1.0).contains(&value("process_start_time_seconds")), "{text}");
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")), "{text}");
    }
}
