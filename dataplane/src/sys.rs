//! Everything that talks to the kernel past what the standard library and socket2 offer: the only unsafe code of the
//! package, and the only place that names file descriptors. Wrappers take borrowed or async sockets and give
//! `io::Result`.
//!
//! It must not know flows, frontends or tables.

#![allow(unsafe_code, reason = "system calls that std, nix and socket2 do not wrap")]

pub(crate) mod accept;
pub(crate) mod bind_ahead;
pub(crate) mod bind_as_client;
pub(crate) mod bpf;
pub(crate) mod drops;
pub(crate) mod ebpf;
pub(crate) mod epoll;
pub(crate) mod mmsg;
pub(crate) mod netlink;
mod option;
pub(crate) mod pipe;
pub(crate) mod reactor;
pub(crate) mod rlimit;
pub(crate) mod stream;

pub(crate) use nix::errno::Errno;
