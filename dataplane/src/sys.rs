//! System calls that std, nix and socket2 do not wrap. This is the only unsafe code of the crate and the only place that uses
//! raw file descriptors: wrappers take borrowed or async sockets and return `io::Result`.

#![allow(unsafe_code, reason = "system calls that std, nix and socket2 do not wrap")]

pub(crate) mod bind;
pub(crate) mod bpf;
pub(crate) mod epoll;
pub(crate) mod errnos;
pub(crate) mod mmsg;
pub(crate) mod pipe;
pub(crate) mod port_range;
pub(crate) mod privileges;
pub(crate) mod sockets;
pub(crate) mod stream;
pub(crate) mod tun;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

pub(crate) use errnos::Errno;

/// Raises the soft limit of open files to the hard limit, since a proxy needs two descriptors per connection. Returns the
/// limit that applies afterwards; `None` if it cannot be read.
pub fn raise_open_files() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => Some(hard),
        Err(_) => Some(soft),
    }
}
