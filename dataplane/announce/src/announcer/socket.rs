//! The socket of heartbeats.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::StartError;

/// How long the port may be that of a process that lets go of it.
const PORT_PATIENCE: Duration = Duration::from_secs(1);

/// Opens the port of heartbeats, which may be that of a process that is about to let go of it.
pub(super) async fn open_patiently(port: u16) -> Result<UdpSocket, StartError> {
    let began = Instant::now();
    loop {
        match open(port) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < PORT_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(error) => {
                return Err(StartError::System { what: format!("UDP port {port} for heartbeats"), error });
            }
        }
    }
}

/// A socket for both families, where the machine has both.
fn open(port: u16) -> io::Result<UdpSocket> {
    let bind = |domain: Domain, ip: IpAddr| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddr::new(ip, port).into())?;
        UdpSocket::from_std(socket.into())
    };
    match bind(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            bind(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into())
        }
        bound => bound,
    }
}
