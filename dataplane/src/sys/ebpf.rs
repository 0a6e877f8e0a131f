//! Extended BPF (bpf(2), linux/bpf.h): maps, and programs written as instructions.
//!
//! Loading one needs CAP_BPF (CAP_SYS_ADMIN before Linux 5.8) in the initial user namespace. Memory is charged to the
//! cgroup: a prefix takes one or two trie nodes of 64 (IPv4) or 96 bytes (IPv6). Before Linux 5.11 it is charged to
//! RLIMIT_MEMLOCK instead, about 60 bytes for each, which the default of 64 KiB does not hold. `EPERM` tells of either.

pub(crate) mod instruction;

use std::ffi::{CStr, c_int, c_long};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use instruction::Instruction;

use super::Errno;
use super::option::set_int;

const BPF_MAP_CREATE: c_long = 0;
const BPF_MAP_UPDATE_ELEM: c_long = 2;
const BPF_PROG_LOAD: c_long = 5;
const BPF_MAP_UPDATE_BATCH: c_long = 26;

const BPF_MAP_TYPE_LPM_TRIE: u32 = 11;
/// Asked of every trie: its nodes are made as they come.
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// No helper that the programs call is for GPL programs only.
const LICENSE: &CStr = c"Apache-2.0";
/// The verifier gives way to signals (EAGAIN); libbpf tries as often.
const LOAD_ATTEMPTS: usize = 5;

/// A set of address prefixes (BPF_MAP_TYPE_LPM_TRIE): looking up an address finds the longest one that holds it.
#[derive(Debug)]
pub(crate) struct PrefixSet(OwnedFd);

/// Of `union bpf_attr`, as far as BPF_MAP_CREATE needs it.
#[derive(Debug, Default)]
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// Of `union bpf_attr`, as far as BPF_MAP_UPDATE_ELEM needs it.
#[derive(Debug, Default)]
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Of `union bpf_attr`, as far as BPF_MAP_UPDATE_BATCH needs it.
#[derive(Debug, Default)]
#[repr(C)]
struct MapUpdateBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Of `union bpf_attr`, as far as BPF_PROG_LOAD needs it.
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
}

impl PrefixSet {
    /// A set of keys of one size, `struct bpf_lpm_trie_key` one after another: the prefix length as a number of this
    /// machine's byte order, then the address in network order.
    ///
    /// # Errors
    /// As bpf(2): `EPERM` without the privilege.
    pub(crate) fn new<const KEY: usize>(keys: &[[u8; KEY]]) -> io::Result<Self> {
        let mut create = MapCreate {
            map_type: BPF_MAP_TYPE_LPM_TRIE,
            key_size: KEY as u32,
            value_size: 1,
            max_entries: keys.len().max(1) as u32,
            map_flags: BPF_F_NO_PREALLOC,
        };
        // SAFETY: the attributes hold no pointer.
        let map = Self(unsafe { descriptor(BPF_MAP_CREATE, &mut create) }?);
        // Before Linux 5.6 there is no such command, before 5.13 tries do not know it (ENOTSUPP, no POSIX errno).
        if map.insert_all(keys).is_err() {
            keys.iter().try_for_each(|key| map.insert(key))?;
        }
        Ok(map)
    }

    fn insert_all<const KEY: usize>(&self, keys: &[[u8; KEY]]) -> io::Result<()> {
        let values = vec![0_u8; keys.len()];
        let mut update = MapUpdateBatch {
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: keys.len() as u32,
            map_fd: number(&self.0),
            ..MapUpdateBatch::default()
        };
        // SAFETY: there are `count` keys of the map's size and as many values of one byte, and they outlive the call.
        unsafe { bpf(BPF_MAP_UPDATE_BATCH, &mut update) }.map(drop)
    }

    fn insert<const KEY: usize>(&self, key: &[u8; KEY]) -> io::Result<()> {
        let value = 0_u8;
        let mut update = MapUpdate {
            map_fd: number(&self.0),
            key: key.as_ptr() as u64,
            value: &raw const value as u64,
            ..MapUpdate::default()
        };
        // SAFETY: key and value have the map's sizes and outlive the call.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut update) }.map(drop)
    }
}

impl AsFd for PrefixSet {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A loaded program of type BPF_PROG_TYPE_SOCKET_FILTER. The kernel keeps it, and its maps, while a socket has it.
#[derive(Debug)]
pub(crate) struct SocketFilter(OwnedFd);

impl SocketFilter {
    /// Loads a program; `name` is what `bpftool prog` shows, cut to 15 letters.
    ///
    /// # Errors
    /// As bpf(2): `EPERM` without the privilege, `EACCES` or `EINVAL` if the verifier refuses it.
    pub(crate) fn load(program: &[Instruction], name: &str) -> io::Result<Self> {
        let mut load = ProgramLoad {
            prog_type: BPF_PROG_TYPE_SOCKET_FILTER,
            insn_cnt: program.len() as u32,
            insns: program.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            ..ProgramLoad::default()
        };
        for (to, from) in load.prog_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from;
        }
        // SAFETY: instructions and licence outlive the call, and the log, which is not asked for, has no buffer.
        let mut attempt = || unsafe { descriptor(BPF_PROG_LOAD, &mut load) };
        for _ in 1..LOAD_ATTEMPTS {
            match attempt() {
                Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => {}
                outcome => return outcome.map(Self),
            }
        }
        attempt().map(Self)
    }

    /// Makes it the socket's filter in one step, in place of any other, classic or not (`__sk_attach_prog` in the
    /// kernel's net/core/filter.c replaces one pointer).
    ///
    /// # Errors
    /// As setsockopt(2): `ENOMEM` if the socket's option memory does not suffice.
    pub(crate) fn attach(&self, socket: impl AsFd) -> io::Result<()> {
        set_int(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, self.0.as_raw_fd())
    }
}

/// Lets tests have one without the privilege to load any.
#[cfg(test)]
impl From<OwnedFd> for SocketFilter {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

/// The descriptor as bpf(2) takes it.
fn number(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().cast_unsigned()
}

/// A command that answers with a descriptor, which is close-on-exec.
///
/// # Safety
/// As [`bpf`].
unsafe fn descriptor<A>(command: c_long, attributes: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// # Safety
/// `attributes` are those of the command, without padding, and what they point to outlives the call.
unsafe fn bpf<A>(command: c_long, attributes: &mut A) -> io::Result<c_long> {
    // SAFETY: as the caller promises; the kernel reads, and for some commands writes, so many bytes.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, mem::size_of::<A>()) };
    Errno::result(outcome).map_err(io::Error::from)
}
