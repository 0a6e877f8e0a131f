//! Socket of NETLINK_NETFILTER: transactions, requests and dumps.

use std::io::{self, Read};
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::sockopt::SndBufForce;
use nix::sys::socket::{NetlinkAddr, getsockname, setsockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::attributes::{Attributes, Walk};
use crate::error::Error;

/// From linux/netlink.h: NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_DUMP, NLM_F_CREATE and NLM_F_APPEND.
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const INTERRUPTED: u16 = 0x10;
const DUMP: u16 = 0x300;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
/// From the same header: NLMSG_ERROR and NLMSG_DONE.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// From linux/netfilter/nfnetlink.h: NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END and NFNL_BATCH_GENID.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const BATCH_GENERATION: u16 = 1;
/// The subsystem in the upper byte of a message's type.
pub(crate) const NFTABLES: u16 = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8;
pub(crate) const CONNTRACK: u16 = (libc::NFNL_SUBSYS_CTNETLINK as u16) << 8;

/// Lengths of `nlmsghdr` and `nfgenmsg`.
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;
/// The longest reply: the error of a message, with a copy of that.
const LONGEST: usize = 256 << 10;
/// Room in the send buffer beside the bytes of a batch.
const OVERHEAD: usize = 1 << 20;
/// How often a dump begins again that a change by somebody else made inconsistent.
const DUMP_ATTEMPTS: usize = 20;

/// Messages that take effect together or not at all (`nfnetlink_rcv_batch` in net/netfilter/nfnetlink.c).
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where the last message begins.
    last: usize,
    /// The number of the last message; that of the batch's beginning is 0.
    count: u32,
}

impl Batch {
    /// With a generation, the batch fails if that of nf_tables is another by then.
    pub(crate) fn new(generation: Option<u32>) -> Self {
        let mut attributes = Attributes::new();
        if let Some(generation) = generation {
            attributes.number(BATCH_GENERATION, generation);
        }
        let mut batch = Self { bytes: Vec::new(), last: 0, count: 0 };
        batch.edge(BATCH_BEGIN, &attributes);
        batch
    }

    /// Adds a message of nf_tables.
    pub(crate) fn push(&mut self, kind: u16, flags: u16, family: u8, attributes: &Attributes) {
        self.count += 1;
        self.last = self.bytes.len();
        write(&mut self.bytes, NFTABLES | kind, flags, self.count, [family, 0, 0, 0], attributes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Frames of a batch name its receiver.
    fn edge(&mut self, kind: u16, attributes: &Attributes) {
        let receiver = [0, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u8];
        write(&mut self.bytes, kind, 0, self.count, receiver, attributes);
    }

    /// The bytes to send. The last message alone asks for a reply; those that fail get one unasked.
    fn finish(mut self) -> (Vec<u8>, u32) {
        let flags = self.last + 6..self.last + 8;
        let asked = u16::from_ne_bytes([self.bytes[flags.start], self.bytes[flags.start + 1]]) | ACK;
        self.bytes[flags].copy_from_slice(&asked.to_ne_bytes());
        let last = self.count;
        self.count += 1;
        self.edge(BATCH_END, &Attributes::new());
        (self.bytes, last)
    }
}

fn write(
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    number: u32,
    family: [u8; FAMILY_HEADER],
    attributes: &Attributes,
) {
    let length = u32::try_from(HEADER + FAMILY_HEADER + attributes.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
    bytes.extend_from_slice(&number.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(&family);
    bytes.extend_from_slice(attributes.as_bytes());
}

/// One message of a reply.
struct Reply<'a> {
    kind: u16,
    flags: u16,
    number: u32,
    payload: &'a [u8],
}

impl Reply<'_> {
    /// The verdict of an error message; `Ok` is an acknowledgement. `None`: the message is something else.
    fn verdict(&self) -> Option<io::Result<()>> {
        let code = i32::from_ne_bytes(*self.payload.first_chunk()?);
        match (self.kind, code) {
            (ERROR | DONE, 0) => Some(Ok(())),
            (ERROR | DONE, code) => Some(Err(io::Error::from_raw_os_error(code.wrapping_neg()))),
            _ => None,
        }
    }
}

/// The messages of one read.
fn replies(mut bytes: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_first_chunk::<HEADER>()?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = usize::try_from(word(0)).ok()?;
        let payload = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Reply { kind: half(4), flags: half(6), number: word(8), payload })
    })
}

/// The socket. A table with an owner belongs to it.
#[derive(Debug)]
pub(crate) struct Netfilter {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Netfilter {
    /// Needs CAP_NET_ADMIN when it is used.
    pub(crate) fn open() -> io::Result<Self> {
        let protocol = Protocol::from(libc::NETLINK_NETFILTER);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        // The kernel has replied before a request returns.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, buffer: vec![0; LONGEST] })
    }

    /// The socket's port, by which the kernel knows the owner of a table; 0 before the first message.
    pub(crate) fn port(&self) -> u32 {
        getsockname::<NetlinkAddr>(self.socket.as_raw_fd()).map_or(0, |address| address.pid())
    }

    /// Carries out a batch, in one call of the kernel.
    pub(crate) fn transact(&mut self, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (bytes, last) = batch.finish();
        self.send(&bytes)?;
        let mut failed: Option<(u32, io::Error)> = None;
        let mut done = false;
        while let Some(length) = self.receive()? {
            for reply in replies(&self.buffer[..length]) {
                match reply.verdict() {
                    Some(Ok(())) => done |= reply.number == last,
                    Some(Err(error)) if failed.is_none() => failed = Some((reply.number, error)),
                    _ => {}
                }
            }
        }
        match failed {
            // The batch's own beginning: the right is missing, or the generation is another.
            Some((0, error)) if error.raw_os_error() == Some(libc::EPERM) => Err(Error::NoRight),
            Some((number, error)) if error.raw_os_error() == Some(libc::EPERM) => {
                Err(Error::Owned { number })
            }
            Some((number, error)) => Err(Error::Refused { number, error }),
            None if done => Ok(()),
            None => Err(Error::Socket(io::Error::other("the kernel did not answer a batch"))),
        }
    }

    /// Carries out one request.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        family: [u8; 2],
        attributes: &Attributes,
        mut each: impl FnMut(Walk<'_>),
    ) -> io::Result<()> {
        self.ask(kind, ACK, family, attributes, &mut each)
    }

    /// What `read` finds in the reply to a request for one thing; `None` if the kernel does not have it.
    pub(crate) fn find<T>(
        &mut self,
        kind: u16,
        family: [u8; 2],
        attributes: &Attributes,
        read: impl Fn(Walk<'_>) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let mut found = None;
        match self.request(kind, family, attributes, |reply| found = read(reply)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            outcome => outcome.map(|()| found),
        }
    }

    /// Everything of a kind; `each` sees the attributes of each message, and `restart` is called when they begin again.
    pub(crate) fn dump<T>(
        &mut self,
        kind: u16,
        family: [u8; 2],
        attributes: &Attributes,
        mut each: impl FnMut(&mut T, Walk<'_>),
        empty: impl Fn() -> T,
    ) -> io::Result<T> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut found = empty();
            match self.ask(kind, DUMP, family, attributes, &mut |walk| each(&mut found, walk)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome.map(|()| found),
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "nf_tables changes faster than it can be read"))
    }

    fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        [family, version]: [u8; 2],
        attributes: &Attributes,
        each: &mut impl FnMut(Walk<'_>),
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes, kind, flags, 1, [family, version, 0, 0], attributes);
        self.send(&bytes)?;
        let mut outcome = None;
        let mut interrupted = false;
        while let Some(length) = self.receive()? {
            for reply in replies(&self.buffer[..length]) {
                interrupted |= reply.flags & INTERRUPTED != 0;
                match reply.verdict() {
                    Some(verdict) => outcome = Some(verdict),
                    None => each(Walk(reply.payload.get(FAMILY_HEADER..).unwrap_or_default())),
                }
            }
        }
        match outcome {
            Some(Ok(())) if interrupted => Err(io::ErrorKind::Interrupted.into()),
            Some(outcome) => outcome,
            None => Err(io::Error::other("the kernel did not answer a request")),
        }
    }

    /// A batch is one message of the socket, however long.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Nothing is left of an earlier request.
        while self.receive()?.is_some() {}
        if bytes.len() > LONGEST / 2 {
            setsockopt(&self.socket, SndBufForce, &(bytes.len() + OVERHEAD))?;
        }
        self.socket.send(bytes).map(|_| ())
    }

    /// `None`: nothing is left. After more errors than the buffer holds, ENOBUFS comes before them.
    fn receive(&mut self) -> io::Result<Option<usize>> {
        loop {
            match (&self.socket).read(&mut self.buffer) {
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
