//! Asks an address in a subnet of this machine whether it is there, by ARP and neighbour discovery: a router that ignores pings answers that.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{LinkAddr, MsgFlags, sendto};

use crate::async_socket::AsyncSocket;
use crate::layer2::MacAddress;
use crate::layer2::frame::{ADVERTISEMENT, SOLICITED, arp_request};
use crate::layer2::packets::Watched;
use crate::layer2::packets::{BUDGET, open_arp};

/// Where ARP begins in a frame, and how long it is.
const ARP: std::ops::Range<usize> = 14..42;

/// Asks for an IPv4 address.
#[derive(Debug)]
pub(super) struct ArpAsker {
    socket: AsyncSocket,
    /// The interface, whose address it has to be sent with, and by which it is chosen.
    link: LinkAddr,
    mac: MacAddress,
    source: Ipv4Addr,
    target: Ipv4Addr,
}

impl ArpAsker {
    /// None where the address is in no subnet of this machine, by `way`, from which address of this machine to which other one.
    ///
    /// # Errors
    /// Errors of socket(2).
    pub(super) fn open(
        target: Ipv4Addr,
        way: impl FnOnce(Ipv4Addr, Ipv4Addr) -> Option<(LinkAddr, MacAddress)>,
    ) -> io::Result<Option<Self>> {
        let source = source(target)?;
        let Some((link, mac)) = way(source, target) else { return Ok(None) };
        let mut watched = Watched::default();
        watched.add(target.into());
        let socket = AsyncSocket::new(open_arp(&watched)?)?;
        Ok(Some(Self { socket, link, mac, source, target }))
    }

    pub(super) fn ask(&self) {
        let request = arp_request(self.mac, self.source, self.target);
        // What cannot be sent is not answered either.
        sendto(self.socket.get().as_raw_fd(), &request, &self.link, MsgFlags::MSG_DONTWAIT).ok();
    }

    /// Waits for an answer. Cancel safe.
    pub(super) async fn answered(&self) -> io::Result<()> {
        let mut buffer = [0; 128];
        loop {
            for _ in 0..BUDGET {
                let Ok(length) = io::Read::read(&mut self.socket.get(), &mut buffer) else {
                    self.socket.ready().await?;
                    continue;
                };
                if answers(&buffer[..length], self.target, self.mac, self.source) {
                    return Ok(());
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Whether a frame is the reply of the target to this machine. What it tells everybody does not show that it hears this one.
fn answers(frame: &[u8], target: Ipv4Addr, mac: MacAddress, source: Ipv4Addr) -> bool {
    let Some(arp) = frame.get(ARP) else { return false };
    arp[..8] == [0, 1, 0x08, 0, 6, 4, 0, 2]
        && arp[14..18] == target.octets()
        && arp[18..24] == mac.0
        && arp[24..28] == source.octets()
}

/// The address of this machine from which packets to another one are sent.
fn source(target: Ipv4Addr) -> io::Result<Ipv4Addr> {
    let route = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // Sends nothing. 9 is the port of "discard".
    route.connect((target, 9))?;
    match route.local_addr()? {
        SocketAddr::V4(source) => Ok(*source.ip()),
        SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Whether a message of ICMPv6 answers a solicitation for an address.
pub(super) fn advertises(message: &[u8], target: Option<IpAddr>) -> bool {
    let Some(IpAddr::V6(target)) = target else { return false };
    matches!(message, [ADVERTISEMENT, 0, _, _, flags, ..] if flags & SOLICITED != 0)
        && message.get(8..24) == Some(&target.octets())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_of_the_target_to_this_machine_counts() {
        let (own, router) = (Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 1));
        let mac = MacAddress([2, 0, 0, 0, 0, 7]);
        let mut frame = vec![0; 14];
        frame
            .extend([0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 2, 0, 0, 0, 0, 7, 192, 0, 2, 7]);
        assert!(answers(&frame, router, mac, own));
        assert!(!answers(&frame, own, mac, own));
        assert!(!answers(&frame, router, mac, router), "to somebody else");
        for length in 0..42 {
            assert!(!answers(&frame[..length], router, mac, own));
        }
        frame[21] = 1;
        assert!(!answers(&frame, router, mac, own), "a question is none");
    }

    #[test]
    fn only_a_solicited_advertisement_of_the_target_counts() {
        let target: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        let mut message = crate::layer2::frame::solicitation(target);
        assert!(!advertises(&message, Some(target.into())));
        (message[0], message[4]) = (ADVERTISEMENT, SOLICITED);
        assert!(advertises(&message, Some(target.into())));
        assert!(!advertises(&message, Some("fe80::2".parse().unwrap())));
        message[4] = 0;
        assert!(!advertises(&message, Some(target.into())), "it is told to everybody");
    }

    #[test]
    fn an_address_elsewhere_is_not_asked_for() {
        let asker = ArpAsker::open(Ipv4Addr::LOCALHOST, |source, target| {
            assert_eq!((source, target), (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST));
            None
        });
        assert!(asker.is_ok_and(|asker| asker.is_none()));
    }
}
