//! Plays a script for UDP clients and a server on a lane. Clients and server are one thread, so it is known at every step which
//! datagrams have arrived.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use proptest::strategy::Strategy;
use sheave_dataplane::proxy_protocol::{Parsed, parse};

use crate::exchange::{CLIENTS, Datagrams, Script, Sent, Step, any_script};
use crate::pattern::Pattern;
use crate::road::{LANES, Road, Source};
use crate::run::Torture;
use crate::support::host::Host;
use crate::support::manifest::at;
use crate::support::patience::{eventually, let_pass, patience};
use crate::support::world::World;

/// Torture by datagrams.
pub(crate) struct Exchanges;

impl Torture for Exchanges {
    type Script = Script;
    /// With more lanes, datagrams would be lost between the hosts, where each CPU queues a thousand (`net.core.netdev_max_backlog`).
    const LANES: u16 = LANES / 3;
    const SCRIPTS: usize = 500;
    const SOURCES: &'static [Source] = &Source::OF_UDP;

    fn any() -> impl Strategy<Value = Script> {
        any_script()
    }

    fn attempt(world: &World, road: Road, lane: u16, script: &Script) -> (Vec<String>, String) {
        let mut play = Play::new(world, road, lane, script.seed);
        for (number, step) in script.steps.iter().enumerate() {
            if let Err(wrong) = play.step(step) {
                return (vec![format!("step {number}: {wrong}")], format!("{:?}", play.peers));
            }
        }
        (Vec::new(), String::new())
    }

    /// Datagrams that the kernel has dropped for lack of buffers, which is not the gateway's fault.
    fn hint(world: &World) -> String {
        let hosts = [("client", &world.client), ("gateway", &world.gateway), ("server", world.backend(0))];
        let of_host = |(name, host): (&str, &Host)| {
            let counters =
                ["/proc/net/snmp", "/proc/net/snmp6"].map(|path| host.run(|| fs::read_to_string(path)));
            let counters = counters.map(Result::unwrap_or_default).join("");
            let udp = counters.lines().filter(|line| line.starts_with("Udp:") || line.starts_with("Udp6"));
            format!("{name}:\n{}", udp.collect::<Vec<_>>().join("\n"))
        };
        hosts.map(of_host).join("\n")
    }
}

/// Length of the mark at the start of a datagram that is large enough, which identifies its client.
const MARK: usize = 12;
/// Length of datagrams that are sent while there is no server, which no other datagram has.
const LATE: usize = 3 * MARK + 1;

/// Last port of the clients on each lane.
static PORTS: [AtomicU16; LANES as usize] = [const { AtomicU16::new(0) }; LANES as usize];
const FIRST_PORT: u16 = 20_000;
const PORTS_OF_A_LANE: u16 = 5000;

/// A port that the lane's last clients did not have, since the gateway identifies a client by its port.
fn next_port(lane: u16) -> u16 {
    let number = PORTS[usize::from(lane)].fetch_add(1, Ordering::Relaxed) % PORTS_OF_A_LANE;
    FIRST_PORT + lane * PORTS_OF_A_LANE + number
}

struct Play<'w> {
    world: &'w World,
    road: Road,
    lane: u16,
    seed: u64,
    /// `None` during an outage.
    server: Option<UdpSocket>,
    clients: Vec<UdpSocket>,
    /// Addresses of clients as seen by the server.
    peers: Vec<Option<SocketAddr>>,
    /// Number of datagrams so far, which makes each unique.
    count: u32,
    /// Datagrams that were sent without a server, and may still arrive.
    late: HashSet<Vec<u8>>,
}

impl<'w> Play<'w> {
    fn new(world: &'w World, road: Road, lane: u16, seed: u64) -> Self {
        let mut play = Self {
            world,
            road,
            lane,
            seed,
            server: None,
            clients: Vec::new(),
            peers: vec![None; CLIENTS],
            count: 0,
            late: HashSet::new(),
        };
        play.server = Some(play.new_server());
        play.clients = (0..CLIENTS).map(|_| play.new_client()).collect();
        play
    }

    fn new_server(&self) -> UdpSocket {
        let addr = self.road.server(self.lane);
        let bind = || self.world.backend(0).run(|| UdpSocket::bind(addr));
        let socket = eventually("the server's port is free", bind);
        socket.set_read_timeout(Some(patience(3.0))).expect("a socket takes a time-out");
        socket
    }

    fn new_client(&self) -> UdpSocket {
        let to = self.road.entrance(self.lane);
        let from = |port| {
            if to.is_ipv4() {
                at(Ipv4Addr::UNSPECIFIED.into(), port)
            } else {
                at(Ipv6Addr::UNSPECIFIED.into(), port)
            }
        };
        let bind = || UdpSocket::bind(from(next_port(self.lane)));
        let socket = eventually("a port is free", || self.world.client.run(bind));
        socket.connect(to).expect("there is a route");
        socket.set_read_timeout(Some(patience(3.0))).expect("a socket takes a time-out");
        socket
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Burst(burst) => self.burst(burst)?,
            Step::Strangers(count) => self.strangers(*count)?,
            Step::Rebind { client, asks_before } => {
                if *asks_before {
                    self.ask_and_leave(*client)?;
                }
                (self.clients[*client], self.peers[*client]) = (self.new_client(), None);
            }
            Step::Outage { client, count } => self.outage(*client, *count),
            Step::Pause(time) => let_pass(*time),
        }
        self.expect_nothing_more()
    }

    /// A datagram that is unique in the script, if its size allows that.
    fn datagram(&mut self, client: usize, size: usize) -> Vec<u8> {
        self.count += 1;
        let mut bytes = Vec::with_capacity(size);
        if size >= MARK {
            bytes.extend_from_slice(&(self.seed as u32).to_le_bytes());
            bytes.extend_from_slice(&(client as u32).to_le_bytes());
            bytes.extend_from_slice(&self.count.to_le_bytes());
        }
        let pattern = Pattern::new(self.seed ^ u64::from(self.count));
        while bytes.len() < size {
            bytes.extend_from_slice(pattern.at(bytes.len() as u64, size - bytes.len()));
        }
        bytes
    }

    fn all(&mut self, client: usize, datagrams: &Datagrams) -> Vec<Vec<u8>> {
        datagrams.sizes().into_iter().map(|size| self.datagram(client, size)).collect()
    }

    fn burst(&mut self, burst: &[Sent]) -> Result<(), String> {
        let mut expected: HashMap<usize, VecDeque<Vec<u8>>> = HashMap::new();
        for sent in burst {
            let queue = expected.entry(sent.client).or_default();
            // An empty datagram from an unknown client cannot be identified.
            if self.peers[sent.client].is_none() && queue.is_empty() {
                let first = self.datagram(sent.client, 2 * MARK);
                send(
                    &self.clients[sent.client],
                    &Datagrams::Single(vec![first.len()]),
                    std::slice::from_ref(&first),
                    None,
                )?;
                queue.push_back(first);
            }
            let datagrams = self.all(sent.client, &sent.datagrams);
            send(&self.clients[sent.client], &sent.datagrams, &datagrams, None)?;
            queue.extend(datagrams);
        }
        self.arrive(expected)?;
        let mut expected: HashMap<usize, VecDeque<Vec<u8>>> = HashMap::new();
        for sent in burst {
            let answers = self.all(sent.client, &sent.answers);
            send(self.server()?, &sent.answers, &answers, self.peers[sent.client])?;
            expected.entry(sent.client).or_default().extend(answers);
        }
        for (client, answers) in expected {
            for answer in answers {
                let got =
                    receive(&self.clients[client]).map_err(|error| format!("client {client}: {error}"))?;
                compare(&answer, &got).map_err(|wrong| format!("client {client}: {wrong}"))?;
            }
        }
        Ok(())
    }

    fn server(&self) -> Result<&UdpSocket, String> {
        self.server.as_ref().ok_or_else(|| "there is no server".to_owned())
    }

    /// Checks that all of them arrive, each client's in order and from the same address.
    fn arrive(&mut self, mut expected: HashMap<usize, VecDeque<Vec<u8>>>) -> Result<(), String> {
        let mut left: usize = expected.values().map(VecDeque::len).sum();
        while left > 0 {
            let (datagram, from) = self.take().map_err(|error| format!("server: {left} to come: {error}"))?;
            let client = self.whose(&datagram, from)?;
            let next = expected.get_mut(&client).and_then(VecDeque::pop_front);
            let next =
                next.ok_or_else(|| format!("server: {} bytes too many of {client}", datagram.len()))?;
            compare(&next, &datagram).map_err(|wrong| format!("server: from client {client}: {wrong}"))?;
            left -= 1;
        }
        Ok(())
    }

    /// Receives the next datagram of the server with its sender. Skips those that were sent without a server, in this script or the
    /// previous one.
    fn take(&mut self) -> io::Result<(Vec<u8>, SocketAddr)> {
        loop {
            let (datagram, from) = self.take_any()?;
            let foreign = datagram.len() == LATE && datagram[..4] != (self.seed as u32).to_le_bytes();
            if !foreign && !self.late.remove(&datagram) {
                return Ok((datagram, from));
            }
        }
    }

    fn take_any(&self) -> io::Result<(Vec<u8>, SocketAddr)> {
        let mut buffer = vec![0; 65_536];
        let server = self.server.as_ref().ok_or(ErrorKind::NotConnected)?;
        let (size, from) = server.recv_from(&mut buffer)?;
        buffer.truncate(size);
        if self.road == Road::Gateway(Source::ProxyV2) {
            match parse(&buffer) {
                Parsed::Header { length, .. } => drop(buffer.drain(..length)),
                other => return Err(io::Error::other(format!("{other:?} in place of a header"))),
            }
        }
        Ok((buffer, from))
    }

    /// Client of a datagram: by its sender, or by its mark if the sender is new.
    fn whose(&mut self, datagram: &[u8], from: SocketAddr) -> Result<usize, String> {
        if let Some(known) = self.peers.iter().position(|peer| *peer == Some(from)) {
            return Ok(known);
        }
        let mark = datagram.get(4..8).and_then(|mark| mark.try_into().ok()).map(u32::from_le_bytes);
        let client = mark.and_then(|mark| usize::try_from(mark).ok()).filter(|client| *client < CLIENTS);
        let client = client.ok_or_else(|| format!("server: {} bytes of nobody ({from})", datagram.len()))?;
        if let Some(before) = self.peers[client].replace(from) {
            return Err(format!("server: client {client} was {before} and is {from}"));
        }
        let own = self.clients[client].local_addr().map_err(|error| error.to_string())?;
        // A gateway may use other ports even with the client's address.
        let same = match self.road {
            Road::Direct => own == from,
            Road::Gateway(Source::Transparent) => own.ip() == from.ip(),
            Road::Gateway(_) | Road::HaProxy => true,
        };
        if !same {
            return Err(format!("server: client {client} is {own} and comes as {from}"));
        }
        Ok(client)
    }

    fn strangers(&mut self, count: usize) -> Result<(), String> {
        let mut strangers = HashMap::new();
        for _ in 0..count {
            let (socket, datagram) = (self.new_client(), self.datagram(CLIENTS, 5 * MARK));
            socket.send(&datagram).map_err(|error| error.to_string())?;
            strangers.insert(datagram, socket);
        }
        for left in (0..count).rev() {
            let (datagram, from) =
                self.take().map_err(|error| format!("server: {left} more strangers: {error}"))?;
            let stranger =
                strangers.remove(&datagram).ok_or("server: a stranger's datagram is not as sent")?;
            self.server()?.send_to(&datagram, from).map_err(|error| error.to_string())?;
            let got = receive(&stranger).map_err(|error| format!("a stranger: {error}"))?;
            compare(&datagram, &got)?;
        }
        Ok(())
    }

    /// Sends a query and closes the client. The ICMP error for the answer must not affect others.
    fn ask_and_leave(&mut self, client: usize) -> Result<(), String> {
        let datagram = self.datagram(client, 2 * MARK);
        self.clients[client].send(&datagram).map_err(|error| error.to_string())?;
        self.arrive(HashMap::from([(client, VecDeque::from([datagram]))]))?;
        self.clients[client] = self.new_client();
        let to = self.peers[client].ok_or("server: nobody to answer")?;
        self.server()?.send_to(b"too late", to).map(drop).map_err(|error| error.to_string())
    }

    /// Sends without a server. Errors are ICMP errors, which any later call returns.
    fn outage(&mut self, client: usize, count: usize) {
        self.server = None;
        for _ in 0..count {
            let datagram = self.datagram(client, LATE);
            drop(self.clients[client].send(&datagram));
            self.late.insert(datagram);
            let_pass(Duration::from_millis(2));
        }
        self.server = Some(self.new_server());
        while drain(&self.clients[client]) {}
        // The gateway may have chosen an endpoint again, with a new source port.
        if self.road != Road::Direct {
            self.peers[client] = None;
        }
    }

    fn expect_nothing_more(&self) -> Result<(), String> {
        for (number, socket) in self.clients.iter().enumerate() {
            if drain(socket) {
                return Err(format!("client {number}: more than was sent"));
            }
        }
        Ok(())
    }
}

/// Sends all of them without a pause.
fn send(
    socket: &UdpSocket,
    how: &Datagrams,
    datagrams: &[Vec<u8>],
    to: Option<SocketAddr>,
) -> Result<(), String> {
    let sent = match how {
        Datagrams::Single(_) => datagrams.iter().try_for_each(|datagram| {
            let sent = match to {
                Some(to) => socket.send_to(datagram, to),
                None => socket.send(datagram),
            };
            sent.map(drop)
        }),
        Datagrams::Bundle { size, .. } => {
            let size = u16::try_from(*size).expect("segments are small");
            let to = to.map(SockaddrStorage::from);
            let (slices, control) = (datagrams.concat(), [ControlMessage::UdpGsoSegments(&size)]);
            let flags = MsgFlags::empty();
            sendmsg(socket.as_raw_fd(), &[IoSlice::new(&slices)], &control, flags, to.as_ref())
                .map(drop)
                .map_err(io::Error::from)
        }
    };
    sent.map_err(|error| format!("cannot send {how:?}: {error}"))
}

fn receive(socket: &UdpSocket) -> io::Result<Vec<u8>> {
    let (mut buffer, started) = (vec![0; 65_536], Instant::now());
    loop {
        match socket.recv(&mut buffer) {
            Ok(size) => {
                buffer.truncate(size);
                return Ok(buffer);
            }
            // Error of a datagram that was sent without a server.
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && started.elapsed() < patience(3.0) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives without waiting. Returns whether there was a datagram.
fn drain(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).expect("a socket can be nonblocking");
    let got = socket.recv(&mut [0; 16]);
    socket.set_nonblocking(false).expect("a socket can block");
    got.is_ok()
}

fn compare(right: &[u8], got: &[u8]) -> Result<(), String> {
    if right == got {
        return Ok(());
    }
    let begin = |bytes: &[u8]| format!("{} bytes {:?}", bytes.len(), &bytes[..bytes.len().min(MARK)]);
    Err(format!("{} in place of {}", begin(got), begin(right)))
}
