//! The end-to-end test kit: hosts as network namespaces, the gateway as a process in one of them, and the servers and
//! clients that speak through it.
//!
//! It knows the gateway only as a user does: manifests in, traffic and the admin server out.

#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod apiserver;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod clock;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod cluster;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod fleet;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod gateway;
pub(crate) mod host;
pub(crate) mod http;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod karmada;
pub(crate) mod load;
pub(crate) mod manifest;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod members;
pub(crate) mod patience;
pub(crate) mod process;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod road;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod seccomp;
pub(crate) mod sockets;
pub(crate) mod tcp;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod terminal;
pub(crate) mod transfer;
pub(crate) mod udp;
#[allow(dead_code, reason = "each test program uses a part of it")]
pub(crate) mod world;
