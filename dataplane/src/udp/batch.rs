//! Datagrams of one flow as they were received, packed anew for sending: bundles stay bundles, equal datagrams that
//! came singly are gathered into one, and what the path cannot take as a bundle goes one by one. Boundaries are kept.
//!
//! It must not know flows, tables or which of the two directions it serves.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::fd::AsFd;

use crate::sys::mmsg::{self, BATCH, Outgoing, Received, Sender};

/// The longest bundle: what fits in an IPv6 packet without jumbograms, its header counted as the kernel does.
const MAX_BUNDLE: usize = 65_535 - 40 - 8;

/// The most datagrams in a bundle; `UDP_MAX_SEGMENTS` of kernels before 6.9.
const MAX_SEGMENTS: usize = 64;

/// What was received at a time: one datagram, or a bundle of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece<'b> {
    bytes: &'b [u8],
    segment: Option<NonZeroU16>,
}

impl<'b> Piece<'b> {
    /// The message as a piece. It must not have been truncated.
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
pub(super) struct Tally {
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
    All(Tally),
    /// The peer of the socket refuses (an ICMP error came for what was sent before); from this position on nothing was
    /// sent.
    Refused(Tally, Position),
}

/// A datagram's place in a list of pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    piece: usize,
    /// Bytes of the piece that are done; more than 0 only inside a bundle.
    offset: usize,
}

/// One message of a batch: where it begins, where the next does, and what it carries.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    end: Position,
    datagrams: usize,
    bytes: usize,
    segment: Option<NonZeroU16>,
}

/// Sends the pieces from `position` on, in order. What the kernel does not take is lost, as on any link, and never holds
/// up what follows; but a full socket buffer loses the rest at once, since waiting would hold up other flows.
pub(super) fn send(
    sender: &mut Sender,
    socket: impl AsFd,
    to: Option<SocketAddr>,
    pieces: &[Piece<'_>],
    mut position: Position,
    limit: &mut BundleLimit,
) -> Sent {
    let mut tally = Tally::default();
    while position.piece < pieces.len() {
        let mut batch = sender.batch();
        let messages = fill(&mut batch, pieces, position, *limit);
        let count = batch.messages();
        match batch.send(socket.as_fd(), to) {
            Ok(sent) => {
                for message in &messages[..sent.min(count)] {
                    tally.datagrams += message.datagrams;
                    tally.bytes += message.bytes;
                    position = message.end;
                }
            }
            Err(error) => match (Failure::of(&error, &messages[0]), messages[0].segment) {
                (Failure::Interrupted, _) => {}
                (Failure::Bundle, Some(segment)) => limit.lower_below(segment),
                (Failure::PeerRefuses, _) if to.is_none() => return Sent::Refused(tally, position),
                (Failure::NoRoom, _) => {
                    tally.lost += datagrams_from(pieces, position);
                    break;
                }
                (Failure::Bundle | Failure::PeerRefuses | Failure::Other, _) => {
                    tally.lost += messages[0].datagrams;
                    position = messages[0].end;
                }
            },
        }
    }
    Sent::All(tally)
}

/// Datagrams from `position` on.
pub(super) fn datagrams_from(pieces: &[Piece<'_>], position: Position) -> usize {
    let Some((first, others)) = pieces.get(position.piece..).and_then(|rest| rest.split_first()) else {
        return 0;
    };
    let done = if position.offset == 0 { 0 } else { position.offset / first.unit() };
    first.datagrams() - done + others.iter().map(Piece::datagrams).sum::<usize>()
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
    /// Anything else; concerns this message only.
    Other,
}

impl Failure {
    fn of(error: &io::Error, message: &Message) -> Self {
        match error.kind() {
            io::ErrorKind::Interrupted => Self::Interrupted,
            io::ErrorKind::WouldBlock => Self::NoRoom,
            _ if message.segment.is_some() && mmsg::refuses_bundle(error) => Self::Bundle,
            _ if super::socket::tells_of_peer(error) => Self::PeerRefuses,
            _ => Self::Other,
        }
    }
}

/// Fills the batch with messages from `position` on; the answer describes as many as the batch has.
fn fill<'b>(
    batch: &mut Outgoing<'_, 'b>,
    pieces: &[Piece<'b>],
    mut position: Position,
    limit: BundleLimit,
) -> [Message; BATCH] {
    let mut messages = [Message::default(); BATCH];
    for slot in &mut messages {
        if position.piece >= pieces.len() || !batch.has_room() {
            break;
        }
        *slot = next_message(pieces, position, limit, |bytes| batch.push(bytes));
        batch.end_message(slot.segment);
        position = slot.end;
    }
    messages
}

/// The message that begins at `position`, its bytes given to `push` in order.
fn next_message<'b>(
    pieces: &[Piece<'b>],
    position: Position,
    limit: BundleLimit,
    mut push: impl FnMut(&'b [u8]),
) -> Message {
    let first = &pieces[position.piece];
    let unit = first.unit();
    let Some(segment) = limit.segment(unit) else {
        return single_datagram(first, position, push);
    };
    let mut message = Message::default();
    let mut offset = position.offset;
    let mut next = position.piece;
    while let Some(piece) = pieces.get(next) {
        let bytes = &piece.bytes[offset..];
        if next > position.piece && !joins(&message, unit, piece) {
            break;
        }
        push(bytes);
        message.bytes += bytes.len();
        message.datagrams += bytes.len().div_ceil(unit);
        offset = 0;
        next += 1;
        // Only the last datagram of a bundle may be shorter than the others.
        if !bytes.len().is_multiple_of(unit) || next - position.piece == BATCH {
            break;
        }
    }
    message.end = Position { piece: next, offset: 0 };
    message.segment = (message.datagrams > 1).then_some(segment);
    message
}

/// Whether `piece` can follow a message of full datagrams of `unit` bytes.
fn joins(message: &Message, unit: usize, piece: &Piece<'_>) -> bool {
    let alike = piece.unit() == unit || (piece.segment.is_none() && piece.len() < unit);
    let fits = message.bytes + piece.len() <= MAX_BUNDLE;
    alike && fits && piece.len() > 0 && message.datagrams + piece.datagrams() <= MAX_SEGMENTS
}

/// The one datagram at `position`.
fn single_datagram<'b>(first: &Piece<'b>, position: Position, mut push: impl FnMut(&'b [u8])) -> Message {
    let rest = &first.bytes[position.offset..];
    let datagram = &rest[..rest.len().min(first.unit())];
    push(datagram);
    let end = if datagram.len() == rest.len() {
        Position { piece: position.piece + 1, offset: 0 }
    } else {
        Position { offset: position.offset + datagram.len(), ..position }
    };
    Message { end, datagrams: 1, bytes: datagram.len(), segment: None }
}

#[cfg(test)]
mod tests;
