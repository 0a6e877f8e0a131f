//! HTTP/1.1 client for the admin server and WebDriver: one request, the whole response, no reuse.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::patience::io_deadline;

/// Whole response.
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

/// Gets `path` from `server`. The calling thread must be inside the right host.
pub fn get(server: SocketAddr, path: &str) -> io::Result<Response> {
    send(server, "GET", path, &[("Host", &server.to_string())], "")
}

/// Sends a request with these headers and this body to `server`.
pub fn send(
    server: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&server, io_deadline())?;
    stream.set_read_timeout(Some(io_deadline()))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    request.extend(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(invalid(&head));
        }
    }
    // Not all servers close when requested to.
    let mut body = String::new();
    match header(&head, "content-length").map(str::parse) {
        Some(Ok(length)) => reader.take(length).read_to_string(&mut body)?,
        _ => reader.read_to_string(&mut body)?,
    };
    parse(&head, &body).ok_or_else(|| invalid(&(head + &body)))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer: {text:?}"))
}

fn header<'t>(head: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn parse(head: &str, body: &str) -> Option<Response> {
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = header(head, "transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked"));
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
