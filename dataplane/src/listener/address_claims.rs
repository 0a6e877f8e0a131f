//! Claims on addresses: those where this process or this machine listens for other purposes, where other processes listen, and where
//! sockets of departed frontends are still open.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};

use super::open;
use crate::counters::{FrontendCounters, UdpCounters};
use sheave_model::{FrontendAddr, Protocol};

/// Claims, besides the table, that decide whether a frontend may have its address.
#[derive(Debug, Default)]
pub(super) struct AddressClaims {
    /// Addresses where this process listens for other purposes.
    reserved: BTreeSet<SocketAddr>,
    /// Addresses of this machine itself, where its sshd or kubelet must stay reachable.
    machine: BTreeSet<IpAddr>,
    departed: Departed,
}

impl AddressClaims {
    /// Sets the addresses used for other purposes. Returns whether those of this process changed.
    pub(super) fn set(&mut self, reserved: BTreeSet<SocketAddr>, machine: BTreeSet<IpAddr>) -> bool {
        let changed = self.reserved != reserved;
        (self.reserved, self.machine) = (reserved, machine);
        changed
    }

    /// Number of addresses that this process itself uses.
    pub(super) fn reserved(&self) -> usize {
        self.reserved.len()
    }

    /// Whether a steered frontend at this address would intercept the traffic of a server of this process.
    pub(super) fn is_reserved(&self, addr: FrontendAddr) -> bool {
        addr.protocol == Protocol::Tcp && self.reserved.iter().any(|server| addr.is_reached_at(*server))
    }

    /// Whether this is an address of the machine itself.
    pub(super) fn is_machine(&self, ip: IpAddr) -> bool {
        self.machine.contains(&ip)
    }

    /// Records that workers may still have sockets on the address of a departing frontend.
    pub(super) fn add_departed(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) {
        self.departed.add(addr, counters);
    }

    /// Whether sockets of closed frontends may still be on the address.
    pub(super) fn is_ours(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) -> bool {
        self.departed.holds(addr, counters)
    }

    /// TCP frontends among `steered` whose address is the machine's own and where another process listens now.
    pub(super) fn taken_by_others(&self, steered: impl Iterator<Item = FrontendAddr>) -> Vec<FrontendAddr> {
        let on_machine = |addr: &FrontendAddr| addr.protocol == Protocol::Tcp && self.is_machine(addr.ip);
        let mut asked = steered.filter(on_machine).peekable();
        if asked.peek().is_none() {
            return Vec::new();
        }
        let others = listening();
        // bind(2) fails because of connected sockets, too; and a listener that accepts only IPv6 does not affect IPv4.
        let taken = |addr: &FrontendAddr| {
            others.iter().any(|other| addr.is_reached_at(*other))
                && open::probe(*addr).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
        };
        asked.filter(taken).collect()
    }
}

/// Number of frontends that may be recorded although all their sockets are closed.
const KEPT: usize = 64;

/// Frontends that have left the table while sockets of theirs may still be on their addresses.
#[derive(Debug, Default)]
struct Departed {
    /// Counters of UDP frontends: a worker that still references one has sockets on the address.
    counters: HashMap<FrontendAddr, Vec<Weak<UdpCounters>>>,
    /// Number of frontends left at the last cleanup.
    left: usize,
}

impl Departed {
    /// Records that workers may still have sockets on the address.
    fn add(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) {
        let of_udp: Vec<_> = counters.iter().filter_map(FrontendCounters::udp).collect();
        if of_udp.is_empty() {
            return;
        }
        self.counters.entry(addr).or_default().extend(of_udp.iter().map(Arc::downgrade));
        // Not at each of thousands that leave together.
        if self.counters.len() > 2 * self.left + KEPT {
            self.counters.retain(|_, counters| counters.iter().any(|one| one.strong_count() > 0));
            self.left = self.counters.len();
        }
    }

    /// Whether this process may still have sockets on the address of a frontend without listening sockets: workers close those of UDP when
    /// they get to it. Of TCP only connections are left, which do not block the address (SO_REUSEADDR, socket(7)).
    fn holds(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) -> bool {
        let departed = self.counters.remove(&addr).unwrap_or_default();
        let alive: Vec<_> = departed.into_iter().filter(|counters| counters.strong_count() > 0).collect();
        let held = !alive.is_empty() || counters.iter().any(FrontendCounters::is_used_for_udp);
        if !alive.is_empty() {
            self.counters.insert(addr, alive);
        }
        held
    }
}

/// State of a listening socket (include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// Addresses where TCP sockets of any process in this thread's network namespace listen (proc_pid_net(5)). Empty for a family that this
/// kernel does not support.
fn listening() -> BTreeSet<SocketAddr> {
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].into_iter().flat_map(of_file).collect()
}

fn of_file(path: &str) -> Vec<SocketAddr> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let rows = BufReader::new(file).lines().skip(1).map_while(Result::ok);
    // Listening sockets come first (tcp_seq_start in net/ipv4/tcp_ipv4.c), and there may be many connections.
    rows.map_while(|row| row_of(&row)).collect()
}

/// Parses `sl local_address rem_address st ...`; `None` for a row of another state.
fn row_of(row: &str) -> Option<SocketAddr> {
    let mut fields = row.split_ascii_whitespace().skip(1);
    let local = fields.next()?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    Some(SocketAddr::new(address(ip)?, u16::from_str_radix(port, 16).ok()?))
}

/// Parses an address: 32-bit words in memory order, each printed as a number.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(8 * index..8 * index + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    if hex.len() == 8 {
        return word(0).map(|bytes| Ipv4Addr::from(bytes).into());
    }
    let mut bytes = [0; 16];
    for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        chunk.copy_from_slice(&word(index)?);
    }
    Some(IpAddr::from(bytes))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_that_listen_are_found_and_those_that_are_connected_are_not() {
        for ip in ["127.0.0.1", "0.0.0.0", "::1"] {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let addr = listener.local_addr().unwrap();
            let target = if ip == "::1" { "::1" } else { "127.0.0.1" };
            let client = TcpStream::connect((target, addr.port())).unwrap();
            let listening = listening();
            assert!(listening.contains(&addr), "{addr}");
            assert!(!listening.contains(&client.local_addr().unwrap()), "{addr}");
            drop(listener);
            assert!(!super::listening().contains(&addr), "{addr}");
        }
    }

    #[test]
    fn servers_on_every_address_are_in_the_way_of_all_frontends_of_their_port() {
        let mut claims = AddressClaims::default();
        let mut in_the_way = |server: &str, (ip, protocol): (&str, Protocol)| {
            claims.set(BTreeSet::from([server.parse().unwrap()]), BTreeSet::new());
            claims.is_reserved(FrontendAddr { ip: ip.parse().unwrap(), port: 80, protocol })
        };
        let [v4, udp, v6] =
            [("127.0.0.2", Protocol::Tcp), ("127.0.0.2", Protocol::Udp), ("::1", Protocol::Tcp)];
        for server in ["127.0.0.2:80", "0.0.0.0:80", "[::]:80"] {
            assert!(in_the_way(server, v4), "{server}");
            assert!(!in_the_way(server, udp), "{server}: servers use TCP");
        }
        assert!(in_the_way("[::]:80", v6) && in_the_way("[::1]:80", v6));
        assert!(
            !in_the_way("0.0.0.0:80", v6) && !in_the_way("127.0.0.3:80", v4) && !in_the_way("[::]:81", v4)
        );
    }
}
