//! Maps of extended BPF, which programs look up while this process changes them.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{bpf, descriptor, number};

const BPF_MAP_CREATE: c_long = 0;
const BPF_MAP_UPDATE_ELEM: c_long = 2;
const BPF_MAP_DELETE_ELEM: c_long = 3;
const BPF_MAP_UPDATE_BATCH: c_long = 26;

/// `BPF_F_NO_PREALLOC`: entries are allocated on insertion. Required for tries.
const AS_THEY_COME: u32 = 1;

/// Type of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Looked up by the exact key.
    Hash,
    /// Looked up by the longest prefix. A key is a `struct bpf_lpm_trie_key`: the prefix length in bits, in this
    /// machine's byte order, followed by the data to compare, from its first byte on.
    Trie,
    /// Sockets by index; a value is written as the socket's descriptor. Supports listening sockets since Linux 5.8.
    Sockets,
}

impl MapKind {
    /// The `enum bpf_map_type`, and flags.
    const fn code(self) -> (u32, u32) {
        match self {
            Self::Hash => (1, AS_THEY_COME),
            Self::Trie => (11, AS_THEY_COME),
            Self::Sockets => (15, 0),
        }
    }
}

/// A map with keys of `KEY` bytes and values of `VALUE` bytes.
#[derive(Debug)]
pub(crate) struct Map<const KEY: usize, const VALUE: usize>(OwnedFd);

/// The part of `union bpf_attr` for BPF_MAP_CREATE.
#[derive(Debug, Default)]
#[repr(C)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The part of `union bpf_attr` for BPF_MAP_UPDATE_ELEM and BPF_MAP_DELETE_ELEM.
#[derive(Debug, Default)]
#[repr(C)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The part of `union bpf_attr` for BPF_MAP_UPDATE_BATCH.
#[derive(Debug, Default)]
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

impl<const KEY: usize, const VALUE: usize> Map<KEY, VALUE> {
    /// Creates an empty map for at most `most` entries.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `EPERM` without the privilege.
    pub(crate) fn new(kind: MapKind, most: usize) -> io::Result<Self> {
        let (map_type, map_flags) = kind.code();
        let mut create = Create {
            map_type,
            key_size: KEY as u32,
            value_size: VALUE as u32,
            max_entries: most.max(1) as u32,
            map_flags,
        };
        // SAFETY: the attributes hold no pointer.
        unsafe { descriptor(BPF_MAP_CREATE, &mut create) }.map(Self)
    }

    /// Inserts or replaces the entry of a key.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `E2BIG` or `ENOSPC` if the map is full.
    pub(crate) fn put(&self, key: &[u8; KEY], value: &[u8; VALUE]) -> io::Result<()> {
        let mut element = Element {
            map_fd: number(&self.0),
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            ..Element::default()
        };
        // SAFETY: key and value have the map's sizes and outlive the call.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut element) }.map(drop)
    }

    /// Inserts or replaces the entries of all keys, each with the value at the same index.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put). Some entries may have been inserted by then.
    pub(crate) fn put_all(&self, keys: &[[u8; KEY]], values: &[[u8; VALUE]]) -> io::Result<()> {
        let count = keys.len().min(values.len());
        let mut batch = Batch {
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: count as u32,
            map_fd: number(&self.0),
            ..Batch::default()
        };
        // SAFETY: there are at least `count` keys and values of the map's sizes, and they outlive the call.
        if count > 0 && unsafe { bpf(BPF_MAP_UPDATE_BATCH, &mut batch) }.is_ok() {
            return Ok(());
        }
        // The command exists since Linux 5.6, and for tries since 5.13 (ENOTSUPP before, which is no POSIX errno).
        keys.iter().zip(values).try_for_each(|(key, value)| self.put(key, value))
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `ENOENT` if there is no such entry.
    pub(crate) fn remove(&self, key: &[u8; KEY]) -> io::Result<()> {
        let mut element = Element { map_fd: number(&self.0), key: key.as_ptr() as u64, ..Element::default() };
        // SAFETY: the key has the map's size and outlives the call.
        unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut element) }.map(drop)
    }
}

impl<const KEY: usize, const VALUE: usize> AsFd for Map<KEY, VALUE> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
