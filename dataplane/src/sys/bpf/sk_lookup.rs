//! Programs of type BPF_PROG_TYPE_SK_LOOKUP (Documentation/bpf/prog_sk_lookup.rst in the kernel): they choose the socket
//! that takes a new TCP connection or a datagram of no connected socket, before any bound socket is looked for.
//!
//! Since Linux 5.9. Loading one needs CAP_NET_ADMIN and CAP_BPF.

use std::ffi::c_long;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use super::instruction::Instruction;
use super::{descriptor, load, number};

const BPF_LINK_CREATE: c_long = 28;
const BPF_PROG_TYPE_SK_LOOKUP: u32 = 30;
const BPF_SK_LOOKUP: u32 = 36;
/// The network namespace of the calling thread.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// What a program answers: the kernel goes on, with the socket that was assigned if there is one.
pub(crate) const PASS: i32 = 1;
/// The kernel refuses, as if there were no socket.
pub(crate) const REFUSE: i32 = 0;

/// Where `struct bpf_sk_lookup` has what: offsets of words. Addresses are in network order, the local port is a number.
pub(crate) const FAMILY: i16 = 8;
pub(crate) const PROTOCOL: i16 = 12;
pub(crate) const REMOTE_V4: i16 = 16;
pub(crate) const REMOTE_V6: i16 = 20;
pub(crate) const LOCAL_V4: i16 = 40;
pub(crate) const LOCAL_V6: i16 = 44;
pub(crate) const LOCAL_PORT: i16 = 60;

/// `bpf_sk_assign(context, socket, flags)`: 0, or an error.
pub(crate) const ASSIGN: i32 = 124;
/// `BPF_SK_LOOKUP_F_REPLACE`: whatever an earlier program chose.
pub(crate) const REPLACE: i32 = 1;
/// `bpf_sk_release(socket)`.
pub(crate) const RELEASE: i32 = 86;

/// A program in force in a network namespace; no more once this is dropped, as by the end of the process.
#[derive(Debug)]
pub(crate) struct Attached(#[expect(dead_code, reason = "the kernel looks at it")] OwnedFd);

/// Of `union bpf_attr`, as far as BPF_LINK_CREATE needs it.
#[derive(Debug, Default)]
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

impl Attached {
    /// Loads a program and puts it in force in the thread's network namespace; `name` is what `bpftool prog` shows, cut to
    /// 15 letters.
    ///
    /// # Errors
    /// As bpf(2): `EPERM` without the privilege, `EINVAL` if the kernel does not know such programs.
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
