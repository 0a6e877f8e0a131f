//! Wire: delivers the frames of one gateway late, in each direction by a time of its own.
//!
//! A host between the gateway and the bridge, which passes on whole frames by packet sockets: not every kernel has netem.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, MsgFlags, bind, recvfrom, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use crate::segment::Segment;
use crate::support::host::Host;
use crate::support::patience::let_pass;

/// Room for the longest frame that is not segmented later: see `whole_frames`.
const LONGEST: usize = 2048;

/// The way of one gateway's frames.
pub(crate) struct Wire {
    _host: Host,
    /// Milliseconds, from the gateway and to it.
    delays: [Arc<AtomicU64>; 2],
    stop: Arc<AtomicBool>,
}

impl Wire {
    /// Puts a wire between this gateway and the bridge.
    pub(crate) fn before(segment: &Segment, number: u8) -> Self {
        let host = Host::new("wire");
        // What the kernel leaves to hardware is not done to frames that pass through a packet socket.
        for end in [&segment.client, &segment.server]
            .into_iter()
            .chain(segment.numbers().into_iter().map(|it| segment.host(it)))
        {
            whole_frames(end);
        }
        segment.lead_through(number, &host);
        let ends = ["gateway", "bridge"].map(|name| (host.run(|| packet_address(name)), host.run(open)));
        let wire = Self { _host: host, delays: [Arc::default(), Arc::default()], stop: Arc::default() };
        let [gateway, bridge] = ends;
        for (socket, link) in [(&gateway.1, gateway.0), (&bridge.1, bridge.0)] {
            bind(socket.as_raw_fd(), &link).expect("a packet socket is bound");
        }
        carry(&gateway, &bridge, &wire.delays[0], &wire.stop);
        carry(&bridge, &gateway, &wire.delays[1], &wire.stop);
        wire
    }

    /// From now on frames from the gateway, and to it, are late by these times.
    pub(crate) fn delay(&self, from: Duration, to: Duration) {
        for (delay, time) in self.delays.iter().zip([from, to]) {
            delay.store(u64::try_from(time.as_millis()).expect("a short time"), Ordering::Relaxed);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn whole_frames(host: &Host) {
    host.finish("ethtool", &["-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "off"])
        .expect_success();
}

/// Address of an interface for packet sockets, with its hardware address. In the host of the calling thread.
pub(crate) fn packet_address(name: &str) -> LinkAddr {
    let mut links = getifaddrs().expect("the kernel lists interfaces");
    let found =
        links.find_map(|it| it.address.filter(|_| it.interface_name == name)?.as_link_addr().copied());
    found.expect("the interface is there")
}

fn open() -> Socket {
    let protocol = Protocol::from(i32::from((nix::libc::ETH_P_ALL as u16).to_be()));
    let socket =
        Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).expect("root may open packet sockets");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket takes a timeout");
    socket
}

/// Carries frames in one direction until the wire is taken away.
fn carry(from: &(LinkAddr, Socket), to: &(LinkAddr, Socket), delay: &Arc<AtomicU64>, stop: &Arc<AtomicBool>) {
    let (receiving, sending) =
        (from.1.try_clone().expect("a second handle"), to.1.try_clone().expect("a second handle"));
    let (to, delay, stop) = (to.0, Arc::clone(delay), Arc::clone(stop));
    let (give, take) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = [0; LONGEST];
        while !stop.load(Ordering::Relaxed) {
            let Ok((length, Some(sender))) = recvfrom::<LinkAddr>(receiving.as_raw_fd(), &mut buffer) else {
                continue;
            };
            // Those that were sent here come back.
            if sender.pkttype() == nix::libc::PACKET_OUTGOING {
                continue;
            }
            let due = Instant::now() + Duration::from_millis(delay.load(Ordering::Relaxed));
            give.send((due, buffer[..length].to_vec())).expect("frames are taken as long as they are given");
        }
    });
    std::thread::spawn(move || {
        for (due, frame) in take {
            let_pass(due.saturating_duration_since(Instant::now()));
            sendto(sending.as_raw_fd(), &frame, &to, MsgFlags::empty()).unwrap_or_default();
        }
    });
}
