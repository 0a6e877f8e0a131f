//! Programs of type BPF_PROG_TYPE_SK_LOOKUP (Documentation/bpf/prog_sk_lookup.rst in the kernel). They select the socket
//! of a new TCP connection, or of a datagram without a connected socket, before the kernel looks for a bound socket.
//!
//! Since Linux 5.9. Loading a program needs CAP_NET_ADMIN and CAP_BPF.

use std::ffi::c_long;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use super::instruction::Instruction;
use super::{descriptor, load, number};

const BPF_LINK_CREATE: c_long = 28;
const BPF_PROG_TYPE_SK_LOOKUP: u32 = 30;
const BPF_SK_LOOKUP: u32 = 36;
/// Network namespace of the calling thread.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Return value of a program: the kernel continues, with the assigned socket if there is one.
pub(crate) const PASS: i32 = 1;
/// Return value of a program: the kernel refuses the packet as if there were no socket.
pub(crate) const REFUSE: i32 = 0;

/// Offsets of words in `struct bpf_sk_lookup`. Addresses are in network byte order; the local port is a number in host
/// byte order.
pub(crate) const FAMILY: i16 = 8;
pub(crate) const PROTOCOL: i16 = 12;
pub(crate) const REMOTE_V4: i16 = 16;
pub(crate) const REMOTE_V6: i16 = 20;
pub(crate) const LOCAL_V4: i16 = 40;
pub(crate) const LOCAL_V6: i16 = 44;
pub(crate) const LOCAL_PORT: i16 = 60;

/// `bpf_sk_assign(context, socket, flags)`: returns 0 or an error.
pub(crate) const ASSIGN: i32 = 124;
/// `BPF_SK_LOOKUP_F_REPLACE`: replaces the socket that an earlier program assigned.
pub(crate) const REPLACE: i32 = 1;
/// `bpf_sk_release(socket)`.
pub(crate) const RELEASE: i32 = 86;

/// A program attached to a network namespace. It is detached when this is dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Attached(#[expect(dead_code, reason = "the kernel looks at it")] OwnedFd);

/// The part of `union bpf_attr` for BPF_LINK_CREATE.
#[derive(Debug, Default)]
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

impl Attached {
    /// Loads a program and attaches it to the thread's network namespace; `bpftool prog` shows `name`, cut to 15 bytes.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `EPERM` without the privilege, `EINVAL` if the kernel does not support such
    /// programs. Also fails if the namespace cannot be opened.
    pub(crate) fn new(program: &[Instruction], name: &str) -> io::Result<Self> {
        let program = load(BPF_PROG_TYPE_SK_LOOKUP, BPF_SK_LOOKUP, program, name)?;
        let namespace = File::open(NAMESPACE)?;
        let mut link = LinkCreate {
            prog_fd: number(&program),
            target_fd: number(&namespace),
            attach_type: BPF_SK_LOOKUP,
            flags: 0,
        };
        // SAFETY: the attributes hold no pointer.
        unsafe { descriptor(BPF_LINK_CREATE, &mut link) }.map(Self)
    }
}
