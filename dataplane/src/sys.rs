//! Raw system calls on async sockets: the only module of the data plane that may hold `unsafe`, and the only one that
//! names file descriptors. It must not know frontends, tables or tasks.

#![allow(unsafe_code, reason = "system calls that std, nix and socket2 do not wrap")]

pub(crate) mod accept;
pub(crate) mod pipe;
pub(crate) mod rlimit;
pub(crate) mod stream;
pub(crate) mod watch;
