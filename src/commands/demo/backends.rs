//! Small servers that answer with their name, so that users see which backend the gateway chose.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// Loopback hosts of the backends. Each serves the same port, as Pods do.
const HOSTS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(127, 0, 0, 21), Ipv4Addr::new(127, 0, 0, 22), Ipv4Addr::new(127, 0, 0, 23)];

/// Running backends, which end when dropped.
#[derive(Debug)]
pub(super) struct Backends {
    /// Addresses of the web servers.
    pub(super) web: Vec<SocketAddr>,
    /// Addresses of the UDP servers.
    pub(super) echo: Vec<SocketAddr>,
    _tasks: JoinSet<()>,
}

impl Backends {
    /// Starts one server of each kind on each host, on ports that are free on the first one.
    ///
    /// # Errors
    /// If a port cannot be bound.
    pub(super) async fn start() -> io::Result<Self> {
        let (mut web, mut echo, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        let (mut web_port, mut echo_port) = (0, 0);
        for (index, host) in HOSTS.into_iter().enumerate() {
            let listener = TcpListener::bind((host, web_port)).await?;
            web_port = listener.local_addr()?.port();
            web.push(listener.local_addr()?);
            tasks.spawn(serve_web(listener, format!("web-{}", index + 1)));
            let socket = UdpSocket::bind((host, echo_port)).await?;
            echo_port = socket.local_addr()?.port();
            echo.push(socket.local_addr()?);
            tasks.spawn(serve_echo(socket, format!("echo-{}", index + 1)));
        }
        Ok(Self { web, echo, _tasks: tasks })
    }
}

/// Answers every HTTP client with `name`. Its open connections end with it.
pub(super) async fn serve_web(listener: TcpListener, name: String) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(stream, format!("hello from {name}\n")));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one HTTP request and closes. A broken connection is ignored.
async fn answer(mut stream: TcpStream, body: String) {
    let mut request = [0; 4096];
    if stream.read(&mut request).await.is_ok_and(|count| count > 0) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close";
        let response = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(response.as_bytes()).await.ok();
    }
}

async fn serve_echo(socket: UdpSocket, name: String) {
    let mut datagram = vec![0; 65_536];
    loop {
        // An error here is an ICMP response to an earlier reply: that client has gone.
        let Ok((count, peer)) = socket.recv_from(&mut datagram).await else { continue };
        let text = String::from_utf8_lossy(&datagram[..count]);
        let reply = format!("{name} heard: {}\n", text.trim_end());
        socket.send_to(reply.as_bytes(), peer).await.ok();
    }
}
