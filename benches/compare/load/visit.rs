//! Single connections, each timed on its own: connect, one request, its answer, close.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::{PATIENCE, exchange};
use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::{ONCE, ONCE_LEN};

/// Threads of a crowd.
const TOGETHER: u32 = 16;

/// A connection to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// Client address; `None` lets the kernel choose.
    pub(crate) from: Option<Ipv4Addr>,
    /// Frontend.
    pub(crate) to: Ipv4Addr,
}

/// Results of visits.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    /// Time from `connect` to the complete answer.
    pub(crate) latencies: Vec<Duration>,
    /// Number of frontends that refused.
    pub(crate) refused: u64,
}

/// Makes all `visits`, one at a time.
pub(crate) fn run(visits: &[Visit]) -> Result<Visits, Failure> {
    let mut done = Visits::default();
    for (sequence, visit) in visits.iter().enumerate() {
        match visit.make(sequence as u64)? {
            Some(latency) => done.latencies.push(latency),
            None => done.refused += 1,
        }
    }
    Ok(done)
}

/// Makes a visit to `to` from each of the first `count` clients, several at a time.
pub(crate) fn crowd(to: Ipv4Addr, count: u32) -> Result<(), Failure> {
    let part = move |first| -> Result<(), Failure> {
        for number in (first..count).step_by(TOGETHER as usize) {
            let visit = Visit { from: Some(crate::topology::client(number)), to };
            if visit.make(u64::from(number))?.is_none() {
                return Err(Failure::WrongAnswer(format!("{to} refused a connection")));
            }
        }
        Ok(())
    };
    let parts: Vec<_> = (0..TOGETHER).map(|first| thread::spawn(move || part(first))).collect();
    parts.into_iter().try_for_each(|part| part.join().map_err(|_| Failure::ThreadGone("visitor"))?)
}

impl Visit {
    /// Latency; `None` if the connection was refused.
    fn make(self, sequence: u64) -> Result<Option<Duration>, Failure> {
        let target = SocketAddr::from((self.to, ONCE));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).during("make a socket")?;
        if let Some(from) = self.from {
            socket.bind(&SocketAddr::from((from, 0)).into()).during(format!("bind to {from}"))?;
        }
        socket.set_tcp_nodelay(true).during("set TCP_NODELAY")?;
        socket.set_read_timeout(Some(PATIENCE)).during("limit a read")?;
        let began = Instant::now();
        match socket.connect(&target.into()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(error).during(format!("connect to {target}")),
        }
        let mut stream = TcpStream::from(socket);
        exchange(&mut stream, pattern::position(0, sequence), ONCE_LEN)?;
        let latency = began.elapsed();
        match stream.read(&mut [0]).during("read the end")? {
            0 => Ok(Some(latency)),
            _ => Err(Failure::WrongAnswer("more bytes came than were asked for".to_owned())),
        }
    }
}
