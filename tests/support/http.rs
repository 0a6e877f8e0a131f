//! HTTP/1.1 client: any request, with the answer whole or line by line, and no reuse of connections.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::patience::io_deadline;

/// Request to send.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Outgoing {
    /// Request of a user with this token, with a body unless it is null.
    pub fn new(method: &str, path: &str, token: &str, body: &Value) -> Self {
        let mut headers = vec![("Authorization".to_owned(), format!("Bearer {token}"))];
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        headers.push(("Content-Type".to_owned(), media.to_owned()));
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Self { method: method.to_owned(), path: path.to_owned(), headers, body }
    }
}

/// Response whose head has been read.
#[derive(Debug)]
pub struct Incoming {
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Debug)]
struct Body {
    stream: BufReader<TcpStream>,
    chunked: bool,
    /// Rest of the body, or of the current chunk.
    left: usize,
    ended: bool,
}

/// Whole response.
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Body as text.
    pub body: String,
}

/// Gets `path` from `server`. The calling thread must be inside the right host.
pub fn get(server: SocketAddr, path: &str) -> io::Result<Response> {
    send(server, "GET", path, &[], "")
}

/// Gets `path` on a connection that is open already.
pub fn get_on(stream: TcpStream, path: &str) -> io::Result<Response> {
    let request = Outgoing { method: "GET".to_owned(), path: path.to_owned(), ..Outgoing::default() };
    exchange_on(stream, &request)?.whole()
}

/// Sends a request with these headers and this body to `server`.
pub fn send(
    server: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Response> {
    let headers = headers.iter().chain(&[("Connection", "close")]);
    let headers = headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let (method, path, body) = (method.to_owned(), path.to_owned(), body.as_bytes().to_vec());
    exchange(server, &Outgoing { method, path, headers, body })?.whole()
}

/// Sends a request and reads the head of the response.
pub fn exchange(server: SocketAddr, request: &Outgoing) -> io::Result<Incoming> {
    exchange_on(TcpStream::connect_timeout(&server, io_deadline())?, request)
}

fn exchange_on(mut stream: TcpStream, request: &Outgoing) -> io::Result<Incoming> {
    stream.set_read_timeout(Some(io_deadline()))?;
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.path);
    if !request.headers.iter().any(|(name, _)| name == "Host") {
        head.push_str(&format!("Host: {}\r\n", stream.peer_addr()?));
    }
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", request.body.len()));
    stream.write_all(head.as_bytes())?;
    // A server that refuses a body by its length need not read it to the end.
    let written = stream.write_all(&request.body);
    let answer = Incoming::read(BufReader::new(stream));
    written.and(answer)
}

impl Incoming {
    fn whole(self) -> io::Result<Response> {
        Ok(Response { status: self.status, body: self.rest()? })
    }

    fn read(mut stream: BufReader<TcpStream>) -> io::Result<Self> {
        let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not a head: {line:?}"));
        let first = line(&mut stream)?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| bad(&first))?;
        let mut headers = Vec::new();
        loop {
            let line = line(&mut stream)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad(&line))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let found =
            |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let chunked = found("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked"));
        let left = found("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let body = Body { stream, chunked, left, ended: !chunked && left == 0 };
        Ok(Self { status, headers, body })
    }

    /// Values of a header, in order.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let name = name.to_ascii_lowercase();
        self.headers.iter().filter(|(known, _)| *known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Rest of the body.
    pub fn rest(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.body.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Rest of the body as JSON.
    pub fn json(self) -> Value {
        let text = self.rest().expect("the body comes");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
    }

    /// Next line of a watch; `None` at its end.
    pub fn line(&mut self) -> io::Result<Option<Value>> {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while self.body.read(&mut byte)? == 1 {
            if byte[0] == b'\n' {
                return Ok(Some(serde_json::from_slice(&bytes)?));
            }
            bytes.push(byte[0]);
        }
        Ok(None)
    }

    /// All lines of a watch until it ends.
    pub fn lines(mut self) -> io::Result<Vec<Value>> {
        let mut lines = Vec::new();
        while let Some(line) = self.line()? {
            lines.push(line);
        }
        Ok(lines)
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && self.chunked && !self.ended {
            let size = line(&mut self.stream)?;
            self.left = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            self.ended = self.left == 0;
        }
        if self.ended || self.left == 0 {
            return Ok(0);
        }
        let wanted = buffer.len().min(self.left);
        let read = self.stream.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        if self.left == 0 && self.chunked {
            line(&mut self.stream)?;
        }
        Ok(read)
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut text = String::new();
    if stream.read_line(&mut text)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
