//! One direction of a connection: a state machine that copies bytes through the worker's scratch buffer while traffic is small, and
//! splices them through a pooled pipe while it is a stream.
//!
//! Between two events a direction holds bytes only if the receiving side did not accept them; an idle connection holds no buffer.
//! The kernel provides back-pressure: nothing is read before everything held has been written.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::pipe_pool::{PipeLease, PipePool};
use super::stream::{ReadOutcome, Stream};
use crate::limits::capacity::Capacity;

/// Maximum number of bytes that one direction moves per turn; a splice in progress may exceed it.
const BUDGET: u64 = 256 << 10;
/// Number of consecutive large reads that make a stream: splicing costs two calls per burst and a pipe, which small exchanges never
/// earn back.
const STREAM_AFTER: u8 = 4;
/// Size from which a read is large: from there on two splices take less time than two copies.
const LARGE_READ: usize = 32 << 10;
/// Number of consecutive small bursts that end a stream.
const QUIET_AFTER: u8 = 8;
/// Size below which a burst is small. With a fast receiver, a stream comes in bursts of one packet of up to 64 KiB; a higher bound
/// would make such a stream alternate between copying and splicing.
const SMALL_BURST: u64 = 16 << 10;
/// Size of the copy buffer that all connections of a worker share. 64 KiB takes what a receive queue usually holds in one call, and
/// stays within the second-level cache.
const SCRATCH: usize = 64 << 10;
/// Upper bound of one splice; the pipe's slots usually end it earlier.
const SPLICE_LENGTH: usize = 512 << 10;

/// The worker's buffers that a direction uses.
#[derive(Debug)]
pub(crate) struct RelayBuffers {
    scratch: std::cell::RefCell<Box<[u8]>>,
    pipes: Rc<PipePool>,
    capacity: Arc<Capacity>,
}

impl RelayBuffers {
    /// Creates the buffers of a worker.
    pub(super) fn new(pipes: Rc<PipePool>, capacity: Arc<Capacity>) -> Self {
        Self { scratch: vec![0; SCRATCH].into_boxed_slice().into(), pipes, capacity }
    }

    /// Trims the pipe pool if that is due.
    pub(super) fn on_time(&self, now: Instant) {
        self.pipes.on_time(now);
    }

    /// When the next trim is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.pipes.next_deadline()
    }
}

/// Stream that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The stream that bytes are read from.
    From,
    /// The stream that bytes are written to.
    To,
}

/// Error of one of the two streams.
#[derive(Debug)]
pub(super) struct SideError {
    pub(super) side: Side,
    pub(super) error: io::Error,
}

impl SideError {
    fn reading(error: io::Error) -> Self {
        Self { side: Side::From, error }
    }

    fn writing(error: io::Error) -> Self {
        Self { side: Side::To, error }
    }
}

/// Bytes that were read but not yet written.
#[derive(Debug)]
enum Held {
    Nothing,
    Bytes(Box<HeldBytes>),
    Urgent(u8),
    Pipe(Box<PipeLease>),
}

#[derive(Debug)]
struct HeldBytes {
    bytes: Box<[u8]>,
    written: usize,
}

impl Held {
    fn bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self::Bytes(Box::new(HeldBytes { bytes: bytes.into(), written: 0 }))
    }
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum DirectionState {
    /// Waits for an event of one of the streams.
    Waits,
    /// Has more to move, but other connections come first.
    BudgetSpent,
    /// The direction has ended.
    Over,
}

/// Way in which the next bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Small traffic; counts large reads in a row.
    Copy { large: u8 },
    /// A stream; counts small bursts in a row.
    Splice { quiet: u8 },
    /// The kernel refused to splice these sockets, or urgent data arrived: splice(2) stops there and does not distinguish it from
    /// the end.
    CopyOnly,
}

/// State of one direction.
#[derive(Debug)]
pub(super) struct Direction {
    held: Held,
    mode: Mode,
    burst: u64,
    moved: u64,
    /// Number of bytes at the beginning that are the gateway's, not the sender's.
    own: u64,
    ended: bool,
}

impl Direction {
    pub(super) fn new() -> Self {
        Self::beginning_with(Vec::new(), 0)
    }

    /// A direction whose receiver gets `bytes` first. The first `own` of them are the gateway's, the rest are the sender's.
    pub(super) fn beginning_with(bytes: Vec<u8>, own: usize) -> Self {
        let held = match bytes.is_empty() {
            true => Held::Nothing,
            false => Held::bytes(bytes),
        };
        Self { held, mode: Mode::Copy { large: 0 }, burst: 0, moved: 0, own: own as u64, ended: false }
    }

    /// Number of the sender's bytes written to the receiving side so far.
    pub(super) fn moved(&self) -> u64 {
        self.moved.saturating_sub(self.own)
    }

    /// Whether the sending side has finished and all its data was written.
    pub(super) fn is_over(&self) -> bool {
        self.ended && !self.holds()
    }

    /// Whether the next action is a read, which detects a reset.
    pub(super) fn reads(&self) -> bool {
        !self.ended && !self.holds()
    }

    /// Whether bytes were read that the receiving side has not accepted yet.
    pub(super) fn holds(&self) -> bool {
        !matches!(self.held, Held::Nothing)
    }

    /// Moves the bytes that can be moved now. The direction is over when `from` has ended and everything is written. A FIN is then
    /// sent to `to`, unless `last` means that the whole connection is about to be closed anyway.
    pub(super) fn advance(
        &mut self,
        from: &mut Stream,
        to: &mut Stream,
        buffers: &RelayBuffers,
        last: bool,
    ) -> Result<DirectionState, SideError> {
        let turn_ends = self.moved + BUDGET;
        if self.moved == 0 && self.holds() && to.is_writable() {
            self.join_first(from, buffers)?;
        }
        loop {
            self.flush(to, from.is_emptied()).map_err(SideError::writing)?;
            if self.holds() {
                return Ok(DirectionState::Waits);
            }
            if self.ended {
                if !last {
                    to.finish().map_err(SideError::writing)?;
                }
                return Ok(DirectionState::Over);
            }
            if self.moved >= turn_ends {
                return Ok(DirectionState::BudgetSpent);
            }
            if !from.is_readable() {
                return Ok(DirectionState::Waits);
            }
            if from.is_urgent() {
                self.mode = Mode::CopyOnly;
                if let Some(byte) = from.receive_urgent().map_err(SideError::reading)? {
                    self.held = Held::Urgent(byte);
                    continue;
                }
            }
            match self.mode {
                Mode::Splice { .. } => self.splice(from, to, buffers)?,
                Mode::Copy { .. } | Mode::CopyOnly => self.copy(from, to, buffers)?,
            }
        }
    }

    /// Joins the initial bytes with the first bytes of the sender, if any have arrived, so that both are sent together.
    fn join_first(&mut self, from: &mut Stream, buffers: &RelayBuffers) -> Result<(), SideError> {
        let Held::Bytes(held) = &mut self.held else { return Ok(()) };
        if !from.is_readable() || from.is_urgent() {
            return Ok(());
        }
        let mut scratch = buffers.scratch.borrow_mut();
        let room = scratch.len().min(buffers.capacity.bytes_to_hold());
        match from.receive(&mut scratch[..room]).map_err(SideError::reading)? {
            ReadOutcome::Bytes(count) => held.bytes = [&held.bytes, &scratch[..count]].concat().into(),
            ReadOutcome::End => self.ended = true,
            ReadOutcome::NotNow => {}
        }
        Ok(())
    }

    /// Writes the held bytes; `last` means that no more will follow them.
    fn flush(&mut self, to: &mut Stream, last: bool) -> io::Result<()> {
        while self.holds() && to.is_writable() {
            let (left, moved) = match &mut self.held {
                Held::Nothing => return Ok(()),
                Held::Bytes(held) => {
                    let moved = to.transmit(&held.bytes[held.written..], last)?;
                    held.written += moved;
                    (held.bytes.len() - held.written, moved)
                }
                Held::Urgent(byte) => match to.transmit_urgent(*byte)? {
                    true => (0, 1),
                    false => (1, 0),
                },
                Held::Pipe(lease) => drain(lease, to)?,
            };
            self.moved += moved as u64;
            if left == 0 {
                self.held = Held::Nothing;
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: &mut Stream, to: &mut Stream, buffers: &RelayBuffers) -> Result<(), SideError> {
        let mut scratch = buffers.scratch.borrow_mut();
        // What the receiver does not accept is held, so the size is bounded by the memory left for all: the receiver may never
        // read.
        let room = scratch.len().min(buffers.capacity.bytes_to_hold());
        let scratch = &mut scratch[..room];
        let count = match from.receive(scratch).map_err(SideError::reading)? {
            ReadOutcome::Bytes(count) => count,
            ReadOutcome::End => {
                self.ended = true;
                return Ok(());
            }
            ReadOutcome::NotNow => return Ok(()),
        };
        let written = to.transmit(&scratch[..count], from.is_emptied()).map_err(SideError::writing)?;
        self.moved += written as u64;
        if written < count {
            self.held = Held::bytes(&scratch[written..count]);
        }
        if let Mode::Copy { large } = self.mode {
            self.mode = match large {
                _ if count < LARGE_READ => Mode::Copy { large: 0 },
                STREAM_AFTER => Mode::Splice { quiet: 0 },
                large => Mode::Copy { large: large + 1 },
            };
        }
        Ok(())
    }

    fn splice(
        &mut self,
        from: &mut Stream,
        to: &mut Stream,
        buffers: &RelayBuffers,
    ) -> Result<(), SideError> {
        let Some(mut lease) = buffers.pipes.take() else {
            return self.copy(from, to, buffers);
        };
        let Some((pipe, level)) = lease.parts() else { return Ok(()) };
        match from.splice_in(pipe, SPLICE_LENGTH) {
            Ok(ReadOutcome::Bytes(count)) => *level = count,
            Ok(ReadOutcome::End) => return self.copy(from, to, buffers),
            Ok(ReadOutcome::NotNow) => {
                self.end_burst();
                return Ok(());
            }
            // The pipe is still empty, so the copy path can take over without losing a byte.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.mode = Mode::CopyOnly;
                return Ok(());
            }
            Err(error) => return Err(SideError::reading(error)),
        }
        let (left, moved) = drain(&mut lease, to).map_err(SideError::writing)?;
        self.moved += moved as u64;
        self.burst += moved as u64;
        if left > 0 {
            self.held = Held::Pipe(Box::new(lease));
        }
        Ok(())
    }

    /// Ends a burst because the sender has paused, and decides whether the traffic is still a stream.
    fn end_burst(&mut self) {
        if let Mode::Splice { quiet } = self.mode {
            self.mode = if self.burst >= SMALL_BURST {
                Mode::Splice { quiet: 0 }
            } else if quiet < QUIET_AFTER {
                Mode::Splice { quiet: quiet + 1 }
            } else {
                Mode::Copy { large: 0 }
            };
        }
        self.burst = 0;
    }
}

/// Writes the pipe's content; returns the number of bytes left in it and the number written.
fn drain(lease: &mut PipeLease, to: &mut Stream) -> io::Result<(usize, usize)> {
    let Some((pipe, level)) = lease.parts() else { return Ok((0, 0)) };
    let moved = to.splice_out(pipe, *level)?;
    *level -= moved;
    Ok((*level, moved))
}
