//! Server host, which answers the loads. Its threads serve until the process ends.

mod bundle;
mod datagram;
mod echo;
mod sink;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use sheave_test_support::host::Host;
use socket2::{Domain, Protocol, Socket, Type};

use crate::failure::{During, Failure};
use crate::ports::BACKLOG;
use crate::topology::SERVER;

pub(crate) use echo::last_client;
pub(crate) use sink::Receipt;

/// Receive buffer that holds all datagrams under way, so that the server's queue never loses one.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Starts all services, each on `threads` threads, and returns once they listen.
pub(crate) fn start(server: &Host, threads: usize) -> Result<(), Failure> {
    sink::start(server)?;
    for _ in 0..threads {
        echo::start(server)?;
        datagram::start(server)?;
        bundle::start(server)?;
    }
    Ok(())
}

/// Binds a UDP socket on the server's address, shared with other threads. Must be called on the server.
fn bind(port: u16) -> Result<UdpSocket, Failure> {
    let what = || format!("bind port {port}");
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).during(what())?;
    socket.set_reuse_port(true).during(what())?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER).during(what())?;
    socket.bind(&SocketAddr::from((SERVER, port)).into()).during(what())?;
    Ok(socket.into())
}

/// A listener. To be called on the server.
fn listen(address: Ipv4Addr, port: u16) -> Result<TcpListener, Failure> {
    let what = || format!("listen on port {port}");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).during(what())?;
    socket.set_reuse_port(true).during(what())?; // one listener for each thread
    socket.set_tcp_nodelay(true).during(what())?; // inherited by accepted sockets
    socket.bind(&SocketAddr::from((address, port)).into()).during(what())?;
    socket.listen(BACKLOG).during(what())?;
    Ok(socket.into())
}
