//! Witness: how long no gateway served an address, and for how long two gateways claimed one, as clients and a neighbour on the segment see it.
//!
//! Clients open a new connection to each address every 25 ms. The observer asks each gateway alone, by ARP, whether it has each IPv4 address: a
//! question to all would have the owner announce its address once more. Its own neighbours are not those of the clients.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{LinkAddr, MsgFlags, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use crate::segment::{Segment, answering, on_segment};
use crate::support::host::Host;
use crate::support::patience::let_pass;
use crate::support::world::Family;
use crate::wire::packet_address;

/// Time between two connections to an address.
const TICK: Duration = Duration::from_millis(25);
/// Clients of an address: together they begin one connection each tick, whether those before are answered or not.
const CLIENTS: u32 = 5;
/// Time between two questions to a gateway about an address.
const QUESTION: Duration = Duration::from_millis(20);
/// A gateway that does not answer for so long has given the address up.
const SILENCE: Duration = Duration::from_millis(150);

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// Neighbour that asks gateways by ARP.
pub(crate) struct Observer {
    host: Host,
    link: LinkAddr,
    gateways: Vec<Mac>,
}

impl Observer {
    /// Adds an observer to the segment, which asks the gateways with these hardware addresses.
    pub(crate) fn join(segment: &Segment, gateways: Vec<Mac>) -> Self {
        let host = segment.add_host("observer", 4);
        let link = host.run(|| packet_address("eth0"));
        Self { host, link, gateways }
    }

    /// A packet socket for ARP of the observer's interface.
    fn socket(&self) -> Socket {
        let protocol = Protocol::from(i32::from((nix::libc::ETH_P_ARP as u16).to_be()));
        let open = || Socket::new(Domain::PACKET, Type::RAW, Some(protocol));
        let socket = self.host.run(open).expect("root may open packet sockets");
        socket.set_read_timeout(Some(SILENCE)).expect("a socket takes a timeout");
        socket
    }

    /// Asks every gateway for each of the addresses, again and again.
    fn ask(&self, addresses: &[Ipv4Addr], stop: &Arc<AtomicBool>) -> JoinHandle<()> {
        let (socket, link, stop) = (self.socket(), self.link, Arc::clone(stop));
        let IpAddr::V4(own) = on_segment(Family::V4, 0, 4) else { unreachable!("it is of that family") };
        let mac = link.addr().expect("Ethernet");
        let questions =
            self.gateways.iter().flat_map(|to| addresses.iter().map(move |ip| question(mac, own, *to, *ip)));
        let questions: Vec<Vec<u8>> = questions.collect();
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for frame in &questions {
                    // A full queue loses a question, as any network may.
                    sendto(socket.as_raw_fd(), frame, &link, MsgFlags::empty()).unwrap_or_default();
                }
                let_pass(QUESTION);
            }
        })
    }

    /// Collects the answers.
    fn listen(&self, stop: &Arc<AtomicBool>) -> JoinHandle<Claims> {
        let (socket, stop) = (self.socket(), Arc::clone(stop));
        std::thread::spawn(move || {
            let mut claims = Claims::default();
            let mut frame = [0; 1514];
            while !stop.load(Ordering::Relaxed) {
                let Ok(length) = io::Read::read(&mut &socket, &mut frame) else { continue };
                if let Some((ip, mac)) = answer(&frame[..length]) {
                    claims.add(ip, mac, Instant::now());
                }
            }
            claims
        })
    }
}

/// `who-has`, to one machine.
fn question(from: Mac, sender: Ipv4Addr, to: Mac, target: Ipv4Addr) -> Vec<u8> {
    let ethernet = [&to[..], &from, &[8, 6]].concat();
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &from, &sender.octets(), &[0; 6], &target.octets()].concat();
    [ethernet, arp].concat()
}

/// The address and its owner, if the frame is an answer to somebody.
fn answer(frame: &[u8]) -> Option<(Ipv4Addr, Mac)> {
    let arp = frame.get(14..42)?;
    let to_all = frame[..6] == [0xff; 6];
    let reply = arp[..8] == [0, 1, 8, 0, 6, 4, 0, 2];
    let (mac, ip): (Mac, [u8; 4]) = (arp[8..14].try_into().ok()?, arp[14..18].try_into().ok()?);
    (reply && !to_all).then_some((ip.into(), mac))
}

/// Spans in which gateways answered that they have an address.
#[derive(Default)]
struct Claims(BTreeMap<(Ipv4Addr, Mac), Vec<(Instant, Instant)>>);

impl Claims {
    fn add(&mut self, ip: Ipv4Addr, mac: Mac, now: Instant) {
        let spans = self.0.entry((ip, mac)).or_default();
        match spans.last_mut() {
            Some((_, last)) if now - *last < SILENCE => *last = now,
            _ => spans.push((now, now)),
        }
    }

    /// The longest time for which two gateways answered for one address.
    fn longest_overlap(&self) -> Duration {
        let all = self.0.iter().flat_map(|((ip, mac), spans)| spans.iter().map(move |span| (ip, mac, span)));
        let all: Vec<_> = all.collect();
        let overlaps = all.iter().flat_map(|(ip, mac, one)| {
            let others = all.iter().filter(move |(other, of, _)| other == ip && of > mac);
            others.map(move |(_, _, two)| one.1.min(two.1).saturating_duration_since(one.0.max(two.0)))
        });
        overlaps.max().unwrap_or_default()
    }
}

/// Clients and the observer, at work.
pub(crate) struct Witness {
    stop: Arc<AtomicBool>,
    clients: Vec<(IpAddr, JoinHandle<Vec<Instant>>)>,
    asker: JoinHandle<()>,
    listener: JoinHandle<Claims>,
}

impl Witness {
    pub(crate) fn start(segment: &Segment, observer: &Observer, addresses: &[IpAddr]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let each = addresses.iter().flat_map(|ip| (0..CLIENTS).map(move |turn| (*ip, turn)));
        let clients = each.map(|(ip, turn)| {
            let stop = Arc::clone(&stop);
            (ip, segment.client.spawn(move || connect_again_and_again(ip, turn, &stop)))
        });
        let of_v4 = addresses.iter().filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None });
        let of_v4: Vec<Ipv4Addr> = of_v4.collect();
        Self {
            clients: clients.collect(),
            asker: observer.ask(&of_v4, &stop),
            listener: observer.listen(&stop),
            stop,
        }
    }

    pub(crate) fn finish(self) -> Testimony {
        self.stop.store(true, Ordering::Relaxed);
        let mut answers: BTreeMap<IpAddr, Vec<Instant>> = BTreeMap::new();
        for (ip, client) in self.clients {
            answers.entry(ip).or_default().extend(client.join().expect("clients do not panic"));
        }
        answers.values_mut().for_each(|times| times.sort_unstable());
        self.asker.join().expect("questions do not panic");
        Testimony { answers, claims: self.listener.join().expect("an observer does not panic") }
    }
}

/// When the connections of this client were answered.
fn connect_again_and_again(ip: IpAddr, turn: u32, stop: &AtomicBool) -> Vec<Instant> {
    let mut answers = Vec::new();
    let mut next = Instant::now() + TICK * turn;
    while !stop.load(Ordering::Relaxed) {
        let_pass(next.saturating_duration_since(Instant::now()));
        if answering(ip).is_ok() {
            answers.push(Instant::now());
        }
        while next < Instant::now() {
            next += TICK * CLIENTS;
        }
    }
    answers
}

/// The longest time between two answers within the span, and when it began.
fn longest_gap(times: &[Instant], from: Instant, until: Instant) -> (Duration, Instant) {
    let inside = times.iter().copied().filter(|at| (from..until).contains(at));
    let all: Vec<Instant> = [from].into_iter().chain(inside).chain([until]).collect();
    let gaps = all.windows(2).map(|pair| (pair[1] - pair[0], pair[0]));
    gaps.max().expect("a span has two ends")
}

/// What was seen.
pub(crate) struct Testimony {
    answers: BTreeMap<IpAddr, Vec<Instant>>,
    claims: Claims,
}

impl Testimony {
    /// The longest time without an answer of any of the addresses, within this span.
    pub(crate) fn longest_outage(&self, from: Instant, until: Instant) -> Duration {
        self.answers.values().map(|times| longest_gap(times, from, until).0).max().unwrap_or_default()
    }

    /// What clients and the observer saw of each address since a fault, for people.
    pub(crate) fn story(&self, from: Instant, until: Instant) -> String {
        let mut text = String::new();
        for (ip, times) in &self.answers {
            let (length, began) = longest_gap(times, from, until);
            writeln!(text, "{ip}: {length:?} without an answer from {:?} on", began - from)
                .expect("strings take text");
        }
        for ((ip, mac), spans) in &self.claims.0 {
            let since = |at: Instant| at.saturating_duration_since(from);
            let spans: Vec<_> = spans.iter().map(|(first, last)| (since(*first), since(*last))).collect();
            writeln!(text, "{ip} is claimed by {mac:x?}: {spans:?}").expect("strings take text");
        }
        text
    }

    /// The longest time for which two gateways answered for one address.
    pub(crate) fn two_owners(&self) -> Duration {
        self.claims.longest_overlap()
    }
}
