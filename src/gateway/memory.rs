//! How much memory is left for traffic, reported to the data plane from a thread of its own: the control loop may be busy, and memory
//! can be gone within a second.
//!
//! It counts what the kernel's out-of-memory killer counts: each memory cgroup of the process, sockets included, and the machine.

mod cgroup;

use std::fs;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use sheave_dataplane::{MemoryGauge, MemoryLeft};

use self::cgroup::Groups;

/// How often it is looked at while there is plenty, and while there is not.
const CALM: Duration = Duration::from_secs(1);
const CLOSE: Duration = Duration::from_millis(100);

/// Of each limit so much is left to the process itself, and to what open connections still come to take.
const SPARED_SHARE: u64 = 10;
const SPARED_MOST: u64 = 256 << 20;

/// What the kernel keeps for a socket without what waits in it (`slabinfo`: TCP, sock_inode_cache, filp, dentry, epitem).
const MEMORY_OF_A_SOCKET: u64 = 5 << 10;
/// So much at most is taken to wait in a socket of ours, where only the whole machine's can be seen.
const MOST_BUFFERED: u64 = 1 << 20;
/// Of the smallest kind; with larger ones less is counted.
const PAGE: u64 = 4096;

/// A limit, and what is taken of it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    limit: u64,
    used: u64,
}

impl Level {
    /// What traffic may yet take.
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.spared()).saturating_sub(self.used)
    }

    /// The same of those who have next to nothing: half of what is spared is for them.
    fn free_to_small_ones(&self) -> u64 {
        self.limit.saturating_sub(self.spared() / 2).saturating_sub(self.used)
    }

    /// What is to be given back, so that small ones find room: a quarter of what is spared.
    fn excess(&self) -> u64 {
        self.used.saturating_sub(self.limit - self.spared() / 4 * 3)
    }

    fn spared(&self) -> u64 {
        (self.limit / SPARED_SHARE).min(SPARED_MOST)
    }

    fn is_calm(&self) -> bool {
        self.free() > self.limit / 2
    }
}

/// Watches memory until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    /// Other configured limits; the thread ends when this one is gone.
    limits: mpsc::Sender<Option<u64>>,
}

impl MemoryWatch {
    /// Says to `gauge` what is free, now and later. `limit` is the configured one, in bytes.
    ///
    /// # Errors
    /// If the thread cannot be made.
    pub(super) fn start(limit: Option<u64>, gauge: MemoryGauge) -> io::Result<Self> {
        let (limits, others) = mpsc::channel();
        let (groups, mut limit) = (Groups::of_process(), limit);
        let mut every = look(&groups, limit, &gauge);
        thread::Builder::new().name("sheave-memory".to_owned()).spawn(move || {
            loop {
                match others.recv_timeout(every) {
                    Ok(other) => limit = other,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                every = look(&groups, limit, &gauge);
            }
        })?;
        Ok(Self { limits })
    }

    /// Goes by this configured limit from now on.
    pub(super) fn set_limit(&self, limit: Option<u64>) {
        // Fails if the thread has ended, which it does not by itself.
        self.limits.send(limit).ok();
    }
}

/// The least of the limits that traffic goes by, in bytes: of the process's cgroups, of the machine, and the configured one.
pub(crate) fn memory_limit(configured: Option<u64>) -> Option<u64> {
    let groups = Groups::of_process();
    let levels = groups.levels().chain(machine());
    levels.map(|level| level.limit).chain(configured).min()
}

/// Looks once; when to look again.
fn look(groups: &Groups, limit: Option<u64>, gauge: &MemoryGauge) -> Duration {
    let own = groups.own();
    let configured = limit.and_then(|limit| {
        let used = own.map_or_else(|| seen(gauge), |own| Some(own.used))?;
        Some(Level { limit, used })
    });
    let levels: Vec<Level> =
        own.into_iter().chain(groups.above()).chain(machine()).chain(configured).collect();
    let least = |free: fn(&Level) -> u64| levels.iter().map(free).min().unwrap_or(u64::MAX);
    // Where others are counted, too, it is not for this process to give back what they have taken.
    let own = own.into_iter().flat_map(|own| configured.into_iter().chain([own]));
    gauge.set(MemoryLeft {
        free: least(Level::free),
        by_small_ones: least(Level::free_to_small_ones),
        excess: own.map(|level| level.excess()).max().unwrap_or(0),
    });
    if levels.iter().all(Level::is_calm) { CALM } else { CLOSE }
}

/// What the process has as far as can be seen, where no cgroup counts it alone.
fn seen(gauge: &MemoryGauge) -> Option<u64> {
    let sockets = gauge.descriptors() as u64;
    let buffered = buffered().unwrap_or(0).min(sockets * MOST_BUFFERED);
    Some(resident()? + sockets * MEMORY_OF_A_SOCKET + buffered)
}

/// What waits in the buffers of all sockets of the machine, in pages (`mem` in /proc/net/sockstat, proc(5)).
fn buffered() -> Option<u64> {
    Some(pages_buffered(&fs::read_to_string("/proc/net/sockstat").ok()?) * PAGE)
}

fn pages_buffered(sockstat: &str) -> u64 {
    let pages = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "mem").skip(1);
        words.next()?.parse::<u64>().ok()
    };
    sockstat.lines().filter_map(pages).sum()
}

/// What the kernel could give without swapping (`MemAvailable`, proc(5)).
fn machine() -> Option<Level> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let limit = kibibytes(&text, "MemTotal:")?;
    Some(Level { limit, used: limit.saturating_sub(kibibytes(&text, "MemAvailable:")?) })
}

/// The process's own, without what the kernel has for its sockets.
fn resident() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_each_limit_is_spared() {
        assert_eq!(Level { limit: 1000, used: 200 }.free(), 700);
        let full = Level { limit: 1000, used: 901 };
        assert_eq!((full.free(), full.free_to_small_ones(), full.excess()), (0, 49, 0));
        assert_eq!(Level { limit: 1000, used: 950 }.excess(), 25);
        assert_eq!(Level { limit: 64 << 30, used: 0 }.free(), (64 << 30) - SPARED_MOST);
        assert!(Level { limit: 1000, used: 300 }.is_calm() && !Level { limit: 1000, used: 500 }.is_calm());
    }

    #[test]
    fn the_machine_and_the_process_are_read() {
        assert!(machine().is_some_and(|level| level.used < level.limit));
        assert!(resident().is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(kibibytes("MemTotal:  16 kB\nMemFree: 1 kB", "MemFree:"), Some(1024));
        assert_eq!(kibibytes("MemTotal: many", "MemTotal:"), None);
        let sockstat =
            "sockets: used 9\nTCP: inuse 1 orphan 0 tw 0 alloc 2 mem 30\nUDP: inuse 1 mem 4\nRAW: inuse 0\n";
        assert_eq!(pages_buffered(sockstat), 34);
    }
}
