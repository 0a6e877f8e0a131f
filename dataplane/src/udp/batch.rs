//! Packing of a flow's received datagrams for sending. Bundles stay bundles, consecutive datagrams of equal size are gathered into
//! one, and what the path does not take as a bundle is sent singly. Boundaries are preserved. A header may precede each datagram; it
//! is sent as a separate slice, so nothing is copied.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::fd::AsFd;

use crate::sys::Errno;
use crate::sys::mmsg::{self, BATCH, Outgoing, Received, Sender};

/// Maximum length of a bundle: what fits an IPv6 packet without jumbograms, its header counted as the kernel does.
const MAX_BUNDLE: usize = 65_535 - 40 - 8;

/// Maximum number of datagrams in a bundle; `UDP_MAX_SEGMENTS` of kernels before 6.9.
const MAX_SEGMENTS: usize = 64;

/// Maximum number of datagrams in a bundle with headers: each takes two of the slices that a message may have.
const MAX_HEADED: usize = BATCH / 2;

/// One received message: a datagram, or a bundle of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Payload<'b> {
    bytes: &'b [u8],
    segment: Option<NonZeroU16>,
}

impl<'b> Payload<'b> {
    /// The message as a payload. It must not have been truncated.
    pub(super) fn new(received: &Received<'b>) -> Self {
        // A bundle of one datagram is no bundle.
        let segment = received.segment.filter(|segment| usize::from(segment.get()) < received.bytes.len());
        Self { bytes: received.bytes, segment }
    }

    /// Length of the payload in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Number of datagrams.
    pub(super) fn datagrams(&self) -> usize {
        self.segment.map_or(1, |segment| self.bytes.len().div_ceil(usize::from(segment.get())))
    }

    /// Length of the first datagram.
    fn unit(&self) -> usize {
        self.segment.map_or(self.bytes.len(), |segment| usize::from(segment.get()))
    }
}

/// Destination of datagrams.
pub(super) struct SendTarget<'a, S> {
    /// Socket to send from.
    pub(super) socket: &'a S,
    /// Destination address; `None` if the socket is connected.
    pub(super) to: Option<SocketAddr>,
    /// Header before each datagram; may be empty.
    pub(super) header: &'a [u8],
    /// Bundles that the path accepts, as far as known.
    pub(super) limit: &'a mut BundleLimit,
}

/// Maximum segment size that a path accepts in a bundle; learned from refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BundleLimit(u16);

impl BundleLimit {
    /// No refusal is known.
    pub(super) const UNKNOWN: Self = Self(u16::MAX);
    /// No bundles at all.
    pub(super) const NONE: Self = Self(0);

    /// The segment size for bundling datagrams of `unit` bytes; `None` if they must be sent singly.
    fn segment(self, unit: usize) -> Option<NonZeroU16> {
        u16::try_from(unit).ok().filter(|unit| *unit <= self.0).and_then(NonZeroU16::new)
    }

    /// Records that bundles of such segments were refused, so that the next ones are not tried in vain.
    fn lower_below(&mut self, segment: NonZeroU16) {
        self.0 = segment.get() - 1;
    }
}

/// Outcome of sending some datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendStats {
    /// Number of datagrams accepted by the kernel.
    pub(super) datagrams: usize,
    /// Payload bytes of those.
    pub(super) bytes: usize,
    /// Number of datagrams that the kernel did not accept.
    pub(super) lost: usize,
}

/// Result of sending payloads.
#[derive(Debug)]
#[must_use]
pub(super) enum Sent {
    /// Every datagram was sent or lost.
    All(SendStats),
    /// The socket's peer is unreachable: an ICMP error arrived for an earlier datagram. Nothing was sent from this position on.
    Refused(SendStats, Position),
    /// The interface that the socket is bound to is gone. Another of its name does not replace it, so a new socket is needed.
    /// Nothing was sent from this position on.
    Stale(SendStats, Position),
}

/// Position of a datagram in a list of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    payload: usize,
    /// Number of bytes of the payload already sent; more than 0 only inside a bundle.
    offset: usize,
}

/// One message of a batch: its end, and its contents without headers.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    end: Position,
    datagrams: usize,
    bytes: usize,
    segment: Option<NonZeroU16>,
}

/// Sends the payloads from `position` on, in order. A message that the kernel does not accept is lost, as on any link, and does not
/// delay the next ones. If the socket buffer is full, the rest is lost at once, since waiting would delay other flows.
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

/// Number of datagrams from `position` on.
pub(super) fn datagrams_from(payloads: &[Payload<'_>], position: Position) -> usize {
    let Some((first, others)) = payloads.get(position.payload..).and_then(|rest| rest.split_first()) else {
        return 0;
    };
    let done = if position.offset == 0 { 0 } else { position.offset / first.unit() };
    first.datagrams() - done + others.iter().map(Payload::datagrams).sum::<usize>()
}

/// Reason why the kernel did not accept the first message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Failure {
    /// A signal interrupted the call.
    Interrupted,
    /// The socket's buffer is full.
    NoRoom,
    /// The path does not accept it as a bundle, perhaps singly.
    Bundle,
    /// An ICMP error for an earlier datagram, or no route to the peer.
    PeerRefuses,
    /// The route leads through another interface than the socket's, which is gone (ENODEV of `ip_route_output_key_hash_rcu` in
    /// net/ipv4/route.c).
    Stale,
    /// Any other error; concerns this message only.
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

/// Fills the batch with messages from `position` on, and returns their descriptions.
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

/// Builds the message that begins at `position`, and passes its slices to `push` in order.
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

/// Gathers whole payloads while they fit into one bundle of this segment size.
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

/// Gathers single datagrams, each with the header before it, while they fit into one bundle of this segment size; only one without a
/// segment size.
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

/// The datagram at `position`, and the position of the next one.
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
