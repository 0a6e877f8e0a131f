//! Sink service: receives streams, compares them with the pattern, and answers with the number of bytes and whether they
//! were correct.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use sheave_test_support::host::Host;

use crate::failure::Failure;
use crate::pattern;
use crate::ports::SINK;
use crate::topology::SERVER;

/// Read size, which is limited by the slices of the pattern.
const CHUNK: usize = 2 * pattern::PERIOD;

/// Number of bytes of each stream that are all compared; after them, only every eighth read is. Comparing all of a fast
/// stream would distort the measurement: it costs about a tenth of a core at 20 Gbit/s.
const FULLY_CHECKED: u64 = 64 << 20;
const THEN_ONE_READ_IN: u64 = 8;

/// Answer of the sink at the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// Number of received bytes.
    pub(crate) bytes: u64,
    /// Whether all compared bytes were correct.
    pub(crate) right: bool,
}

impl Receipt {
    /// Length on the wire.
    pub(crate) const LEN: usize = 9;

    /// Parses the wire format.
    pub(crate) fn parse(wire: [u8; Self::LEN]) -> Self {
        let [right, bytes @ ..] = wire;
        Self { bytes: u64::from_le_bytes(bytes), right: right == 1 }
    }

    fn wire(self) -> [u8; Self::LEN] {
        let mut wire = [u8::from(self.right); Self::LEN];
        wire[1..].copy_from_slice(&self.bytes.to_le_bytes());
        wire
    }
}

pub(super) fn start(server: &Host) -> Result<(), Failure> {
    let listener = server.run(|| super::listen(SERVER, SINK))?;
    server.spawn(move || accept(&listener));
    Ok(())
}

fn accept(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        // A client whose stream breaks notices, since it gets no receipt.
        thread::spawn(move || drop(take(stream)));
    }
}

fn take(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut receipt = Receipt { bytes: 0, right: true };
    let mut reads = 0_u64;
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        if receipt.bytes < FULLY_CHECKED || reads.is_multiple_of(THEN_ONE_READ_IN) {
            receipt.right &= buffer[..len] == *pattern::at(receipt.bytes, len);
        }
        receipt.bytes += len as u64;
        reads += 1;
    }
    stream.write_all(&receipt.wire())
}
