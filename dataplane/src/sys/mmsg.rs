//! Batches of datagrams: `recvmmsg(2)` and `sendmmsg(2)` over buffers that are allocated once, with `UDP_GRO` for receiving and
//! `UDP_SEGMENT` for sending (udp(7)).

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use libc::{c_int, c_uint};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockAddr};

use super::sockets::set_int;

/// Maximum number of messages per system call. More gains little (the cost per call is spread thin already) and costs memory.
pub(crate) const BATCH: usize = 32;

/// Length of a receive buffer: the longest UDP payload is 65,527 (IPv6), and the kernel ends a GRO bundle at 65,536.
const BUFFER: usize = 65_536;

/// Maximum number of slices in a batch to send: a message has one or gathers several.
const SLICES: usize = 2 * BATCH;

/// Length of the control messages of a datagram: an `int` and an address when received, a `u16` when sent.
const CONTROL: usize = {
    // SAFETY: `CMSG_SPACE` is arithmetic on its argument.
    unsafe {
        (libc::CMSG_SPACE(mem::size_of::<c_int>() as c_uint)
            + libc::CMSG_SPACE(mem::size_of::<libc::sockaddr_in6>() as c_uint)) as usize
    }
};

/// A control buffer, aligned as the kernel's `cmsghdr` requires.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Lets the kernel deliver consecutive datagrams of equal size from one sender as one bundle. Fails on kernels before 5.0.
pub(crate) fn enable_gro(socket: impl AsFd) -> io::Result<()> {
    setsockopt(&socket, sockopt::UdpGroSegment, &true).map_err(io::Error::from)
}

/// Turns off path MTU discovery, so that routers may fragment what this machine sends (ip(7), ipv6(7)). Its result, EMSGSIZE, would be
/// returned here and not to the sender that chose the size.
pub(crate) fn allow_fragments(socket: impl AsFd, domain: Domain) -> io::Result<()> {
    let (level, option, value) = match domain {
        Domain::IPV4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        _ => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
    };
    set_int(socket, level, option, value)
}

/// Makes the kernel report the destination address and port of datagrams (ip(7), ipv6(7)).
pub(crate) fn report_destination(socket: impl AsFd, domain: Domain) -> io::Result<()> {
    let (level, option) = match domain {
        Domain::IPV4 => (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
        _ => (libc::IPPROTO_IPV6, libc::IPV6_RECVORIGDSTADDR),
    };
    set_int(socket, level, option, 1)
}

/// Whether the kernel supports `UDP_SEGMENT` (4.18). An older one ignores the control message and would send a bundle as one long
/// datagram, so this must be checked before the first bundle is sent.
pub(crate) fn segmentation_supported(socket: impl AsFd) -> bool {
    // 0 is the default, "do not segment": setting it changes nothing.
    setsockopt(&socket, sockopt::UdpGsoSegment, &0).is_ok()
}

/// Whether a message was refused because it is a bundle; its datagrams may still be sent singly. `EINVAL`: a segment exceeds the
/// path's MTU, or there are too many. `EMSGSIZE`: the bundle is too long. `EIO`: the device or an IPsec route does not support it
/// (`udp_send_skb` in net/ipv4/udp.c).
pub(crate) fn refuses_bundle(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO))
}

/// One message of the last received batch: a datagram, or a bundle of datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    /// The payload. For a bundle: datagrams of `segment` bytes each, of which the last may be shorter.
    pub(crate) bytes: &'a [u8],
    /// The sender; `None` if its address is of an unknown family.
    pub(crate) from: Option<SocketAddr>,
    /// Length of a bundle's datagrams; `None` for a single datagram.
    pub(crate) segment: Option<NonZeroU16>,
    /// Whether the message was longer than the buffer, and `bytes` is only its beginning.
    pub(crate) truncated: bool,
}

/// Receives batches. Reserves 2 MiB of address space, of which only the parts that traffic touches become memory.
pub(crate) struct Receiver {
    /// Length of the buffer of each message.
    room: usize,
    buffers: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl Receiver {
    /// Allocates buffers for [`BATCH`] messages.
    pub(crate) fn new() -> Self {
        Self::with_room(BUFFER)
    }

    fn with_room(room: usize) -> Self {
        Self {
            room,
            buffers: vec![0; BATCH * room],
            names: vec![zeroed_name(); BATCH],
            controls: vec![Control([0; CONTROL]); BATCH],
            iovecs: vec![empty_slice(); BATCH],
            headers: vec![empty_header(); BATCH],
        }
    }

    /// Receives at most [`BATCH`] messages without waiting, and returns their number. Fewer than [`BATCH`] means that the socket is
    /// empty. [`get`](Self::get) returns the messages until the next call.
    pub(crate) fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        self.point_headers_at_buffers();
        // SAFETY: `headers` has `BATCH` entries, and each was just made to point at a buffer, a name, a control buffer
        // and an iovec of the lengths given, all owned by `self`, which stays borrowed for the call. A null timeout is
        // allowed. The descriptor is open: it is borrowed.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH as c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// The message at `index`, which must be below the number that the last [`receive`](Self::receive) returned.
    pub(crate) fn get(&self, index: usize) -> Received<'_> {
        let header = &self.headers[index];
        let start = index * self.room;
        let length = (header.msg_len as usize).min(self.room);
        Received {
            bytes: &self.buffers[start..start + length],
            from: socket_addr(&self.names[index], header.msg_hdr.msg_namelen as usize),
            segment: bundle_segment(&header.msg_hdr),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }
    }

    /// The destination of the message at `index`; `None` unless [`report_destination`] was enabled.
    pub(crate) fn destination(&self, index: usize) -> Option<SocketAddr> {
        destination(&self.headers[index].msg_hdr)
    }

    /// Resets the headers, in which the kernel overwrites the lengths at each call.
    fn point_headers_at_buffers(&mut self) {
        let buffers = self.buffers.chunks_exact_mut(self.room);
        let parts = buffers.zip(&mut self.names).zip(&mut self.controls).zip(&mut self.iovecs);
        for ((((buffer, name), control), iovec), header) in parts.zip(&mut self.headers) {
            iovec.iov_base = buffer.as_mut_ptr().cast();
            iovec.iov_len = self.room;
            let header = &mut header.msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = iovec;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
            header.msg_flags = 0;
        }
    }
}

/// Sends batches; owns the headers, not the payload.
pub(crate) struct Sender {
    iovecs: Vec<libc::iovec>,
    controls: Vec<Control>,
    headers: Vec<libc::mmsghdr>,
}

impl Sender {
    /// Allocates headers for [`BATCH`] messages.
    pub(crate) fn new() -> Self {
        Self {
            iovecs: vec![empty_slice(); SLICES],
            controls: vec![Control([0; CONTROL]); BATCH],
            headers: vec![empty_header(); BATCH],
        }
    }

    /// Starts an empty batch.
    pub(crate) fn batch(&mut self) -> Outgoing<'_, '_> {
        Outgoing { sender: self, slices: 0, closed: 0, messages: 0, bytes: PhantomData }
    }
}

/// A batch under construction: slices are pushed, and [`end_message`](Self::end_message) gathers them into a message.
pub(crate) struct Outgoing<'s, 'b> {
    sender: &'s mut Sender,
    /// Number of slices pushed.
    slices: usize,
    /// Number of slices that belong to an ended message.
    closed: usize,
    messages: usize,
    /// The iovecs point into these bytes.
    bytes: PhantomData<&'b [u8]>,
}

impl<'b> Outgoing<'_, 'b> {
    /// Whether another message of at most [`BATCH`] slices fits.
    pub(crate) fn has_room(&self) -> bool {
        self.messages < BATCH && self.slices + BATCH <= SLICES
    }

    /// Number of ended messages.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Adds bytes to the current message; only allowed after [`has_room`](Self::has_room).
    pub(crate) fn push(&mut self, bytes: &'b [u8]) {
        self.sender.iovecs[self.slices] =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        self.slices += 1;
    }

    /// Ends the message: a datagram of all bytes pushed since the last one, or a bundle of datagrams of `segment` bytes each.
    pub(crate) fn end_message(&mut self, segment: Option<NonZeroU16>) {
        let header = &mut self.sender.headers[self.messages].msg_hdr;
        header.msg_iovlen = (self.slices - self.closed) as _;
        header.msg_controllen = match segment {
            Some(segment) => write_segment(&mut self.sender.controls[self.messages], segment) as _,
            None => 0,
        };
        self.closed = self.slices;
        self.messages += 1;
    }

    /// Sends without waiting, to the peer of a connected socket or to the given address. Returns the number of messages sent. An error
    /// concerns the first message, and means that none was sent.
    pub(crate) fn send(self, socket: impl AsFd, to: Option<SocketAddr>) -> io::Result<usize> {
        let name = to.map(SockAddr::from);
        let (name, name_len) =
            name.as_ref().map_or((ptr::null_mut(), 0), |name| (name.as_ptr().cast_mut().cast(), name.len()));
        let Sender { iovecs, controls, headers } = self.sender;
        let mut rest: &mut [libc::iovec] = &mut iovecs[..self.closed];
        for (header, control) in headers[..self.messages].iter_mut().zip(controls.iter_mut()) {
            let header = &mut header.msg_hdr;
            #[allow(clippy::unnecessary_cast, reason = "another type with musl")]
            let (own, others) = rest.split_at_mut(header.msg_iovlen as usize);
            rest = others;
            header.msg_iov = own.as_mut_ptr();
            header.msg_name = name;
            header.msg_namelen = name_len;
            header.msg_control =
                if header.msg_controllen == 0 { ptr::null_mut() } else { control.0.as_mut_ptr().cast() };
        }
        // SAFETY: the first `messages` headers were just made to point at `name`, at iovecs and at control buffers that
        // live for the call; the iovecs point into bytes borrowed for `'b`, which outlives `self`, and the kernel only
        // reads them. The descriptor is open: it is borrowed.
        let count = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                self.messages as c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

/// Writes the control message that requests segmentation; returns its length.
fn write_segment(control: &mut Control, segment: NonZeroU16) -> usize {
    let payload = mem::size_of::<u16>() as c_uint;
    let header: *mut libc::cmsghdr = control.0.as_mut_ptr().cast();
    // SAFETY: `Control` is aligned for a `cmsghdr` and has room for one with an `int`, hence for one with a `u16`;
    // `CMSG_DATA` points behind that header, inside the buffer.
    unsafe {
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment.get());
        libc::CMSG_SPACE(payload) as usize
    }
}

/// The segment size that the kernel reports for a bundle.
fn bundle_segment(header: &libc::msghdr) -> Option<NonZeroU16> {
    let segment: c_int = control_message(header, libc::SOL_UDP, libc::UDP_GRO)?;
    u16::try_from(segment).ok().and_then(NonZeroU16::new)
}

/// The destination that the kernel reports.
fn destination(header: &libc::msghdr) -> Option<SocketAddr> {
    if let Some(name) = control_message::<libc::sockaddr_in>(header, libc::IPPROTO_IP, libc::IP_ORIGDSTADDR) {
        return Some(SocketAddr::V4(address_v4(&name)));
    }
    let name: libc::sockaddr_in6 = control_message(header, libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR)?;
    let name = address_v6(&name);
    // Without the scope, which belongs to a link and not to the destination.
    Some(SocketAddr::new((*name.ip()).into(), name.port()))
}

/// The data of the first control message of this kind; `T` is the plain C type that the kernel writes.
fn control_message<T>(header: &libc::msghdr, level: c_int, kind: c_int) -> Option<T> {
    // SAFETY: the kernel filled `msg_control` up to `msg_controllen`; `CMSG_FIRSTHDR` and `CMSG_NXTHDR` return null unless a whole
    // header is there, and the data is read only if the header's length covers a `T`.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(found) = message.as_ref() {
            #[allow(clippy::unnecessary_cast, reason = "another type with musl")]
            let complete = found.cmsg_len as usize >= libc::CMSG_LEN(mem::size_of::<T>() as c_uint) as usize;
            if complete && found.cmsg_level == level && found.cmsg_type == kind {
                return Some(libc::CMSG_DATA(found).cast::<T>().read_unaligned());
            }
            message = libc::CMSG_NXTHDR(header, found);
        }
        None
    }
}

fn address_v4(name: &libc::sockaddr_in) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)), u16::from_be(name.sin_port))
}

/// Converts an IPv6 address without its flow label, which does not identify the client.
fn address_v6(name: &libc::sockaddr_in6) -> SocketAddrV6 {
    let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
    SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id)
}

fn socket_addr(name: &libc::sockaddr_storage, length: usize) -> Option<SocketAddr> {
    match c_int::from(name.ss_family) {
        libc::AF_INET if length >= mem::size_of::<libc::sockaddr_in>() => {
            // SAFETY: `sockaddr_storage` is larger than and aligned for every socket address, and the family says
            // which one it holds.
            Some(address_v4(unsafe { &*ptr::from_ref(name).cast() }).into())
        }
        libc::AF_INET6 if length >= mem::size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            Some(address_v6(unsafe { &*ptr::from_ref(name).cast() }).into())
        }
        _ => None,
    }
}

fn zeroed_name() -> libc::sockaddr_storage {
    // SAFETY: a plain C struct of integers, for which all zeroes are a value.
    unsafe { mem::zeroed() }
}

fn empty_slice() -> libc::iovec {
    libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: a plain C struct of integers and raw pointers, for which zero and null are values. (It has private padding
    // on some platforms, so it cannot be written out.)
    unsafe { mem::zeroed() }
}

#[cfg(test)]
mod tests;
