//! Datagram service: answers each datagram with its complement.

use std::net::UdpSocket;

use sheave_test_support::host::Host;

use crate::failure::Failure;
use crate::pattern;
use crate::ports::DATAGRAM;

pub(super) fn start(server: &Host) -> Result<(), Failure> {
    let socket = server.run(|| super::bind(DATAGRAM))?;
    server.spawn(move || answer(&socket));
    Ok(())
}

fn answer(socket: &UdpSocket) {
    let mut buffer = vec![0; 65_536];
    loop {
        // Errors are ICMP responses to earlier datagrams, whose proxy is gone. The next one may be alive.
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        pattern::complement(&mut buffer[..len]);
        drop(socket.send_to(&buffer[..len], from));
    }
}
