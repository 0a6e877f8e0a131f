//! Bundle service: answers each bundle of datagrams with a bundle of their complements.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::cmsg_space;
use nix::sys::socket::sockopt::UdpGroSegment;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
};
use sheave_test_support::host::Host;

use crate::failure::Failure;
use crate::pattern;
use crate::ports::BUNDLE;

pub(super) fn start(server: &Host) -> Result<(), Failure> {
    let socket = server.run(|| super::bind(BUNDLE))?;
    if setsockopt(&socket, UdpGroSegment, &true).is_err() {
        println!("the kernel has no UDP_GRO (Linux 5.0): the server takes bundles apart");
    }
    server.spawn(move || answer(&socket));
    Ok(())
}

fn answer(socket: &UdpSocket) {
    let mut buffer = vec![0; 65_536];
    loop {
        match answer_one(socket, &mut buffer) {
            // Errors are ICMP responses to earlier datagrams, as in `datagram`.
            Ok(()) | Err(_) => {}
        }
    }
}

fn answer_one(socket: &UdpSocket, buffer: &mut [u8]) -> nix::Result<()> {
    let mut control = cmsg_space!(i32);
    let (len, from, segment) = {
        let mut parts = [IoSliceMut::new(buffer)];
        let received =
            recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
        let segment = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::UdpGroSegments(size) => u16::try_from(size).ok(),
            _ => None,
        });
        (received.bytes, received.address, segment)
    };
    let answer = &mut buffer[..len];
    pattern::complement(answer);
    let parts = [std::io::IoSlice::new(answer)];
    let bundle = segment.as_ref().filter(|segment| len > usize::from(**segment));
    let control: Vec<_> = bundle.map(ControlMessage::UdpGsoSegments).into_iter().collect();
    sendmsg(socket.as_raw_fd(), &parts, &control, MsgFlags::empty(), from.as_ref())?;
    Ok(())
}
