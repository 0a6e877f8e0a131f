//! The socket of heartbeats: what arrives is read for the membership, what the membership sends goes out.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};

use super::StartError;
use crate::async_socket::{AsyncSocket, make_room};
use crate::membership::{Datagram, Membership, ReceiveOutcome};

/// How often the port is tried, and the time between: for as long as the kernel keeps the addresses of a process that lets go of it. Tries are
/// counted, not time: a machine that stands still gives that process no time either.
const PORT_TRIES: u16 = 1500;
const PORT_PAUSE: Duration = Duration::from_millis(2);
/// How many heartbeats are read between two looks at everything else.
const BURST: usize = 1024;
/// Room for heartbeats that wait to be read: of a thousand gateways, or what somebody sends who is none.
const RECEIVE_BUFFER: usize = 4 << 20;
/// How often heartbeats are looked for if the kernel does not tell when one is there.
const UNWATCHED: Duration = Duration::from_millis(5);
/// DSCP CS6, network control (RFC 2474, 4.2.2.2), as in the field of IPv4 and IPv6: where switches and routers heed it, ordinary traffic on a
/// full link does not hold up heartbeats.
const NETWORK_CONTROL: u8 = 0xc0;
/// Priorities within this machine: `TC_PRIO_CONTROL`, or without the right to it `TC_PRIO_INTERACTIVE`. Both are in the first band of pfifo_fast and prio.
const PRIORITIES: [i32; 2] = [7, 6];
/// The largest heartbeat.
const LARGEST: usize = 64 << 10;

/// The port of heartbeats.
pub(super) struct HeartbeatSocket {
    socket: UdpSocket,
    /// Receives both families.
    v6: bool,
    /// There were heartbeats at the last look. More will come soon, and are read together then: with 50 gateways 500 arrive in a second, and to
    /// be woken by each of them costs more than to read it.
    next_look: Option<Instant>,
    buffer: Vec<u8>,
}

impl HeartbeatSocket {
    /// Opens the port at once, so that nothing that this process opens later can have it.
    ///
    /// # Errors
    /// Errors of socket(2) and bind(2).
    pub(super) fn open(port: u16) -> io::Result<Self> {
        let (socket, v6) = open(port)?;
        Ok(Self { socket, v6, next_look: None, buffer: vec![0; LARGEST] })
    }

    /// Opens the port, which may be that of a process that is about to let go of it.
    pub(super) async fn open_patiently(port: u16) -> Result<Self, StartError> {
        for _ in 1..PORT_TRIES {
            match Self::open(port) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    tokio::time::sleep(PORT_PAUSE).await;
                }
                outcome => return outcome.map_err(unusable(port)),
            }
        }
        Self::open(port).map_err(unusable(port))
    }

    /// Reads heartbeats until there is something to conclude from them, or, if `each`, until one has come. Cancel safe.
    pub(super) async fn read_until_due(&mut self, membership: &mut Membership, each: bool) {
        loop {
            // Since the last look somebody may be in doubt.
            let soon = Instant::now() + membership.reading_pause();
            match self.next_look.map(|time| time.min(soon)) {
                Some(time) => tokio::time::sleep_until(time.into()).await,
                None => self.readable().await,
            }
            let some = self.read(membership);
            if each && some || Instant::now() >= membership.next_due() {
                return;
            }
        }
    }

    /// Reads the heartbeats that are there. True if there were some.
    pub(super) fn read(&mut self, membership: &mut Membership) -> bool {
        let mut read = 0;
        while read < BURST {
            // An error is that of an earlier datagram, or there is nothing more.
            let Ok((length, from)) = self.socket.recv_from(&mut self.buffer) else { break };
            let from = SocketAddr::new(from.ip().to_canonical(), from.port());
            let bytes = self.buffer.get(..length).unwrap_or_default();
            let outcome = membership.receive(from, bytes, Instant::now());
            if outcome != ReceiveOutcome::Accepted {
                tracing::debug!(%from, ?outcome, "a heartbeat was not taken");
            }
            read += 1;
        }
        self.next_look = match read {
            0 => None,
            // There may be more already, and the kernel has no room for much.
            BURST => Some(Instant::now()),
            _ => Some(Instant::now() + membership.reading_pause()),
        };
        read > 0
    }

    /// Waits for one. It is watched only for this time.
    async fn readable(&self) {
        match AsyncSocket::watch(self.socket.as_fd()) {
            // An error is that of an earlier datagram.
            Ok(socket) => socket.ready().await.unwrap_or_default(),
            // For want of memory, or of the right to watch more.
            Err(_) => tokio::time::sleep(UNWATCHED).await,
        }
    }

    /// Sends a heartbeat. What is lost is sent again after an interval anyway.
    pub(super) fn send(&self, datagram: &Datagram) {
        for &to in &datagram.to {
            let to = match to.ip() {
                IpAddr::V4(ip) if self.v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
                _ => to,
            };
            self.socket.send_to(&datagram.bytes, to).ok();
        }
    }
}

fn unusable(port: u16) -> impl FnOnce(io::Error) -> StartError {
    StartError::system(format!("UDP port {port} for heartbeats"))
}

/// A socket for both families, where the machine has both, and whether it is one.
fn open(port: u16) -> io::Result<(UdpSocket, bool)> {
    let bind = |domain: Domain, ip: IpAddr| -> io::Result<(UdpSocket, bool)> {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        make_room(&socket, RECEIVE_BUFFER)?;
        prioritize(&socket, domain);
        socket.bind(&SocketAddr::new(ip, port).into())?;
        Ok((socket.into(), domain == Domain::IPV6))
    };
    match bind(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into())
        }
        bound => bound,
    }
}

/// Has heartbeats overtake other traffic where that is possible. Without it they are sent all the same.
fn prioritize(socket: &Socket, domain: Domain) {
    if domain == Domain::IPV6 {
        setsockopt(socket, sockopt::Ipv6TClass, &NETWORK_CONTROL.into()).ok();
    }
    // Of IPv4 addresses too, to which a socket of IPv6 sends.
    setsockopt(socket, sockopt::Ipv4Tos, &NETWORK_CONTROL.into()).ok();
    // The kernel makes a priority of the type of service, so this comes last.
    let _set = PRIORITIES.iter().any(|priority| setsockopt(socket, sockopt::Priority, priority).is_ok());
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;

    use super::*;

    #[tokio::test]
    async fn a_standstill_of_the_machine_leaves_time_for_a_process_that_lets_go_of_the_port() {
        let (former, _) = open(0).unwrap();
        let port = former.local_addr().unwrap().port();
        let lets_go = async {
            sheave_test_support::patience::let_pass(Duration::from_millis(1400));
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(former);
        };
        let (opened, ()) = tokio::join!(HeartbeatSocket::open_patiently(port), lets_go);
        assert_eq!(opened.unwrap().socket.local_addr().unwrap().port(), port);
    }

    #[test]
    fn heartbeats_have_priority() {
        let (socket, v6) = open(0).unwrap();
        let priority = getsockopt(&socket, sockopt::Priority).unwrap();
        assert!(PRIORITIES.contains(&priority), "{priority}");
        assert_eq!(getsockopt(&socket, sockopt::Ipv4Tos).unwrap(), i32::from(NETWORK_CONTROL));
        if v6 {
            assert_eq!(getsockopt(&socket, sockopt::Ipv6TClass).unwrap(), i32::from(NETWORK_CONTROL));
        }
    }
}
