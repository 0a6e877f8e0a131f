//! Bulk load: streams at full speed, from client to server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::open;
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::SINK;
use crate::sample::Moved;
use crate::serve::Receipt;

const CHUNK: usize = pattern::LONGEST;

/// Sends on `streams` connections for `duration`, then closes its half of each and waits for the server's receipts. The time
/// includes the last receipt, so bytes in buffers do not count as moved.
pub(crate) fn run(address: Ipv4Addr, streams: usize, duration: Duration) -> Result<Moved, Failure> {
    let connections: Vec<TcpStream> =
        (0..streams).map(|_| open(address, SINK)).collect::<Result<_, Failure>>()?;
    let start = Instant::now();
    let senders: Vec<_> =
        connections.into_iter().map(|stream| thread::spawn(move || send(stream, start + duration))).collect();
    let mut bytes = 0;
    for sender in senders {
        bytes += sender.join().map_err(|_| Failure::ThreadGone("sender"))??;
    }
    Ok(Moved { units: bytes, took: start.elapsed(), latencies: Vec::new(), lost: None })
}

fn send(mut stream: TcpStream, end: Instant) -> Result<u64, Failure> {
    let mut sent = 0_u64;
    while Instant::now() < end {
        sent += stream.write(pattern::at(sent, CHUNK)).during("send a stream")? as u64;
    }
    stream.shutdown(Shutdown::Write).during("close half of a stream")?;
    let mut wire = [0; Receipt::LEN];
    stream.read_exact(&mut wire).during("read the receipt after closing half of the stream")?;
    let receipt = Receipt::parse(wire);
    if receipt == (Receipt { bytes: sent, right: true }) {
        return Ok(sent);
    }
    Err(Failure::WrongAnswer(format!("{sent} bytes were sent, the server answers {receipt:?}")))
}
