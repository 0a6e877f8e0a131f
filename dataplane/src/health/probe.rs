//! Probe: one active check of one endpoint by a TCP connect, an HTTP GET, a gRPC call, or a datagram and its answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sheave_model::{Check, CheckKind, EndpointAddr};
use socket2::{Domain, Protocol as SocketProtocol, SockRef, Socket, Type};
use thiserror::Error;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use super::grpc::{self, GrpcError};
use crate::paths::Paths;
use crate::port_search::PortSearch;
use crate::sys::errnos::is_local_shortage;

/// Maximum length of the status line. The code is within the first dozen bytes.
const STATUS_LINE: usize = 256;

/// Delay from which a timeout shows nothing about the endpoint: its answer may have arrived.
const STANDSTILL: Duration = Duration::from_millis(500);

thread_local! {
    /// The thread of the probes applies tables, too, and must not wait while the kernel looks for a port.
    static PORTS: PortSearch = PortSearch::new();
}

/// Reason why a check failed.
#[derive(Debug, Error)]
pub(super) enum ProbeError {
    /// An I/O error, mostly of the connection.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The check timed out.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// This process was not scheduled while the answer may have arrived.
    #[error("the gateway stood still")]
    Standstill,
    /// The HTTP status is not from 200 to 399.
    #[error("HTTP status {0}")]
    Status(u16),
    /// The gRPC check failed.
    #[error("{0}")]
    Grpc(#[from] GrpcError),
    /// The answer differs from the expected one.
    #[error("another answer than expected")]
    Answer,
    /// The answer is not HTTP/1.
    #[error("the answer is not HTTP/1")]
    NotHttp,
}

impl ProbeError {
    /// Whether the cause is on this machine, a lack of resources or a standstill, so that the check shows nothing about
    /// the endpoint.
    pub(super) fn is_own(&self) -> bool {
        match self {
            Self::Io(error) => is_local_shortage(error),
            Self::Standstill => true,
            Self::Late(_) | Self::Status(_) | Self::Grpc(_) | Self::Answer | Self::NotHttp => false,
        }
    }
}

/// Checks `endpoint` once.
///
/// # Errors
/// Returns an error if the check fails.
pub(super) async fn run(endpoint: EndpointAddr, check: &Check, paths: &Paths) -> Result<(), ProbeError> {
    let target = EndpointAddr { port: check.port.unwrap_or(endpoint.port), ..endpoint };
    let answer = async {
        match &check.kind {
            CheckKind::Tcp => Ok(connect(target, paths).await.map(drop)?),
            CheckKind::Http { path } => get(&connect(target, paths).await?, target, path).await,
            CheckKind::Grpc { service } => {
                Ok(grpc::check(connect(target, paths).await?, target, service).await?)
            }
            CheckKind::Udp { payload, answer } => exchange(target, payload, answer, paths).await,
        }
    };
    let due = Instant::now() + check.timeout;
    match tokio::time::timeout_at(due, answer).await {
        Ok(answer) => answer,
        Err(_) if due.elapsed() > STANDSTILL => Err(ProbeError::Standstill),
        Err(_) => Err(ProbeError::Late(check.timeout)),
    }
}

/// Connects to `endpoint` from the gateway's address.
///
/// # Errors
/// Returns an error if socket(2) or connect(2) fails, or if the endpoint's path cannot be used.
pub(super) async fn connect(endpoint: EndpointAddr, paths: &Paths) -> io::Result<TcpStream> {
    let (to, kind) = (endpoint.socket_addr(), Type::STREAM.nonblocking().cloexec());
    let socket = Socket::new(Domain::for_address(to), kind, Some(SocketProtocol::TCP))?;
    paths.bind(&socket, endpoint.path)?;
    PORTS.with(|ports| {
        let now = Instant::now().into_std();
        ports.check(endpoint, now)?;
        ports.connect(&socket, None, endpoint, now)
    })?;
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    match stream.take_error()? {
        None => Ok(stream),
        Some(error) => Err(error),
    }
}

/// Sends a datagram and waits for its answer. The socket is connected, so an ICMP error ends the wait.
async fn exchange(
    endpoint: EndpointAddr,
    payload: &[u8],
    expected: &[u8],
    paths: &Paths,
) -> Result<(), ProbeError> {
    let any: IpAddr =
        if endpoint.ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    paths.bind(&SockRef::from(&socket), endpoint.path)?;
    socket.connect(endpoint.socket_addr()).await?;
    socket.send(payload).await?;
    let mut answer = vec![0; expected.len()];
    // Bytes beyond the expected length are cut off.
    let length = socket.recv(&mut answer).await?;
    if answer.get(..length) == Some(expected) { Ok(()) } else { Err(ProbeError::Answer) }
}

async fn get(stream: &TcpStream, endpoint: EndpointAddr, path: &str) -> Result<(), ProbeError> {
    let request = request(endpoint, path);
    let mut rest = request.as_bytes();
    while !rest.is_empty() {
        stream.writable().await?;
        match stream.try_write(rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    let (mut line, mut length) = ([0; STATUS_LINE], 0);
    loop {
        stream.readable().await?;
        match stream.try_read(line.get_mut(length..).unwrap_or_default()) {
            Ok(0) => return Err(ProbeError::NotHttp),
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        match status(line.get(..length).unwrap_or_default())? {
            Some(200..=399) => return Ok(()),
            Some(other) => return Err(ProbeError::Status(other)),
            None => {}
        }
    }
}

/// Builds the request. Escapes bytes that could end the request line or begin another (RFC 3986, section 2.1).
fn request(endpoint: EndpointAddr, path: &str) -> String {
    let escaped: String = path
        .bytes()
        .map(
            |byte| {
                if byte.is_ascii_graphic() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect();
    format!("GET {escaped} HTTP/1.1\r\nHost: {endpoint}\r\nUser-Agent: sheave\r\nConnection: close\r\n\r\n")
}

/// The code of a partially received status line (RFC 9112, section 4); `None` if more bytes are needed.
fn status(line: &[u8]) -> Result<Option<u16>, ProbeError> {
    const BEGIN: &[u8] = b"HTTP/1.";
    let (known, said) = (line.len().min(BEGIN.len()), line.get(..BEGIN.len()).unwrap_or(line));
    if BEGIN.get(..known) != Some(said) {
        return Err(ProbeError::NotHttp);
    }
    let Some(code) = line.get(9..12) else { return Ok(None) };
    let code = std::str::from_utf8(code).ok().and_then(|code| code.parse().ok());
    code.map(Some).ok_or(ProbeError::NotHttp)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::port_search::{BLOCK, USED_OF_BLOCK};
    use crate::sys::port_range::port_range;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "it is this thread that is to stand still")]
    async fn an_answer_that_the_gateway_was_too_late_for_is_no_failure() {
        let server = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), server.local_addr().unwrap().port());
        // Answers only after the timeout and the standstill.
        std::thread::spawn(move || {
            for mut stream in server.incoming().flatten() {
                assert_ne!(stream.read(&mut [0; 512]).unwrap(), 0);
                std::thread::sleep(STANDSTILL);
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok();
            }
        });
        let (timeout, kind) = (Duration::from_millis(200), CheckKind::Http { path: "/".into() });
        let check = Check { kind, port: None, interval: timeout, timeout, failures: 1, successes: 1 };
        let checking = tokio::spawn(async move { run(endpoint, &check, &Paths::default()).await });
        tokio::task::yield_now().await;
        std::thread::sleep(timeout + 2 * STANDSTILL);
        let error = checking.await.unwrap().unwrap_err();
        assert!(matches!(error, ProbeError::Standstill) && error.is_own(), "{error}");
    }

    #[tokio::test]
    async fn ports_are_searched_as_workers_search_them() {
        let server = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), server.local_addr().unwrap().port());
        let first = *port_range().start();
        let (mut streams, mut spared) = (Vec::new(), 0);
        for _ in 0..64 {
            let stream = connect(endpoint, &Paths::default()).await.unwrap();
            let port = stream.local_addr().unwrap().port();
            spared += u32::from((port - first) % BLOCK >= USED_OF_BLOCK);
            streams.push(stream);
        }
        // The last block may be shorter.
        assert!(spared <= 1, "{spared}");
    }

    #[test]
    fn the_status_is_read_as_soon_as_it_is_there() {
        assert!(matches!(status(b""), Ok(None)));
        assert!(matches!(status(b"HTTP/1.1 20"), Ok(None)));
        assert!(matches!(status(b"HTTP/1.0 204"), Ok(Some(204))));
        assert!(matches!(status(b"HTTP/1.1 503 Service Unavailable\r\n"), Ok(Some(503))));
        for other in [&b"SSH-2.0"[..], b"HTTP/2", b"HTTP/1.1 abc", b"X"] {
            assert!(matches!(status(other), Err(ProbeError::NotHttp)), "{other:?}");
        }
    }

    #[test]
    fn a_path_cannot_add_lines_to_the_request() {
        let endpoint = EndpointAddr::new("2001:db8::1".parse().unwrap(), 80);
        let expected = "GET /a%20b%0D%0AX HTTP/1.1\r\nHost: [2001:db8::1]:80\r\nUser-Agent: sheave\r\n\
                        Connection: close\r\n\r\n";
        assert_eq!(request(endpoint, "/a b\r\nX"), expected);
    }
}
