//! Memory watch: reports to the data plane how much memory is left for traffic. It has its own thread, since the control loop may be
//! busy and memory can run out within a second.
//!
//! Counts what the kernel's out-of-memory killer counts: each memory cgroup of the process including sockets, and the whole machine.

mod cgroup;

use std::fs;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use self::cgroup::Groups;
use crate::limits::capacity::{MemoryGauge, MemoryLeft};

/// Interval of checks while memory is plentiful, and while it is short.
const CALM: Duration = Duration::from_secs(1);
const CLOSE: Duration = Duration::from_millis(100);

/// Reserve of each limit, for the process itself and for the growth of open connections.
const SPARED_SHARE: u64 = 10;
const SPARED_MOST: u64 = 256 << 20;

/// Kernel memory of a socket, without its buffers (`slabinfo`: TCP, sock_inode_cache, filp, dentry, epitem).
const MEMORY_OF_A_SOCKET: u64 = 5 << 10;
/// Assumed maximum of data buffered in one of our sockets, where only the total of the machine is known.
const MOST_BUFFERED: u64 = 1 << 20;
/// The smallest page size. With larger pages, the estimate is too low.
const PAGE: u64 = 4096;

/// A limit and its usage, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    limit: u64,
    used: u64,
}

impl Level {
    /// Bytes that traffic may still use.
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.spared()).saturating_sub(self.used)
    }

    /// Bytes that connections with hardly any data may still use: half of the reserve is for them.
    fn free_to_small_ones(&self) -> u64 {
        self.limit.saturating_sub(self.spared() / 2).saturating_sub(self.used)
    }

    /// Bytes to free, so that a quarter of the reserve is available for small connections.
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

/// Running memory watch, until it is dropped.
#[derive(Debug)]
pub struct MemoryWatch {
    /// Sends changes of the configured limit. The thread ends when this is dropped.
    limits: mpsc::Sender<Option<u64>>,
}

impl MemoryWatch {
    /// Starts the thread, which keeps `gauge` up to date. `limit` is the configured limit in bytes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(limit: Option<u64>, gauge: MemoryGauge) -> io::Result<Self> {
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

    /// Changes the configured limit.
    pub fn set_limit(&self, limit: Option<u64>) {
        // Fails only if the thread has ended, which it does not on its own.
        self.limits.send(limit).ok();
    }
}

/// The smallest limit of memory in bytes: of the process's cgroups, the machine and the configuration.
pub fn memory_limit(configured: Option<u64>) -> Option<u64> {
    let groups = Groups::of_process();
    let levels = groups.levels().chain(machine());
    levels.map(|level| level.limit).chain(configured).min()
}

/// Checks once, and returns the time until the next check.
fn look(groups: &Groups, limit: Option<u64>, gauge: &MemoryGauge) -> Duration {
    let own = groups.own();
    let configured = limit.and_then(|limit| {
        let used = own.map_or_else(|| seen(gauge), |own| Some(own.used))?;
        Some(Level { limit, used })
    });
    let levels: Vec<Level> =
        own.into_iter().chain(groups.above()).chain(machine()).chain(configured).collect();
    let least = |free: fn(&Level) -> u64| levels.iter().map(free).min().unwrap_or(u64::MAX);
    // Memory of other processes is not for this one to free, so only levels that count this process alone have an excess.
    let own = own.into_iter().flat_map(|own| configured.into_iter().chain([own]));
    gauge.set(MemoryLeft {
        free: least(Level::free),
        by_small_ones: least(Level::free_to_small_ones),
        excess: own.map(|level| level.excess()).max().unwrap_or(0),
    });
    if levels.iter().all(Level::is_calm) { CALM } else { CLOSE }
}

/// Estimated memory of this process, where no cgroup counts it alone.
fn seen(gauge: &MemoryGauge) -> Option<u64> {
    let sockets = gauge.descriptors() as u64;
    let buffered = buffered().unwrap_or(0).min(sockets * MOST_BUFFERED);
    Some(resident()? + sockets * MEMORY_OF_A_SOCKET + buffered)
}

/// Bytes in the buffers of all sockets of the machine (`mem` in /proc/net/sockstat, in pages; proc(5)).
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

/// Memory of the machine, counting as free what needs no swapping (`MemAvailable`, proc(5)).
fn machine() -> Option<Level> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let limit = kibibytes(&text, "MemTotal:")?;
    Some(Level { limit, used: limit.saturating_sub(kibibytes(&text, "MemAvailable:")?) })
}

/// Resident memory of the process, without its sockets in the kernel.
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
