//! Datagram load in bundles (UDP_SEGMENT), with answers in any form: one bundle under way on each flow.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use socket2::SockRef;

use super::{LOOK_EVERY, LOST_AFTER, NUMBER, PATIENCE, not_after, wait};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::BUNDLE;
use crate::sample::Moved;

/// Shape of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Client ports.
    pub(crate) flows: usize,
    /// Bytes of a datagram.
    pub(crate) size: usize,
    /// Datagrams of a bundle; at most 64, which is also the limit of the kernel (UDP_MAX_SEGMENTS).
    pub(crate) count: usize,
}

/// Whether this kernel splits bundles, which is so since Linux 4.18.
pub(crate) fn supported() -> bool {
    // If even a socket cannot be created, the load will report it.
    let made = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
    made.map_or(true, |socket| setsockopt(&socket, UdpGsoSegment, &1200) != Err(Errno::ENOPROTOOPT))
}

/// Runs the load on one thread for `duration`. Each answered datagram counts as two, since it passed the gateway twice.
pub(crate) fn run(address: Ipv4Addr, shape: Shape, duration: Duration) -> Result<Moved, Failure> {
    let mut poll = Poll::new().during("make a poll")?;
    let mut flows = (0..shape.flows)
        .map(|index| Flow::open(address, index, shape, &poll))
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut events = Events::with_capacity(shape.flows);
    let mut buffer = vec![0; 65_536];
    let mut moved = Moved { lost: Some(0), latencies: Vec::with_capacity(1 << 20), ..Moved::default() };
    let start = Instant::now();
    let (end, limit) = (start + duration, start + duration + PATIENCE);
    let mut look = start + LOOK_EVERY;
    for flow in &mut flows {
        flow.send(&mut buffer, start)?;
    }
    while flows.iter().any(Flow::waits) {
        not_after(limit, "a bundle")?;
        wait(&mut poll, &mut events, LOOK_EVERY)?;
        for event in &events {
            let flow = &mut flows[event.token().0];
            flow.take(&mut buffer, &mut moved.latencies)?;
            let now = Instant::now();
            if !flow.waits() && now < end {
                flow.send(&mut buffer, now)?;
            }
        }
        let now = Instant::now();
        if now >= look {
            look = now + LOOK_EVERY;
            for flow in &mut flows {
                moved.lost = moved.lost.map(|lost| lost + flow.write_off(now));
                if !flow.waits() && now < end {
                    flow.send(&mut buffer, now)?;
                }
            }
        }
    }
    Ok(Moved { units: 2 * moved.latencies.len() as u64, took: start.elapsed(), ..moved })
}

struct Flow {
    socket: UdpSocket,
    index: usize,
    shape: Shape,
    /// Number of the bundle under way.
    bundle: u64,
    sent: Instant,
    /// One bit for each of its datagrams without an answer so far.
    missing: u64,
}

impl Flow {
    fn open(address: Ipv4Addr, index: usize, shape: Shape, poll: &Poll) -> Result<Self, Failure> {
        let mut socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into()).during("bind a flow")?;
        socket.connect(SocketAddr::from((address, BUNDLE))).during("connect a flow")?;
        // Room for all answers of a bundle as single datagrams.
        SockRef::from(&socket).set_recv_buffer_size(1 << 20).during("size a receive buffer")?;
        let size = i32::try_from(shape.size).unwrap_or(i32::MAX);
        setsockopt(&socket, UdpGsoSegment, &size).during("set UDP_SEGMENT (Linux 4.18)")?;
        setsockopt(&socket, UdpGroSegment, &true).during("set UDP_GRO (Linux 5.0)")?;
        poll.registry().register(&mut socket, Token(index), Interest::READABLE).during("poll a flow")?;
        Ok(Self { socket, index, shape, bundle: 0, sent: Instant::now(), missing: 0 })
    }

    fn waits(&self) -> bool {
        self.missing != 0
    }

    /// Number of the first datagram in the current bundle.
    fn first(&self) -> u64 {
        self.bundle * self.shape.count as u64
    }

    fn send(&mut self, buffer: &mut [u8], now: Instant) -> Result<(), Failure> {
        let Shape { size, count, .. } = self.shape;
        self.bundle += 1;
        for (number, datagram) in (self.first()..).zip(buffer[..size * count].chunks_exact_mut(size)) {
            let (head, rest) = datagram.split_at_mut(NUMBER);
            head.copy_from_slice(&number.to_le_bytes());
            rest.copy_from_slice(pattern::at(pattern::position(self.index, number), size - NUMBER));
        }
        (self.sent, self.missing) = (now, u64::MAX >> (64 - count));
        match self.socket.send(&buffer[..size * count]) {
            Ok(_) => Ok(()),
            // It counts as sent, and will be found lost.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error).during("send a bundle"),
        }
    }

    /// Receives and checks all available answers.
    fn take(&mut self, buffer: &mut [u8], latencies: &mut Vec<Duration>) -> Result<(), Failure> {
        let mut control = cmsg_space!(i32);
        loop {
            let (len, segment) = {
                let mut parts = [IoSliceMut::new(buffer)];
                let flags = MsgFlags::MSG_DONTWAIT;
                let received =
                    match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
                        Err(Errno::EAGAIN) => return Ok(()),
                        received => received.during("receive datagrams")?,
                    };
                let mut messages = received.cmsgs().during("read how datagrams were bundled")?;
                let segment = messages.find_map(|message| match message {
                    ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
                    _ => None,
                });
                (received.bytes, segment.unwrap_or(received.bytes))
            };
            let elapsed = self.sent.elapsed();
            for datagram in buffer[..len].chunks(segment.max(1)) {
                if self.check(datagram)? {
                    latencies.push(elapsed);
                }
            }
        }
    }

    /// Whether this is the first answer to a datagram of the current bundle.
    fn check(&mut self, datagram: &[u8]) -> Result<bool, Failure> {
        if datagram.len() != self.shape.size {
            let problem = format!("{} bytes came for {}", datagram.len(), self.shape.size);
            return Err(Failure::WrongAnswer(problem));
        }
        let (number, rest) = datagram.split_at(NUMBER);
        let number = !u64::from_le_bytes(number.try_into().unwrap_or_default());
        super::check(rest, pattern::position(self.index, number))?;
        // Otherwise its bundle was given up before.
        let place = number.checked_sub(self.first()).filter(|place| *place < self.shape.count as u64);
        let bit = place.map_or(0, |place| 1 << place);
        let awaited = self.missing & bit != 0;
        self.missing &= !bit;
        Ok(awaited)
    }

    /// Gives up datagrams that were sent too long ago.
    fn write_off(&mut self, now: Instant) -> u64 {
        if now.saturating_duration_since(self.sent) <= LOST_AFTER {
            return 0;
        }
        u64::from(std::mem::take(&mut self.missing).count_ones())
    }
}
