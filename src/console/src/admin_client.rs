//! Client of the admin server: one request over HTTP/1.0.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use sheave_control::text::one_line;

/// How long a running process may take to answer. A controller first queries all gateways, twice if
/// necessary.
const PATIENCE: Duration = Duration::from_secs(20);
/// Limit of an answer in bytes, larger than the routing table of any gateway.
const LONGEST: usize = 1 << 28;
/// How many bytes of an error response are shown.
const LONGEST_REFUSAL: usize = 1024;

/// Response of the admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// The status line, for people.
    pub(crate) line: String,
    pub(crate) body: String,
}

/// Gets a path with its query, on a connection of its own. In HTTP/1.0 the server ends the answer by closing.
///
/// # Errors
/// If the server does not answer, with the reason as text.
pub(crate) fn get(authority: &str, path: &str) -> Result<Reply, String> {
    let answer = request(authority, path, Instant::now() + PATIENCE).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!("timed out after {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("this is no HTTP")?;
    let line = head.lines().next().unwrap_or_default();
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("this is no HTTP")?;
    Ok(Reply { status, line: line.to_owned(), body: body.to_owned() })
}

impl Reply {
    /// Error message for an unexpected status code.
    pub(crate) fn refusal(&self) -> String {
        let mut text = format!("{}: {}", self.line, self.body.trim_end());
        one_line(&mut text, LONGEST_REFUSAL);
        text
    }
}

fn request(authority: &str, path: &str, deadline: Instant) -> io::Result<String> {
    // A socket timeout shows as `EAGAIN` (socket(7), SO_RCVTIMEO and SO_SNDTIMEO).
    let timed_out = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    };
    let mut stream = connect(authority)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {authority}\r\n\r\n").map_err(timed_out)?;
    let (mut answer, mut part) = (Vec::new(), [0; 1 << 16]);
    loop {
        // The deadline is for the whole answer, so that a server that sends a byte now and then cannot extend
        // it.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let length = match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(timed_out(error)),
        };
        answer.extend_from_slice(&part[..length]);
        if answer.len() > LONGEST {
            return Err(io::Error::other("its answer is too long for any gateway"));
        }
    }
    String::from_utf8(answer).map_err(io::Error::other)
}

/// Connects to the first address of a name that answers.
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn whoever_sends_on_without_an_end_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        // Writes until the client has gone.
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"x").is_ok() {}
        });
        let answer = request(&authority, "/", Instant::now() + Duration::from_millis(200));
        assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::TimedOut);
        server.join().unwrap();
    }

    #[test]
    fn a_refusal_is_one_line_that_people_can_read() {
        let body = "\u{1b}[31m\nsheave: all is well".to_owned() + &"x".repeat(5000);
        let reply = Reply { status: 500, line: "HTTP/1.0 500 No".to_owned(), body };
        let text = reply.refusal();
        assert!(
            text.starts_with("HTTP/1.0 500 No:  [31m sheave: all is well") && text.len() <= 1024,
            "{text}"
        );
    }
}
