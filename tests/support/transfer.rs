//! Verifiable byte streams: generated from a seed, sent in random chunks, hashed by the receiver.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use sha2::{Digest, Sha256};

/// Largest chunk that is written or read at once; larger than a pipe of the kernel, so that short writes
/// occur.
const LARGEST_CHUNK: usize = 200_000;

/// Stream that one side sends.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of the bytes and of the chunk sizes.
    pub seed: u64,
    /// Number of bytes.
    pub bytes: usize,
    /// When to start.
    pub start: Start,
}

/// Time at which a side starts to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once, while receiving.
    AtOnce,
    /// After the other side has closed its half, so that traffic flows on a half-closed connection.
    AfterTheirEnd,
}

/// Length and hash of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    bytes: usize,
    sha256: Vec<u8>,
}

impl Plan {
    /// Fingerprint that a receiver of the whole stream must have.
    pub fn fingerprint(self) -> Fingerprint {
        let mut hash = Sha256::new();
        self.chunks(|chunk| {
            hash.update(chunk);
            Ok(())
        })
        .expect("hashing cannot fail");
        Fingerprint { bytes: self.bytes, sha256: hash.finalize().to_vec() }
    }

    fn chunks(self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut chunk = vec![0; LARGEST_CHUNK];
        let mut left = self.bytes;
        while left > 0 {
            let size = chunk_size(&mut random).min(left);
            let chunk = chunk.get_mut(..size).expect("chunks fit");
            random.fill(chunk);
            take(chunk)?;
            left -= size;
        }
        Ok(())
    }

    fn send(self, mut stream: &TcpStream) -> io::Result<()> {
        self.chunks(|chunk| stream.write_all(chunk))?;
        stream.shutdown(Shutdown::Write)
    }
}

/// Sends by `plan` and receives until the end, concurrently if planned. Returns the fingerprint of what was
/// received.
pub fn exchange(stream: &TcpStream, plan: Plan) -> io::Result<Fingerprint> {
    if plan.start == Start::AfterTheirEnd {
        let received = receive(stream, plan.seed)?;
        plan.send(stream)?;
        return Ok(received);
    }
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| plan.send(stream));
        let received = receive(stream, plan.seed)?;
        sending.join().expect("a sender does not panic")?;
        Ok(received)
    })
}

fn receive(mut stream: &TcpStream, seed: u64) -> io::Result<Fingerprint> {
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut chunk = vec![0; LARGEST_CHUNK];
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    loop {
        let size = chunk_size(&mut random);
        let read = stream.read(chunk.get_mut(..size).expect("chunks fit"))?;
        if read == 0 {
            return Ok(Fingerprint { bytes, sha256: hash.finalize().to_vec() });
        }
        hash.update(chunk.get(..read).expect("reads fit"));
        bytes += read;
    }
}

/// Random chunk size: single bytes, small and large writes, each often enough to follow the others.
fn chunk_size(random: &mut fastrand::Rng) -> usize {
    match random.u8(..10) {
        0 => 1,
        1..=4 => random.usize(1..2000),
        5..=8 => random.usize(1..40_000),
        _ => random.usize(1..=LARGEST_CHUNK),
    }
}
