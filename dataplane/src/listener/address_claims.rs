//! Claims on addresses: those where this process or this machine listens for other purposes, where other processes listen, and where
//! sockets of departed frontends are still open.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::open::{self, Claim, is_in_use};
use crate::counters::{FrontendCounters, UdpCounters};
use sheave_model::{FrontendAddr, Protocol};

/// Cause of a failed bind where no server has the address. A connection gives EADDRINUSE like a server, but ends by itself.
const USED_BY_CONNECTION: &str =
    "a connection uses the port for the moment; reserve it with net.ipv4.ip_local_reserved_ports";
/// How long servers that were read answer for failed binds, of which there may be hundreds at a time.
const SERVERS_KNOWN: Duration = Duration::from_secs(1);

/// The error of a frontend where this process itself listens.
pub(super) fn used_by_itself() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "this gateway itself listens there")
}

/// Claims, besides the table, that decide whether a frontend may have its address.
#[derive(Debug, Default)]
pub(super) struct AddressClaims {
    /// Addresses where this process listens for other purposes.
    reserved: BTreeSet<SocketAddr>,
    /// Addresses of this machine itself, where its sshd or kubelet must stay reachable.
    machine: BTreeSet<IpAddr>,
    departed: Departed,
    /// Addresses of servers by protocol, as last read; `None` if they are unknown.
    servers: HashMap<Protocol, (Instant, Option<BTreeSet<SocketAddr>>)>,
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
    pub(super) fn claim(&mut self, addr: FrontendAddr, counters: &[FrontendCounters]) -> Claim {
        if self.departed.holds(addr, counters) { Claim::Again } else { Claim::First }
    }

    /// TCP frontends among `steered` whose address is the machine's own and where another process listens now.
    pub(super) fn taken_by_others(&self, steered: impl Iterator<Item = FrontendAddr>) -> Vec<FrontendAddr> {
        let on_machine = |addr: &FrontendAddr| addr.protocol == Protocol::Tcp && self.is_machine(addr.ip);
        let mut asked = steered.filter(on_machine).peekable();
        if asked.peek().is_none() {
            return Vec::new();
        }
        let others = servers(Protocol::Tcp).unwrap_or_default();
        // bind(2) fails because of connected sockets, too; and a listener that accepts only IPv6 does not affect IPv4.
        let taken = |addr: &FrontendAddr| {
            others.iter().any(|other| addr.is_reached_at(*other))
                && open::probe(*addr, Claim::First).is_err_and(|error| is_in_use(&error))
        };
        asked.filter(taken).collect()
    }

    /// Checks that steering to `addr` takes no traffic from another process. Over TCP that is only a listener: the program does not see
    /// packets of established connections, and nothing is bound. UDP answers leave from a socket on the address.
    ///
    /// # Errors
    /// Returns the errors of [`open::probe`].
    pub(super) fn probe(&mut self, addr: FrontendAddr, claim: Claim) -> io::Result<()> {
        let probed = open::probe(addr, claim);
        let refused = addr.protocol == Protocol::Tcp && probed.as_ref().is_err_and(is_in_use);
        if refused && !self.is_known_to_be_served(addr) {
            // What was read earlier may lack a listener that is the cause.
            self.servers.remove(&addr.protocol);
            if !self.is_served(addr) {
                return Ok(());
            }
        }
        probed
    }

    /// The error for a frontend that could not be opened: EADDRINUSE only if a server of another process has the address.
    pub(super) fn cause(&mut self, addr: FrontendAddr, error: io::Error) -> io::Error {
        if !is_in_use(&error) {
            error
        } else if self.is_reserved(addr) {
            used_by_itself()
        } else if self.is_served(addr) {
            error
        } else {
            io::Error::new(io::ErrorKind::ResourceBusy, USED_BY_CONNECTION)
        }
    }

    /// Whether a server had the address, or might have it, when servers were last read.
    fn is_known_to_be_served(&mut self, addr: FrontendAddr) -> bool {
        self.servers.retain(|_, (read, _)| read.elapsed() < SERVERS_KNOWN);
        self.servers.get(&addr.protocol).is_some_and(|(_, servers)| may_serve(servers.as_ref(), addr))
    }

    /// Whether a server has the address, or may have it.
    fn is_served(&mut self, addr: FrontendAddr) -> bool {
        self.servers.retain(|_, (read, _)| read.elapsed() < SERVERS_KNOWN);
        let read = || {
            let servers = servers(addr.protocol);
            // The time that reading took does not count: it may take longer than they are known for.
            (Instant::now(), servers)
        };
        let (_, servers) = self.servers.entry(addr.protocol).or_insert_with(read);
        may_serve(servers.as_ref(), addr)
    }
}

/// Whether one of these servers has the address; it may be so if they are unknown.
fn may_serve(servers: Option<&BTreeSet<SocketAddr>>, addr: FrontendAddr) -> bool {
    servers.is_none_or(|servers| servers.iter().any(|server| addr.is_reached_at(*server)))
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

/// State of a listening TCP socket (include/net/tcp_states.h).
const LISTEN: &str = "0A";
/// State of a UDP socket that is not connected (TCP_CLOSE).
const UNCONNECTED: &str = "07";

/// Addresses where sockets of any process in this thread's network namespace serve: TCP sockets that listen, and UDP sockets that are not
/// connected (proc_pid_net(5)). `None` if they cannot be read; none of IPv6 if this kernel does not support that.
fn servers(protocol: Protocol) -> Option<BTreeSet<SocketAddr>> {
    let [ipv4, ipv6] = match protocol {
        Protocol::Tcp => ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"],
        Protocol::Udp => ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"],
    };
    let mut servers = of_file(ipv4, protocol)?;
    servers.extend(of_file(ipv6, protocol).into_iter().flatten());
    Some(servers)
}

fn of_file(path: &str, protocol: Protocol) -> Option<BTreeSet<SocketAddr>> {
    let rows = BufReader::new(File::open(path).ok()?).lines().skip(1).map_while(Result::ok);
    Some(match protocol {
        // Listening sockets come first (tcp_seq_start in net/ipv4/tcp_ipv4.c), and there may be many connections.
        Protocol::Tcp => rows.map_while(|row| row_of(&row, LISTEN)).collect(),
        Protocol::Udp => rows.filter_map(|row| row_of(&row, UNCONNECTED)).collect(),
    })
}

/// Parses `sl local_address rem_address st ...`; `None` for a row of another state.
fn row_of(row: &str, state: &str) -> Option<SocketAddr> {
    let mut fields = row.split_ascii_whitespace().skip(1);
    let local = fields.next()?;
    if fields.nth(1)? != state {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    // Some runtimes bind IPv4 addresses to IPv6 sockets.
    Some(SocketAddr::new(address(ip)?.to_canonical(), u16::from_str_radix(port, 16).ok()?))
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
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn servers_are_found_and_connections_are_not() {
        for ip in ["127.0.0.1", "0.0.0.0", "::1", "::ffff:127.0.0.1"] {
            let target = if ip == "::1" { "::1" } else { "127.0.0.1" };
            let tcp = TcpListener::bind((ip, 0)).unwrap();
            let udp = UdpSocket::bind((ip, 0)).unwrap();
            let addrs = [(Protocol::Tcp, tcp.local_addr()), (Protocol::Udp, udp.local_addr())]
                .map(|(protocol, addr)| (protocol, addr.unwrap()))
                .map(|(protocol, addr)| (protocol, SocketAddr::new(addr.ip().to_canonical(), addr.port())));
            let tcp_client = TcpStream::connect((target, addrs[0].1.port())).unwrap();
            let udp_client = UdpSocket::bind((target, 0)).unwrap();
            udp_client.connect((target, addrs[1].1.port())).unwrap();
            for ((protocol, addr), client) in
                addrs.iter().zip([tcp_client.local_addr(), udp_client.local_addr()])
            {
                assert!(servers(*protocol).unwrap().contains(addr), "{addr}/{protocol}");
                assert!(!servers(*protocol).unwrap().contains(&client.unwrap()), "{addr}/{protocol}");
            }
            drop((tcp, udp));
            for (protocol, addr) in addrs {
                let dropped = Instant::now();
                // A process that another test starts has a copy until it executes its program.
                while servers(protocol).unwrap().contains(&addr) {
                    assert!(dropped.elapsed() < Duration::from_secs(20), "{addr}/{protocol}");
                }
            }
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
