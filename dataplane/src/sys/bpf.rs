//! Extended BPF (bpf(2), linux/bpf.h): maps, and programs written as instructions.
//!
//! Loading a program needs CAP_BPF (CAP_SYS_ADMIN before Linux 5.8) in the initial user namespace. Memory is charged to the cgroup: a
//! prefix takes one or two trie nodes of 64 (IPv4) or 96 bytes (IPv6). Before Linux 5.11 it is charged to RLIMIT_MEMLOCK instead,
//! about 60 bytes for each, for which the default of 64 KiB does not suffice. The kernel returns `EPERM` in both cases.

pub(crate) mod assembler;
pub(crate) mod classic;
pub(crate) mod instruction;
pub(crate) mod map;
pub(crate) mod sk_lookup;

use std::ffi::{CStr, c_int, c_long};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use instruction::Instruction;

use super::Errno;
use super::sockets::set_int;

const BPF_PROG_LOAD: c_long = 5;

const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// Program licence. The programs call no helper that requires the GPL.
const LICENSE: &CStr = c"Apache-2.0";
/// Number of attempts to load a program, as in libbpf: signals interrupt the verifier (EAGAIN).
const LOAD_ATTEMPTS: usize = 5;

/// The part of `union bpf_attr` for BPF_PROG_LOAD.
#[derive(Debug, Default)]
#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// A loaded program of type BPF_PROG_TYPE_SOCKET_FILTER. The kernel keeps it, with its maps, while a socket uses it.
#[derive(Debug)]
pub(crate) struct SocketFilter(OwnedFd);

impl SocketFilter {
    /// Loads a program; `bpftool prog` shows `name`, cut to 15 bytes.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `EPERM` without the privilege, `EACCES` or `EINVAL` if the verifier rejects the program.
    pub(crate) fn load(program: &[Instruction], name: &str) -> io::Result<Self> {
        load(BPF_PROG_TYPE_SOCKET_FILTER, 0, program, name).map(Self)
    }

    /// Atomically replaces the socket's filter, classic or extended (`__sk_attach_prog` in the kernel's net/core/filter.c replaces one
    /// pointer).
    ///
    /// # Errors
    /// Returns an error if setsockopt(2) fails: `ENOMEM` if the socket's option memory does not suffice.
    pub(crate) fn attach(&self, socket: impl AsFd) -> io::Result<()> {
        set_int(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, self.0.as_raw_fd())
    }
}

/// A substitute for tests without the privilege to load programs.
#[cfg(test)]
impl From<OwnedFd> for SocketFilter {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

/// Loads a program of this type for this type of attachment.
fn load(program_type: u32, attach_type: u32, program: &[Instruction], name: &str) -> io::Result<OwnedFd> {
    let mut load = ProgramLoad {
        prog_type: program_type,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        expected_attach_type: attach_type,
        ..ProgramLoad::default()
    };
    for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    // SAFETY: instructions and licence outlive the call; no log is requested, so the log needs no buffer.
    let mut attempt = || unsafe { descriptor(BPF_PROG_LOAD, &mut load) };
    for _ in 1..LOAD_ATTEMPTS {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => {}
            outcome => return outcome,
        }
    }
    attempt()
}

/// The descriptor as bpf(2) expects it.
fn number(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().cast_unsigned()
}

/// Runs a command that returns a descriptor, which is close-on-exec.
///
/// # Safety
/// The requirements of [`bpf`] apply.
unsafe fn descriptor<A>(command: c_long, attributes: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just created this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// # Safety
/// `attributes` must be those of the command, without padding, and the data that they point to must outlive the call.
unsafe fn bpf<A>(command: c_long, attributes: &mut A) -> io::Result<c_long> {
    // SAFETY: guaranteed by the caller; the kernel reads, and for some commands writes, this number of bytes.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, mem::size_of::<A>()) };
    Errno::result(outcome).map_err(io::Error::from)
}
