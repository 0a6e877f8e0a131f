//! The server host: what answers the loads. Its threads serve until the process ends.

mod datagram;
mod echo;
mod sink;

use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::failure::{During, Failure};
use crate::ports::BACKLOG;
use crate::topology::{Host, SERVER};

pub(crate) use sink::Receipt;

/// Starts all services; they listen when this returns.
pub(crate) fn start(server: &Host) -> Result<(), Failure> {
    sink::start(server)?;
    echo::start(server)?;
    datagram::start(server)
}

/// A listener on the server's address. To be called on the server.
fn listen(port: u16) -> Result<TcpListener, Failure> {
    let what = || format!("listen on port {port}");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).during(what())?;
    socket.set_reuse_address(true).during(what())?;
    socket.set_tcp_nodelay(true).during(what())?; // inherited by what is accepted
    socket.bind(&SocketAddr::from((SERVER, port)).into()).during(what())?;
    socket.listen(BACKLOG).during(what())?;
    Ok(socket.into())
}
