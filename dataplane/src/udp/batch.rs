//! Datagrams of one flow as they were received, packed anew for sending: bundles stay bundles, equal datagrams that came singly are
//! gathered into one, and what the path cannot take as a bundle goes one by one. Boundaries are kept. A header may stand before each
//! datagram; it goes out as a slice of its own, so nothing is copied.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::fd::AsFd;

use crate::sys::Errno;
use crate::sys::mmsg::{self, BATCH, Outgoing, Received, Sender};

/// The longest bundle: what fits in an IPv6 packet without jumbograms, its header counted as the kernel does.
const MAX_BUNDLE: usize = 65_535 - 40 - 8;

/// The most datagrams in a bundle; `UDP_MAX_SEGMENTS` of kernels before 6.9.
const MAX_SEGMENTS: usize = 64;

/// The most datagrams in a bundle with headers: each takes two of the slices that a message may have.
const MAX_HEADED: usize = BATCH / 2;

/// What was received at a time: one datagram, or a bundle of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Payload<'b> {
    bytes: &'b [u8],
    segment: Option<NonZeroU16>,
}

impl<'b> Payload<'b> {
    /// The message as a payload. It must not have been truncated.
    pub(super) fn new(received: &Received<'b>) -> Self {
        // A bundle of one is a datagram.
        let segment = received.segment.filter(|segment| usize::from(segment.get()) < received.bytes.len());
        Self { bytes: received.bytes, segment }
    }

    /// Bytes of payload.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Datagrams in it.
    pub(super) fn datagrams(&self) -> usize {
        self.segment.map_or(1, |segment| self.bytes.len().div_ceil(usize::from(segment.get())))
    }

    /// Length of its first datagram.
    fn unit(&self) -> usize {
        self.segment.map_or(self.bytes.len(), |segment| usize::from(segment.get()))
    }
}

/// Where datagrams go, and how.
pub(super) struct SendTarget<'a, S> {
    /// Through this socket.
    pub(super) socket: &'a S,
    /// To this address, if the socket is not connected.
    pub(super) to: Option<SocketAddr>,
    /// Before each datagram; may be empty.
    pub(super) header: &'a [u8],
    /// What the path takes, as far as known.
    pub(super) limit: &'a mut BundleLimit,
}

/// The longest segment that a path takes in a bundle; learnt from refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BundleLimit(u16);

impl BundleLimit {
    /// Nothing refused yet.
    pub(super) const UNKNOWN: Self = Self(u16::MAX);
    /// No bundles at all.
    pub(super) const NONE: Self = Self(0);

    /// The segment size for bundling datagrams of `unit` bytes; none if they must go singly.
    fn segment(self, unit: usize) -> Option<NonZeroU16> {
        u16::try_from(unit).ok().filter(|unit| *unit <= self.0).and_then(NonZeroU16::new)
    }

    /// Remembers that bundles of such segments do not pass, so the next ones are not tried in vain.
    fn lower_below(&mut self, segment: NonZeroU16) {
        self.0 = segment.get() - 1;
    }
}

/// What became of some datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendStats {
    /// Handed to the kernel.
    pub(super) datagrams: usize,
    /// Their payload.
    pub(super) bytes: usize,
    /// Not taken by it.
    pub(super) lost: usize,
}

/// How far a send got.
#[derive(Debug)]
#[must_use]
pub(super) enum Sent {
    /// Each datagram is out or lost.
    All(SendStats),
    /// The peer of the socket refuses (an ICMP error came for what was sent before); from this position on nothing was
    /// sent.
    Refused(SendStats, Position),
    /// The interface that the socket is bound to is gone, and one of its name does not take its place: only a new socket
    /// gets through. From this position on nothing was sent.
    Stale(SendStats, Position),
}

/// A datagram's place in a list of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    payload: usize,
    /// Bytes of the payload that are done; more than 0 only inside a bundle.
    offset: usize,
}

/// One message of a batch: where the next begins, and what it carries. Headers are not counted.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    end: Position,
    datagrams: usize,
    bytes: usize,
    segment: Option<NonZeroU16>,
}

/// Sends the payloads from `position` on, in order. What the kernel does not take is lost, as on any link, and never holds
/// up what follows; but a full socket buffer loses the rest at once, since waiting would hold up other flows.
pub(super) fn send(
    sender: &mut Sender,
    target: SendTarget<'_, impl AsFd>,
    payloads: &[Payload<'_>],
    mut position: Position,
) -> Sent {
    let SendTarget { socket, to, header, limit } = target;
    let mut stats = SendStats::default();
    while position.payload < payloads.len() {
        let mut batch = sender.batch();
        let messages = fill(&mut batch, header, payloads, position, *limit);
        let count = batch.messages();
        match batch.send(socket, to) {
            Ok(sent) => {
                for message in &messages[..sent.min(count)] {
                    stats.datagrams += message.datagrams;
                    stats.bytes += message.bytes;
                    position = message.end;
                }
            }
            Err(error) => match (Failure::of(&error, &messages[0]), messages[0].segment) {
                (Failure::Interrupted, _) => {}
                (Failure::Bundle, Some(segment)) => limit.lower_below(segment),
                (Failure::PeerRefuses, _) if to.is_none() => return Sent::Refused(stats, position),
                (Failure::Stale, _) if to.is_none() => return Sent::Stale(stats, position),
                (Failure::NoRoom, _) => {
                    stats.lost += datagrams_from(payloads, position);
                    break;
                }
                (Failure::Bundle | Failure::PeerRefuses | Failure::Stale | Failure::Other, _) => {
                    stats.lost += messages[0].datagrams;
                    position = messages[0].end;
                }
            },
        }
    }
    Sent::All(stats)
}

/// Datagrams from `position` on.
pub(super) fn datagrams_from(payloads: &[Payload<'_>], position: Position) -> usize {
    let Some((first, others)) = payloads.get(position.payload..).and_then(|rest| rest.split_first()) else {
        return 0;
    };
    let done = if position.offset == 0 { 0 } else { position.offset / first.unit() };
    first.datagrams() - done + others.iter().map(Payload::datagrams).sum::<usize>()
}

/// Why the kernel did not take the first message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Failure {
    /// A signal came first.
    Interrupted,
    /// The socket's buffer is full.
    NoRoom,
    /// Not as a bundle; perhaps singly.
    Bundle,
    /// An ICMP error for an earlier datagram, or no way to the peer.
    PeerRefuses,
    /// Routes lead through another interface than the socket's, which is gone (ENODEV of `ip_route_output_key_hash_rcu` in
    /// net/ipv4/route.c).
    Stale,
    /// Anything else; concerns this message only.
    Other,
}

impl Failure {
    fn of(error: &io::Error, message: &Message) -> Self {
        match error.kind() {
            io::ErrorKind::Interrupted => Self::Interrupted,
            io::ErrorKind::WouldBlock => Self::NoRoom,
            _ if error.raw_os_error() == Some(Errno::ENODEV as i32) => Self::Stale,
            _ if message.segment.is_some() && mmsg::refuses_bundle(error) => Self::Bundle,
            _ if crate::sys::errnos::is_peer_unreachable(error) => Self::PeerRefuses,
            _ => Self::Other,
        }
    }
}

/// Fills the batch with messages from `position` on; the answer describes as many as the batch has.
fn fill<'b>(
    batch: &mut Outgoing<'_, 'b>,
    header: &'b [u8],
    payloads: &[Payload<'b>],
    mut position: Position,
    limit: BundleLimit,
) -> [Message; BATCH] {
    let mut messages = [Message::default(); BATCH];
    for slot in &mut messages {
        if position.payload >= payloads.len() || !batch.has_room() {
            break;
        }
        *slot = next_message(header, payloads, position, limit, |bytes| batch.push(bytes));
        batch.end_message(slot.segment);
        position = slot.end;
    }
    messages
}

/// The message that begins at `position`, its bytes given to `push` in order.
fn next_message<'b>(
    header: &'b [u8],
    payloads: &[Payload<'b>],
    position: Position,
    limit: BundleLimit,
    push: impl FnMut(&'b [u8]),
) -> Message {
    let segment = limit.segment(header.len() + payloads[position.payload].unit());
    match segment {
        Some(segment) if header.is_empty() => gather_payloads(payloads, position, segment, push),
        _ => gather_datagrams(header, payloads, position, segment, push),
    }
}

/// Payloads as they are, for as long as they fit into one bundle of such segments.
fn gather_payloads<'b>(
    payloads: &[Payload<'b>],
    position: Position,
    segment: NonZeroU16,
    mut push: impl FnMut(&'b [u8]),
) -> Message {
    let unit = usize::from(segment.get());
    let mut message = Message::default();
    let mut offset = position.offset;
    let mut next = position.payload;
    while let Some(payload) = payloads.get(next) {
        let bytes = &payload.bytes[offset..];
        if next > position.payload && !joins(&message, unit, payload) {
            break;
        }
        push(bytes);
        message.bytes += bytes.len();
        message.datagrams += bytes.len().div_ceil(unit);
        offset = 0;
        next += 1;
        // Only the last datagram of a bundle may be shorter than the others.
        if !bytes.len().is_multiple_of(unit) || next - position.payload == BATCH {
            break;
        }
    }
    message.end = Position { payload: next, offset: 0 };
    message.segment = (message.datagrams > 1).then_some(segment);
    message
}

/// Whether `payload` can follow a message of full datagrams of `unit` bytes.
fn joins(message: &Message, unit: usize, payload: &Payload<'_>) -> bool {
    let alike = payload.unit() == unit || (payload.segment.is_none() && payload.len() < unit);
    let fits = message.bytes + payload.len() <= MAX_BUNDLE;
    alike && fits && payload.len() > 0 && message.datagrams + payload.datagrams() <= MAX_SEGMENTS
}

/// Datagrams cut out of their payloads, the header before each, for as long as they fit into one bundle of such segments;
/// just one if there must be no bundle.
fn gather_datagrams<'b>(
    header: &'b [u8],
    payloads: &[Payload<'b>],
    position: Position,
    segment: Option<NonZeroU16>,
    mut push: impl FnMut(&'b [u8]),
) -> Message {
    let unit = payloads[position.payload].unit();
    let most = if segment.is_some() { MAX_HEADED } else { 1 };
    let mut message = Message { end: position, ..Message::default() };
    while message.datagrams < most
        && let Some((datagram, end)) = datagram_at(payloads, message.end)
    {
        let length = message.bytes + datagram.len() + header.len() * (message.datagrams + 1);
        if message.datagrams > 0 && (datagram.len() > unit || length > MAX_BUNDLE) {
            break;
        }
        if !header.is_empty() {
            push(header);
        }
        push(datagram);
        message.bytes += datagram.len();
        message.datagrams += 1;
        message.end = end;
        // Only the last datagram of a bundle may be shorter than the others.
        if datagram.len() < unit {
            break;
        }
    }
    message.segment = segment.filter(|_| message.datagrams > 1);
    message
}

/// The datagram at `position`, and where the next one is.
fn datagram_at<'b>(payloads: &[Payload<'b>], position: Position) -> Option<(&'b [u8], Position)> {
    let payload = payloads.get(position.payload)?;
    let rest = &payload.bytes[position.offset..];
    let datagram = &rest[..rest.len().min(payload.unit())];
    let end = if datagram.len() == rest.len() {
        Position { payload: position.payload + 1, offset: 0 }
    } else {
        Position { offset: position.offset + datagram.len(), ..position }
    };
    Some((datagram, end))
}

#[cfg(test)]
mod tests;
