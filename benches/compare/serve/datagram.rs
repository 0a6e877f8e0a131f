//! Answers each datagram with its complement.

use std::net::UdpSocket;

use socket2::SockRef;

use crate::failure::{During, Failure};
use crate::pattern;
use crate::ports::DATAGRAM;
use crate::topology::{Host, SERVER};

/// Room for every datagram that can be under way, so that the server's queue is never what loses one.
const RECEIVE_BUFFER: usize = 4 << 20;

pub(super) fn start(server: &Host) -> Result<(), Failure> {
    let socket = server.call(|| UdpSocket::bind((SERVER, DATAGRAM)))?.during("bind the datagram server")?;
    SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER).during("size a receive buffer")?;
    server.spawn(move || answer(&socket)).map(drop)
}

fn answer(socket: &UdpSocket) {
    let mut buffer = vec![0; 65_536];
    loop {
        // Errors here are ICMP answers to earlier datagrams: a proxy that is gone. The next one may be alive.
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        pattern::complement(&mut buffer[..len]);
        drop(socket.send_to(&buffer[..len], from));
    }
}
