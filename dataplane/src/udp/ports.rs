//! Local ports for flows. Left to the kernel, a flow takes a port of the whole machine: 28,232 flows, and no program there can
//! make a UDP socket any more. A connected socket is told from others by both ends, so one port serves one flow for each
//! endpoint: these ports are shared by address (SO_REUSEADDR, socket(7)), and a part of the machine's range is never used.
//!
//! Ports are chosen so that nobody can foresee them, as the kernel does (RFC 6056): who does not see a flow must not guess where
//! its answers go.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::rc::Rc;

use crate::model::EndpointAddr;

/// The first and last port that the kernel gives to whom it does not matter, and those of them that it does not give.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
/// Linux's default, where the range cannot be read.
const USUAL: RangeInclusive<u16> = 32_768..=60_999;

/// Random ports that are tried before all are gone through in turn.
const GUESSES: usize = 16;

/// The ports of one worker.
#[derive(Debug)]
pub(super) struct LocalPorts {
    ports: Box<[u16]>,
    /// The standard library's hash has random keys, and who knows its answers does not know the next one.
    keys: RandomState,
    drawn: Cell<u64>,
    used: RefCell<HashSet<(EndpointAddr, u16), foldhash::fast::RandomState>>,
}

/// A port towards one endpoint, given back when dropped.
#[derive(Debug)]
pub(super) struct PortLease {
    pool: Rc<LocalPorts>,
    endpoint: EndpointAddr,
    port: u16,
}

impl LocalPorts {
    /// Those of one of so many workers, of which each has others: their sockets would meet.
    pub(super) fn of_worker(index: usize, workers: usize) -> Rc<Self> {
        let range = fs::read_to_string(RANGE).ok().and_then(|text| parse_range(&text)).unwrap_or(USUAL);
        let reserved = fs::read_to_string(RESERVED).map(|text| parse_list(&text)).unwrap_or_default();
        Self::new(shared(range, &reserved).skip(index).step_by(workers.max(1)).collect())
    }

    fn new(ports: Box<[u16]>) -> Rc<Self> {
        Rc::new(Self { ports, keys: RandomState::new(), drawn: Cell::new(0), used: RefCell::default() })
    }

    fn random(&self) -> usize {
        self.drawn.set(self.drawn.get().wrapping_add(1));
        self.keys.hash_one(self.drawn.get()) as usize % self.ports.len()
    }

    /// Whether there are none: the range has fewer than there are workers.
    pub(super) fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// A port that no other flow to this endpoint has; `None` if all are used.
    pub(super) fn lease(self: &Rc<Self>, endpoint: EndpointAddr) -> Option<PortLease> {
        let count = self.ports.len();
        if count == 0 {
            return None;
        }
        let mut used = self.used.borrow_mut();
        let mut free = |index: usize| {
            let port = self.ports[index % count];
            used.insert((endpoint, port)).then_some(port)
        };
        let guessed = (0..GUESSES).find_map(|_| free(self.random()));
        let port = guessed.or_else(|| {
            let first = self.random();
            (first..first + count).find_map(free)
        })?;
        Some(PortLease { pool: Rc::clone(self), endpoint, port })
    }
}

impl PortLease {
    /// Its number.
    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        self.pool.used.borrow_mut().remove(&(self.endpoint, self.port));
    }
}

/// Three of each four ports, so that every other program of the machine still finds one.
fn shared(range: RangeInclusive<u16>, reserved: &HashSet<u16>) -> impl Iterator<Item = u16> {
    range.filter(|port| port % 4 != 0 && !reserved.contains(port))
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ends = text.split_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

/// As `8080,9148-9150`.
fn parse_list(text: &str) -> HashSet<u16> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: u8) -> EndpointAddr {
        EndpointAddr::new([10, 0, 0, number].into(), 53)
    }

    #[test]
    fn each_endpoint_has_all_ports_and_no_port_twice() {
        let pool = LocalPorts::new((1000..1100).collect());
        for number in [1, 2] {
            let leases: Vec<PortLease> = std::iter::from_fn(|| pool.lease(endpoint(number))).collect();
            let ports: HashSet<u16> = leases.iter().map(PortLease::port).collect();
            assert_eq!((leases.len(), ports.len()), (100, 100));
            let freed = leases.into_iter().next().map(|lease| lease.port());
            assert!(freed.is_some());
        }
        assert!(pool.used.borrow().is_empty(), "all are given back");
    }

    #[test]
    fn a_port_that_was_given_back_is_found_again() {
        let pool = LocalPorts::new((1000..1010).collect());
        let mut leases: Vec<PortLease> = std::iter::from_fn(|| pool.lease(endpoint(1))).collect();
        assert!(pool.lease(endpoint(1)).is_none());
        let freed = leases.pop().map(|lease| lease.port());
        assert_eq!(pool.lease(endpoint(1)).map(|lease| lease.port()), freed);
    }

    #[test]
    fn workers_have_other_ports_and_a_quarter_is_left_to_others() {
        let all =
            |index| shared(100..=199, &HashSet::from([101])).skip(index).step_by(2).collect::<HashSet<u16>>();
        let (first, second) = (all(0), all(1));
        assert!(first.is_disjoint(&second));
        assert_eq!(first.len() + second.len(), 74);
    }

    #[test]
    fn the_kernels_lists_are_read() {
        assert_eq!(parse_range("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(parse_range("odd"), None);
        assert_eq!(parse_list("8080,9148-9150\n"), HashSet::from([8080, 9148, 9149, 9150]));
        assert_eq!(parse_list("\n"), HashSet::new());
    }
}
