//! As much of an HTTP/1.1 client as the admin server needs: one GET, the whole answer, no reuse.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::patience::io_deadline;

/// A whole answer.
pub(crate) struct Response {
    /// The status code.
    pub(crate) status: u16,
    /// The body as text.
    pub(crate) body: String,
}

/// Asks `server` for `path`. The calling thread must be inside the right host.
pub(crate) fn get(server: SocketAddr, path: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&server, io_deadline())?;
    stream.set_read_timeout(Some(io_deadline()))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not an answer: {text:?}")))
}

fn parse(text: &str) -> Option<Response> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body)? } else { body.to_owned() };
    Some(Response { status, body })
}

fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}
