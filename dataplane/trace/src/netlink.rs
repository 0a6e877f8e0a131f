//! Socket of netlink: requests and dumps of any protocol, within a time.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkDeserializable,
    NetlinkHeader, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};

/// The longest message: a link with many virtual functions, or the error of a request with a copy of that.
const LONGEST: usize = 256 << 10;
/// The length of `nlmsghdr`, and what messages are aligned to (linux/netlink.h).
const HEADER: usize = 16;
const ALIGNMENT: usize = 4;
/// The length of `nfgenmsg`, which begins each message of netfilter (linux/netfilter/nfnetlink.h).
pub(crate) const FAMILY_HEADER: usize = 4;
/// How often a dump begins again that a change made inconsistent.
const DUMP_ATTEMPTS: usize = 20;
/// Time for requests whose answer is short. The kernel has answered before the request returns (`netlink_rcv_skb` in
/// net/netlink/af_netlink.c); only an answer that it had no memory for is waited for.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// A socket of one netlink protocol.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    deadline: Instant,
}

impl Netlink {
    /// `protocol` is NETLINK_ROUTE, NETLINK_NETFILTER or NETLINK_SOCK_DIAG. All requests end within the time.
    pub(crate) fn open(protocol: i32, within: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(Protocol::from(protocol)))?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; LONGEST], deadline: Instant::now() + within })
    }

    /// Sends one request; `each` gets the type and the payload of each message of the answer.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        self.exchange(kind, NLM_F_ACK, body, &mut each).map(|_| ())
    }

    /// Everything of a kind. `each` gets what was found so far, and the type and the payload of each message.
    pub(crate) fn dump<T: Default>(
        &mut self,
        kind: u16,
        body: &[u8],
        mut each: impl FnMut(&mut T, u16, &[u8]),
    ) -> io::Result<T> {
        let mut found = T::default();
        for _ in 0..DUMP_ATTEMPTS {
            found = T::default();
            let consistent =
                self.exchange(kind, NLM_F_DUMP, body, &mut |kind, payload| each(&mut found, kind, payload))?;
            if consistent {
                break;
            }
        }
        // What changes faster than it can be read is still worth more than nothing.
        Ok(found)
    }

    /// Returns whether the answer is consistent.
    fn exchange(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        each: &mut impl FnMut(u16, &[u8]),
    ) -> io::Result<bool> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        bytes.extend(length.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(body);
        self.socket.send(&bytes)?;
        let mut consistent = true;
        loop {
            let length = self.receive()?;
            for message in Messages(&self.buffer[..length]) {
                if message.sequence != self.sequence {
                    continue;
                }
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match (message.kind, message.payload.first_chunk()) {
                    (NLMSG_ERROR | NLMSG_DONE, Some(code)) => {
                        return match i32::from_ne_bytes(*code) {
                            0 => Ok(consistent),
                            code => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
                        };
                    }
                    (NLMSG_DONE, None) => return Ok(consistent),
                    _ => each(message.kind, message.payload),
                }
            }
        }
    }

    fn receive(&mut self) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        (&self.socket).read(&mut self.buffer)
    }
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

/// The messages of one read.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.first_chunk::<HEADER>()?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = usize::try_from(word(0)).ok()?;
        let payload = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(Message { kind: half(4), flags: half(6), sequence: word(8), payload })
    }
}

/// Sends a request of NETLINK_ROUTE for one thing.
pub(crate) fn route_request(message: &RouteNetlinkMessage) -> io::Result<Option<RouteNetlinkMessage>> {
    let mut found = None;
    let (kind, body) = to_bytes(message);
    Netlink::open(libc::NETLINK_ROUTE, SHORT)?
        .request(kind, &body, |kind, payload| found = from_bytes(kind, payload).or(found.take()))?;
    Ok(found)
}

/// Everything of a kind of NETLINK_ROUTE. What cannot be read is left out: a link of an unknown kind must not hide the others.
pub(crate) fn route_dump(message: &RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let (kind, body) = to_bytes(message);
    let each = |found: &mut Vec<_>, kind, payload: &[u8]| found.extend(from_bytes(kind, payload));
    Netlink::open(libc::NETLINK_ROUTE, SHORT)?.dump(kind, &body, each)
}

/// The type and the bytes of a message without its header.
pub(crate) fn to_bytes(message: &impl NetlinkSerializable) -> (u16, Vec<u8>) {
    let mut body = vec![0; message.buffer_len()];
    message.serialize(&mut body);
    (message.message_type(), body)
}

/// A message from its type and bytes.
pub(crate) fn from_bytes<M: NetlinkDeserializable>(kind: u16, payload: &[u8]) -> Option<M> {
    let mut header = NetlinkHeader::default();
    header.message_type = kind;
    M::deserialize(&header, payload).ok()
}
