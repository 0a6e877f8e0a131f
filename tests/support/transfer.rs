//! Byte streams that prove themselves: made from a seed, cut into random chunks, hashed by the receiver.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use sha2::{Digest, Sha256};

/// The largest chunk written or read at once; beyond one pipe of the kernel, so that short writes happen.
const LARGEST_CHUNK: usize = 200_000;

/// What one side sends.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides the bytes and how they are cut.
    pub seed: u64,
    /// How many.
    pub bytes: usize,
    /// When to start.
    pub start: Start,
}

/// When a side starts to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At once, while receiving.
    AtOnce,
    /// After the other side's end: only then is the connection half closed under traffic.
    AfterTheirEnd,
}

/// Length and hash of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    bytes: usize,
    sha256: Vec<u8>,
}

impl Plan {
    /// What a receiver of the whole stream must have seen.
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

/// Sends by `plan` and receives to the end, both at once if the plan says so. Returns what was received.
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

/// Single bytes, small writes and large ones, each often enough to meet the others.
fn chunk_size(random: &mut fastrand::Rng) -> usize {
    match random.u8(..10) {
        0 => 1,
        1..=4 => random.usize(1..2000),
        5..=8 => random.usize(1..40_000),
        _ => random.usize(1..=LARGEST_CHUNK),
    }
}
