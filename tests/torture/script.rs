//! Scripts of the two ends of a connection.

use std::time::Duration;

use proptest::prelude::*;

/// Script of one connection. Neither end waits forever: each ends if the other does.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// Seed of the bytes.
    pub(crate) seed: u64,
    pub(crate) client: Part,
    pub(crate) server: Part,
    /// How long a connection waits in the server's queue.
    pub(crate) accept_after: Duration,
}

/// Script of one end, which writes and reads concurrently, each by its own list.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) writes: Vec<Write>,
    /// Whether it closes its half after the last write (`shutdown(2)`), unless it has left by then.
    pub(crate) fin: bool,
    /// Steps of reading. After the last one it reads to the end.
    pub(crate) reads: Vec<Read>,
    pub(crate) leaves: When,
    pub(crate) by: How,
    /// Size of the socket's send and receive buffers; `None` = the system's default.
    pub(crate) buffers: Option<usize>,
    /// Whether it reads urgent bytes inline (`SO_OOBINLINE`), as RFC 6093 recommends. Otherwise it does not see them.
    pub(crate) urgent_inline: bool,
}

/// Step of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// `count` bytes, in calls of `chunk` each.
    Bytes {
        count: u64,
        chunk: usize,
    },
    /// One urgent byte.
    Urgent,
    Pause(Duration),
}

/// Step of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// `count` bytes, in calls of at most `chunk`.
    Bytes {
        count: u64,
        chunk: usize,
    },
    Pause(Duration),
}

/// When an end closes its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// When all is written and the other end has closed its half.
    AtTheEnd,
    /// After its last step of reading.
    AfterReading,
    /// After its last step of writing.
    AfterWriting,
    After(Duration),
}

/// How an end closes its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// `close(2)`: with a FIN, or with a reset if there are unread bytes.
    Close,
    /// Always with a reset (`SO_LINGER` of zero).
    Reset,
}

impl Part {
    /// Number of bytes that it writes, without urgent ones.
    pub(crate) fn total(&self) -> u64 {
        self.writes.iter().map(|step| if let Write::Bytes { count, .. } = step { *count } else { 0 }).sum()
    }

    /// Number of bytes that its steps read.
    pub(crate) fn wanted(&self) -> u64 {
        self.reads.iter().map(|step| if let Read::Bytes { count, .. } = step { *count } else { 0 }).sum()
    }

    /// Whether it leaves before it knows that the other has finished.
    pub(crate) fn abandons(&self) -> bool {
        self.leaves != When::AtTheEnd
    }

    /// Positions of its urgent bytes: the number of other bytes before each.
    pub(crate) fn urgent_at(&self) -> Vec<u64> {
        let mut at = 0;
        let mut urgent = Vec::new();
        for step in &self.writes {
            match step {
                Write::Bytes { count, .. } => at += count,
                Write::Urgent => urgent.push(at),
                Write::Pause(_) => {}
            }
        }
        urgent
    }

    fn pauses(&self) -> Duration {
        let writing =
            self.writes.iter().map(|step| if let Write::Pause(time) = step { *time } else { Duration::ZERO });
        let reading =
            self.reads.iter().map(|step| if let Read::Pause(time) = step { *time } else { Duration::ZERO });
        let leaving = if let When::After(time) = self.leaves { time } else { Duration::ZERO };
        writing.chain(reading).sum::<Duration>() + leaving
    }
}

impl Script {
    /// Total of its pauses.
    pub(crate) fn pauses(&self) -> Duration {
        self.accept_after + self.client.pauses() + self.server.pauses()
    }
}

pub(crate) fn any_script() -> impl Strategy<Value = Script> {
    let accept_after = prop_oneof![5 => Just(Duration::ZERO), 1 => pause()];
    (any::<u64>().no_shrink(), any_part(), any_part(), accept_after)
        .prop_map(|(seed, client, server, accept_after)| Script { seed, client, server, accept_after })
}

fn any_part() -> impl Strategy<Value = Part> {
    let leaves = prop_oneof![
        6 => Just(When::AtTheEnd),
        2 => Just(When::AfterReading),
        1 => Just(When::AfterWriting),
        1 => pause().prop_map(When::After),
    ];
    let by = prop_oneof![Just(How::Close), Just(How::Reset)];
    let buffers = prop_oneof![8 => Just(None), 1 => (2_usize << 10..64 << 10).prop_map(Some)];
    let writes = prop::collection::vec(any_write(), 0..5);
    let reads = prop::collection::vec(any_read(), 0..4);
    let part = (writes, any::<bool>(), reads, leaves, by, buffers, any::<bool>());
    part.prop_map(|(writes, fin, reads, leaves, by, buffers, urgent_inline)| {
        // An end that waits for the other must close its half.
        let fin = fin || matches!(leaves, When::AtTheEnd | When::AfterReading);
        Part { writes: with_one_urgent(writes), fin, reads, leaves, by, buffers, urgent_inline }
    })
}

/// Keeps only the first urgent byte. A second one turns the first into an ordinary byte unless that was read by then, so the
/// observation would depend on timing.
fn with_one_urgent(writes: Vec<Write>) -> Vec<Write> {
    let mut seen = false;
    let mut keep = |step: &Write| *step != Write::Urgent || !std::mem::replace(&mut seen, true);
    writes.into_iter().filter(|step| keep(step)).collect()
}

fn any_write() -> impl Strategy<Value = Write> {
    prop_oneof![
        6 => amount().prop_map(|(count, chunk)| Write::Bytes { count, chunk }),
        2 => pause().prop_map(Write::Pause),
        1 => Just(Write::Urgent),
    ]
}

fn any_read() -> impl Strategy<Value = Read> {
    prop_oneof![
        3 => amount().prop_map(|(count, chunk)| Read::Bytes { count, chunk }),
        2 => pause().prop_map(Read::Pause),
    ]
}

/// Number of bytes, and chunk size: a few, a packet or two, a socket buffer, a stream that is spliced.
fn amount() -> impl Strategy<Value = (u64, usize)> {
    prop_oneof![
        4 => (1_u64..500, 1_usize..500),
        3 => (500_u64..20_000, 100_usize..20_000),
        2 => (20_000_u64..400_000, 1_000_usize..200_000),
        1 => (400_000_u64..3_000_000, 30_000_usize..200_000),
    ]
}

fn pause() -> impl Strategy<Value = Duration> {
    prop_oneof![4 => 0_u64..8, 2 => 8_u64..40, 1 => 40_u64..150].prop_map(Duration::from_millis)
}
