//! Kernel path: frontends that need no proxy, compiled to nftables. The kernel forwards their connections by itself, also while no
//! process of Sheave runs.
//!
//! [`Forwarding`] says what becomes of a frontend's new connections. A plan turns all of them into the elements and chains of a
//! [`ruleset`], and a change of some into a few changes of elements. The crate knows no health, loads or sockets of the proxy.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

pub mod attributes;
mod batch;
mod conntrack;
mod elements;
mod encoding;
mod error;
mod expressions;
mod forwarding;
pub mod jhash;
pub mod meaning;
mod netlink;
mod pinned;
mod plan;
mod requirements;
mod rules;
pub mod ruleset;
mod sets;
mod slots;
mod stale;
mod table;
mod table_state;
pub mod tuple;

pub use conntrack::{Flows, Tracked, TranslatedFlow};
pub use error::Error;
pub use forwarding::{Decision, Forwarding, Masquerade, Method};
pub use pinned::{affinity_record, open_connection};
pub use plan::Plan;
pub use requirements::{Obstacle, obstacles};
pub use slots::hashed;
pub use table::{Applied, KernelTable, LeftOver, Options, Present};
