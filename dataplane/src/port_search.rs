//! Search for local ports towards endpoints. connect(2) tries every even port of the machine's range before an odd one, and a port stays in
//! TIME_WAIT for a minute if the gateway closed first. From about 14,000 such ports on, each connect takes milliseconds
//! (`__inet_hash_connect` in net/ipv4/inet_hashtables.c), during which the thread does nothing else. Each connect is therefore restricted to a
//! few ports at a time, those that have not been tried for longest.
//!
//! Like the kernel (RFC 6056, section 3.3.3), the search walks through the range from an offset that differs for each pair of addresses and
//! is secret. Only the kernel knows whether a port is free, since other programs and workers use the range as well.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use sheave_model::EndpointAddr;
use socket2::Socket;

use crate::sys::Errno;
use crate::sys::errnos::is_out_of_tcp_ports;
use crate::sys::port_range::{can_narrow_port_range, narrow_port_range, port_range, reuses_ports_early};

/// Block size of the walk. The last ports of each block are used only if the others are scarce: bind(2) for other programs needs ports that
/// no connection uses at all.
pub(crate) const BLOCK: u16 = 16;
pub(crate) const USED_OF_BLOCK: u16 = 12;

/// Number of ports offered to connect(2), one part of the range after another. It checks all of them in a tenth of a millisecond. With 98
/// of 100 ports in use, it still nearly always finds one.
const SHOWN: [u16; 4] = [USED_OF_BLOCK, USED_OF_BLOCK, 128, 512];

/// Duration from which a connect counts as slow: it has checked thousands of ports.
const SLOW: Duration = Duration::from_millis(1);

/// How long an endpoint without a free port is left alone.
const CROWDED: Duration = Duration::from_millis(100);

/// Port search of one thread.
pub(crate) struct PortSearch {
    /// The machine's port range; `None` if the kernel cannot restrict the ports of a socket.
    range: RefCell<Option<RangeInclusive<u16>>>,
    keys: RandomState,
    /// Number of blocks passed.
    passed: Cell<u64>,
    /// Endpoints that are not connected before the given time: no port towards them was free, or finding one was slow.
    crowded: RefCell<HashMap<EndpointAddr, Instant>>,
}

impl PortSearch {
    pub(crate) fn new() -> Self {
        Self {
            range: RefCell::new(can_narrow_port_range().then(port_range)),
            keys: RandomState::new(),
            passed: Cell::default(),
            crowded: RefCell::default(),
        }
    }

    /// Checks whether an attempt to connect to the endpoint from the gateway's address makes sense now.
    ///
    /// # Errors
    /// Returns `EADDRNOTAVAIL` if the endpoint is crowded.
    pub(crate) fn check(&self, endpoint: EndpointAddr, now: Instant) -> io::Result<()> {
        match self.crowded.borrow().get(&endpoint).is_some_and(|until| now < *until) {
            true => Err(Errno::EADDRNOTAVAIL.into()),
            false => Ok(()),
        }
    }

    /// Starts to connect the nonblocking `socket` from the address of `source`, to which it is bound, or from the gateway's. The port of `source` is used
    /// if it is in the machine's range and free towards the endpoint, so that no other program loses a port that it could have had.
    ///
    /// # Errors
    /// Returns an error if setsockopt(2) or connect(2) fails; `EINPROGRESS` is no failure.
    pub(crate) fn connect(
        &self,
        socket: &Socket,
        source: Option<SocketAddr>,
        endpoint: EndpointAddr,
        now: Instant,
    ) -> io::Result<()> {
        let range = self.range.borrow().clone();
        let outcome = match range {
            Some(range) => self.connect_within(&range, socket, source, endpoint),
            None => self.connect_anyhow(socket, endpoint),
        };
        if source.is_none() && outcome.as_ref().is_err_and(is_out_of_tcp_ports) {
            self.set_crowded(endpoint, now, now + CROWDED);
            if let Some(range) = &mut *self.range.borrow_mut() {
                // An administrator may have widened the range.
                *range = port_range();
            }
        }
        outcome
    }

    fn connect_within(
        &self,
        range: &RangeInclusive<u16>,
        socket: &Socket,
        source: Option<SocketAddr>,
        endpoint: EndpointAddr,
    ) -> io::Result<()> {
        let mut outcome = Err(Errno::EADDRNOTAVAIL.into());
        if let Some(port) = source.map(|source| source.port()).filter(|port| range.contains(port)) {
            narrow_port_range(socket, &(port..=port))?;
            outcome = start(socket, endpoint);
            if !outcome.as_ref().is_err_and(is_out_of_tcp_ports) {
                return outcome;
            }
        }
        let begin = self.keys.hash_one((source.map(|source| source.ip()), endpoint));
        for shown in SHOWN {
            let passed = self.passed.get();
            self.passed.set(passed.wrapping_add(shown.div_ceil(BLOCK).into()));
            narrow_port_range(socket, &part(range, shown, begin.wrapping_add(passed)))?;
            outcome = start(socket, endpoint);
            if usize::from(shown) >= range.len() || !outcome.as_ref().is_err_and(is_out_of_tcp_ports) {
                break;
            }
        }
        outcome
    }

    /// Lets the kernel search all ports. An endpoint for which that was slow is skipped for twice that time, so that others are served.
    fn connect_anyhow(&self, socket: &Socket, endpoint: EndpointAddr) -> io::Result<()> {
        let began = Instant::now();
        let outcome = start(socket, endpoint);
        let took = began.elapsed();
        if took >= SLOW {
            self.set_crowded(endpoint, began, began + 2 * took);
        }
        outcome
    }

    pub(crate) fn set_crowded(&self, endpoint: EndpointAddr, now: Instant, until: Instant) {
        let mut crowded = self.crowded.borrow_mut();
        crowded.retain(|_, until| now < *until);
        crowded.insert(endpoint, until);
    }
}

/// Starts to connect; an attempt that goes on is no failure.
fn start(socket: &Socket, endpoint: EndpointAddr) -> io::Result<()> {
    match socket.connect(&endpoint.socket_addr().into()) {
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => Ok(()),
        outcome => outcome,
    }
}

/// Warns at startup that connects may be slow, with advice.
pub(crate) fn warn_of_slow_connects() {
    if !can_narrow_port_range() && !reuses_ports_early() {
        let advice = "set net.ipv4.tcp_tw_reuse to 1, or use Linux 6.3 or newer";
        tracing::warn!(
            advice,
            "with more than about 230 connections a second to one endpoint, this kernel takes milliseconds to find a local port for each"
        );
    }
}

/// `ports` consecutive ports of the range, from this block on.
fn part(range: &RangeInclusive<u16>, ports: u16, block: u64) -> RangeInclusive<u16> {
    let (first, last) = (*range.start(), *range.end());
    let blocks = range.len().div_ceil(BLOCK.into()).max(1) as u64;
    // The last block may be shorter.
    let latest = last.saturating_sub(ports - 1).max(first);
    let first = first.saturating_add((block % blocks) as u16 * BLOCK).min(latest);
    first..=first.saturating_add(ports - 1).min(last)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{Ipv4Addr, TcpListener};

    use socket2::{Domain, Type};

    use super::*;
    use crate::sys::sockets::set_int;

    #[test]
    fn parts_of_a_range_are_as_long_as_is_possible_and_all_of_them_are_the_range() {
        for range in [32_768..=60_999, 1..=65_535, 40_000..=40_007, 40_000..=40_000, 40_000..=40_016] {
            let blocks = range.len().div_ceil(BLOCK.into()) as u64;
            for shown in SHOWN {
                let mut seen = vec![false; range.len()];
                for block in 7 * blocks..8 * blocks {
                    let part = part(&range, shown, block);
                    assert!(part.start() >= range.start() && part.end() <= range.end(), "{range:?}");
                    assert_eq!(part.len(), range.len().min(shown.into()), "{range:?}");
                    seen[usize::from(part.start() - range.start())..][..part.len()].fill(true);
                }
                assert!(shown == USED_OF_BLOCK || seen.iter().all(|seen| *seen), "{range:?}");
            }
        }
    }

    #[test]
    fn an_endpoint_is_crowded_for_a_moment() {
        let endpoint = |number| EndpointAddr::new([10, 0, 0, number].into(), 80);
        let (ports, now) = (PortSearch::new(), Instant::now());
        ports.set_crowded(endpoint(1), now, now + CROWDED);
        assert!(ports.check(endpoint(1), now).is_err() && ports.check(endpoint(2), now).is_ok());
        assert!(ports.check(endpoint(1), now + CROWDED).is_ok());
        ports.set_crowded(endpoint(2), now + CROWDED, now + 2 * CROWDED);
        assert_eq!(ports.crowded.borrow().len(), 1);
    }

    /// Connects `times` times to a listener that holds all connections; returns the local ports.
    fn connect(ports: &PortSearch, times: usize) -> Vec<io::Result<(Socket, u16)>> {
        // A port that a program is bound to is no port for connections.
        let few = ports.range.borrow().clone().filter(|range| *range != port_range());
        let listeners = std::iter::repeat_with(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let is_outside = |listener: &TcpListener| {
            let port = listener.local_addr().unwrap().port();
            few.as_ref().is_none_or(|few| !few.contains(&port))
        };
        let listener = listeners.into_iter().find(is_outside).unwrap();
        let addr = listener.local_addr().unwrap();
        let endpoint = EndpointAddr::new(addr.ip(), addr.port());
        let once = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            ports.connect(&socket, None, endpoint, Instant::now())?;
            let (_, peer) = listener.accept()?;
            Ok((socket, peer.port()))
        };
        (0..times).map(|_| once()).collect()
    }

    #[test]
    fn other_programs_find_ports_that_no_connection_uses() {
        let range = port_range();
        let used = connect(&PortSearch::new(), 256).into_iter().map(|it| it.unwrap().1);
        let spared = used.filter(|port| (port - range.start()) % BLOCK >= USED_OF_BLOCK).count();
        // The last block may be shorter.
        assert!(spared <= 1, "{spared}");
    }

    #[test]
    fn all_ports_are_used_before_there_is_none() {
        let ports = PortSearch::new();
        let first = *port_range().start();
        *ports.range.borrow_mut() = Some(first..=first + 39);
        let made = connect(&ports, 41);
        let crowded = made[40].as_ref().is_err_and(is_out_of_tcp_ports);
        let used: HashSet<u16> = made.into_iter().flatten().map(|(_, port)| port).collect();
        assert_eq!((used.len(), crowded), (40, true));
        assert_eq!(ports.range.borrow().clone(), Some(port_range()), "it may have been widened");
    }

    #[test]
    fn a_clients_port_is_kept_unless_another_connection_to_the_endpoint_has_it() {
        let (ports, range) = (PortSearch::new(), port_range());
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let taken = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
        let connect = |listener: &TcpListener, port| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            set_int(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1).unwrap();
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
            let addr = listener.local_addr().unwrap();
            let source = Some((Ipv4Addr::LOCALHOST, port).into());
            ports
                .connect(&socket, source, EndpointAddr::new(addr.ip(), addr.port()), Instant::now())
                .unwrap();
            (socket, listener.accept().unwrap().1.port())
        };
        let port = range.clone().find(|port| !taken.contains(port)).unwrap();
        let towards_each = listeners.each_ref().map(|listener| connect(listener, port));
        assert_eq!(towards_each.each_ref().map(|(_, seen)| *seen), [port; 2]);
        let below = range.start() - 1;
        for (wanted, what) in [(port, "in use"), (taken[0], "a listener's"), (below, "of servers")] {
            let (_socket, seen) = connect(&listeners[0], wanted);
            assert!(seen != wanted && range.contains(&seen), "{what}: {seen}");
        }
    }

    #[test]
    fn where_the_kernel_looks_at_all_ports_it_is_left_to_it() {
        let ports = PortSearch { range: RefCell::new(None), ..PortSearch::new() };
        assert!(connect(&ports, 1).iter().all(Result::is_ok));
    }
}
