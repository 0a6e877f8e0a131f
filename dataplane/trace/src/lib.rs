//! Facts about packets on this machine: what its kernel does with those of a client, a frontend and its endpoints, and what the
//! network and the endpoints answer.
//!
//! The crate looks and probes. It changes nothing on the machine and judges nothing. Calls block, each for a bounded time. What cannot be
//! seen is [`Unseen`], which names the missing right, file or part of the kernel. `README.md` lists what each module needs.
#![forbid(unsafe_code)]

pub mod capture;
pub mod conntrack;
pub mod endpoint_probe;
pub mod link;
pub mod neighbour;
mod netlink;
pub mod packet_filter;
pub mod path_mtu;
pub mod route;
pub mod segment;
pub mod socket;
mod unseen;

pub use sheave_announce::MacAddress;
pub use unseen::{Errno, Missing, Right, Unseen};
