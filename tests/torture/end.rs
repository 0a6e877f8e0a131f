//! One end of a connection, which performs its part of a script and observes the result.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use socket2::SockRef;

use crate::pattern::{Pattern, URGENT};
use crate::script::{How, Part, Read, When, Write};
use crate::support::patience::let_pass;

/// Observations of one end.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// Number of bytes that the kernel accepted, without urgent ones.
    pub(crate) sent: u64,
    /// Error of the write that failed, if any.
    pub(crate) send_error: Option<io::ErrorKind>,
    /// Whether it closed its half before it left.
    pub(crate) fin_sent: bool,
    /// Number of correct bytes in the right order, from the first on.
    pub(crate) received: u64,
    /// Positions of received urgent bytes: the number of other bytes before each.
    pub(crate) urgent: Vec<u64>,
    /// First incorrect byte, if any.
    pub(crate) corrupt: Option<String>,
    pub(crate) end: End,
    pub(crate) took: Duration,
}

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The reader left before any end.
    NotAwaited,
    /// A FIN.
    Clean,
    /// An error, mostly a reset.
    Error(io::ErrorKind),
    /// No end in time.
    Hang,
}

impl Observation {
    /// Observation of a connection that failed before anything could be done.
    pub(crate) fn nothing_but(error: io::ErrorKind) -> Self {
        Self {
            sent: 0,
            send_error: None,
            fin_sent: false,
            received: 0,
            urgent: Vec::new(),
            corrupt: None,
            end: End::Error(error),
            took: Duration::ZERO,
        }
    }
}

/// Performs `part` on a connected socket. `mine` is what it writes, `theirs` what it should read.
pub(crate) fn perform(
    stream: TcpStream,
    part: &Part,
    mine: Pattern,
    theirs: Pattern,
    limit: Duration,
) -> Observation {
    let started = Instant::now();
    let mut end = Performer {
        stream,
        part,
        writer: Writer {
            pattern: mine,
            step: 0,
            left: None,
            sent: 0,
            until: None,
            finished: false,
            error: None,
        },
        reader: Reader {
            pattern: theirs,
            step: 0,
            left: None,
            received: 0,
            urgent: Vec::new(),
            until: None,
            end: None,
            corrupt: None,
            buffer: vec![0; 256 << 10],
        },
    };
    end.stream.set_nonblocking(true).expect("a socket can be nonblocking");
    SockRef::from(&end.stream)
        .set_out_of_band_inline(part.urgent_inline)
        .expect("a socket takes SO_OOBINLINE");
    let in_time = end.run(started, started + limit);
    end.leave(started, in_time)
}

struct Performer<'a> {
    stream: TcpStream,
    part: &'a Part,
    writer: Writer,
    reader: Reader,
}

struct Writer {
    pattern: Pattern,
    step: usize,
    /// Rest of the current step.
    left: Option<u64>,
    sent: u64,
    until: Option<Instant>,
    finished: bool,
    error: Option<io::ErrorKind>,
}

struct Reader {
    pattern: Pattern,
    step: usize,
    left: Option<u64>,
    received: u64,
    urgent: Vec<u64>,
    until: Option<Instant>,
    end: Option<End>,
    corrupt: Option<String>,
    buffer: Vec<u8>,
}

/// Next action of a writer or reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// Its socket call.
    Io,
    /// Nothing before that time.
    Rest(Instant),
    /// Nothing more.
    Nothing,
}

impl Performer<'_> {
    /// Returns whether it ended before the deadline.
    fn run(&mut self, started: Instant, deadline: Instant) -> bool {
        loop {
            let now = Instant::now();
            let (write, read) =
                (self.writer.wants(self.part, &self.stream, now), self.reader.wants(self.part, now));
            if self.is_to_leave(started, now) {
                return true;
            }
            if now >= deadline {
                return false;
            }
            let mut wake = deadline;
            for want in [write, read] {
                if let Wants::Rest(until) = want {
                    wake = wake.min(until);
                }
            }
            if let When::After(time) = self.part.leaves {
                wake = wake.min(started + time);
            }
            self.wait(write == Wants::Io, read == Wants::Io, wake.saturating_duration_since(now));
        }
    }

    fn wait(&mut self, write: bool, read: bool, time: Duration) {
        if !write && !read {
            // An error would make poll(2) return at once, whatever it waits for.
            return let_pass(time);
        }
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLOUT, write);
        flags.set(PollFlags::POLLIN, read);
        let mut polled = [PollFd::new(self.stream.as_fd(), flags)];
        let time = PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        poll(&mut polled, time).expect("poll works");
        let found = polled[0].revents().unwrap_or(PollFlags::empty());
        let failed = found.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
        if read && (failed || found.contains(PollFlags::POLLIN)) {
            self.reader.read(self.part, &mut self.stream);
        }
        if write && (failed || found.contains(PollFlags::POLLOUT)) {
            self.writer.write(self.part, &mut self.stream);
        }
    }

    fn is_to_leave(&self, started: Instant, now: Instant) -> bool {
        let written = self.writer.finished || self.writer.error.is_some();
        match self.part.leaves {
            When::AtTheEnd => match self.reader.end {
                Some(End::Clean) => written,
                Some(_) => true,
                None => false,
            },
            When::AfterReading => self.reader.end.is_some() || self.reader.step == self.part.reads.len(),
            When::AfterWriting => written,
            When::After(time) => now >= started + time,
        }
    }

    fn leave(self, started: Instant, in_time: bool) -> Observation {
        let Self { stream, part, writer, reader } = self;
        let end = match reader.end {
            Some(end) => end,
            None if in_time => End::NotAwaited,
            None => End::Hang,
        };
        if part.by == How::Reset && part.abandons() || !in_time {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket takes SO_LINGER");
        }
        drop(stream);
        Observation {
            sent: writer.sent,
            send_error: writer.error,
            fin_sent: writer.finished && part.fin,
            received: reader.received,
            urgent: reader.urgent,
            corrupt: reader.corrupt,
            end,
            took: started.elapsed(),
        }
    }
}

impl Writer {
    fn wants(&mut self, part: &Part, stream: &TcpStream, now: Instant) -> Wants {
        if self.finished || self.error.is_some() {
            return Wants::Nothing;
        }
        if let Some(until) = self.until.filter(|until| *until > now) {
            return Wants::Rest(until);
        }
        while let Some(step) = part.writes.get(self.step) {
            match step {
                Write::Pause(time) if self.until.take().is_none() => {
                    let until = now + *time;
                    self.until = Some(until);
                    return Wants::Rest(until);
                }
                Write::Pause(_) => self.step += 1,
                Write::Urgent | Write::Bytes { .. } => return Wants::Io,
            }
        }
        self.finished = true;
        if part.fin
            && let Err(error) = stream.shutdown(Shutdown::Write)
        {
            self.error = Some(error.kind());
        }
        Wants::Nothing
    }

    fn write(&mut self, part: &Part, stream: &mut TcpStream) {
        let outcome = match part.writes.get(self.step) {
            Some(Write::Bytes { count, chunk }) => {
                let left = *self.left.get_or_insert(*count);
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(*chunk);
                stream.write(self.pattern.at(self.sent, most)).map(|written| {
                    self.sent += written as u64;
                    self.left = Some(left - written as u64);
                    left == written as u64
                })
            }
            Some(Write::Urgent) => {
                send(stream.as_raw_fd(), &[URGENT], MsgFlags::MSG_OOB | MsgFlags::MSG_NOSIGNAL)
                    .map(|_| true)
                    .map_err(io::Error::from)
            }
            Some(Write::Pause(_)) | None => return,
        };
        match outcome {
            Ok(done) if done => (self.step, self.left) = (self.step + 1, None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.error = Some(error.kind()),
        }
    }
}

impl Reader {
    fn wants(&mut self, part: &Part, now: Instant) -> Wants {
        if self.end.is_some() {
            return Wants::Nothing;
        }
        if let Some(until) = self.until.filter(|until| *until > now) {
            return Wants::Rest(until);
        }
        while let Some(Read::Pause(time)) = part.reads.get(self.step) {
            if self.until.take().is_none() {
                let until = now + *time;
                self.until = Some(until);
                return Wants::Rest(until);
            }
            self.step += 1;
        }
        Wants::Io
    }

    fn read(&mut self, part: &Part, stream: &mut TcpStream) {
        let whole = self.buffer.len();
        let (left, most) = match part.reads.get(self.step) {
            Some(Read::Bytes { count, chunk }) => {
                let left = *self.left.get_or_insert(*count);
                (Some(left), usize::try_from(left).unwrap_or(usize::MAX).min(*chunk).min(whole))
            }
            Some(Read::Pause(_)) | None => (None, whole),
        };
        match stream.read(&mut self.buffer[..most]) {
            Ok(0) => self.end = Some(End::Clean),
            Ok(count) => {
                self.check(count);
                if let Some(left) = left {
                    self.left = Some(left - count as u64);
                    if left == count as u64 {
                        (self.step, self.left) = (self.step + 1, None);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.end = Some(End::Error(error.kind())),
        }
    }

    fn check(&mut self, count: usize) {
        for (index, part) in self.buffer[..count].split(|byte| *byte == URGENT).enumerate() {
            if index > 0 {
                self.urgent.push(self.received);
            }
            let matching = self.pattern.matching(self.received, part);
            if matching < part.len() && self.corrupt.is_none() {
                let at = self.received + matching as u64;
                self.corrupt = Some(format!("byte {at} is {:#04x}", part[matching]));
            }
            self.received += part.len() as u64;
        }
    }
}
