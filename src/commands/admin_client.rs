//! A client of the admin server: one request over HTTP/1.0.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// How long a running process may take to answer: a controller asks all gateways first, twice if need be.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// The status line, for people.
    pub(crate) line: String,
    /// The body.
    pub(crate) body: String,
}

/// Gets a path with its query. One request on one connection: HTTP/1.0 ends the answer by closing.
///
/// # Errors
/// What keeps the gateway from answering, as text.
pub(crate) fn get(authority: &str, path: &str) -> Result<Reply, String> {
    let answer = request(authority, path).map_err(|error| match error.kind() {
        // The kernel calls a receive timeout `EAGAIN` (socket(7), SO_RCVTIMEO).
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("timed out after {} s", PATIENCE.as_secs())
        }
        _ => error.to_string(),
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("this is no HTTP")?;
    let line = head.lines().next().unwrap_or_default();
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("this is no HTTP")?;
    Ok(Reply { status, line: line.to_owned(), body: body.to_owned() })
}

impl Reply {
    /// The error for an unexpected status code.
    pub(crate) fn refusal(&self) -> String {
        format!("{}: {}", self.line, self.body.trim_end())
    }
}

fn request(authority: &str, path: &str) -> io::Result<String> {
    let mut stream = connect(authority)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {authority}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The first of a name's addresses that answers.
#[expect(clippy::disallowed_methods, reason = "a command that asks once and ends may wait for a name")]
fn connect(authority: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
