//! Sheave's data plane: accepts TCP and UDP on the frontends of a routing table and forwards to their endpoints.
//!
//! The packet's way through the modules: `listener` opens the sockets, or has `steering` do without, [`select`] chooses an
//! endpoint, [`tcp`] connects and relays, [`udp`] keeps flows. Both tell `health` of endpoints that fail, and picks avoid
//! those. The table's way: a `RoutingTable` is compared with the one before, and only what changed touches a socket.
//!
//! It must not know Kubernetes: everything arrives as the values of [`sheave_model`].

mod admitted;
pub mod balance;
mod capacity;
pub mod counters;
mod fleet;
mod health;
mod limiter;
mod listener;
mod observer;
mod overload;
mod paths;
pub mod proxy_protocol;
pub mod select;
mod services;
pub mod shed;
mod splitmix64;
mod steering;
mod sys;
mod task;
pub mod tcp;
mod throttle;
pub mod transparent;
pub mod udp;
mod worker;
mod workers;

pub use capacity::{CapacityLimits, MemoryGauge, MemoryLeft};
pub use fleet::{Dataplane, Drained, Options};
pub use health::{HealthCounts, UnhealthyEndpoint};
pub use listener::BindFailure;
pub use observer::Observer;
pub use overload::Overloaded;
pub use steering::{SteeringMode, SteeringReport};
pub use sys::rlimit::raise_open_files;
pub use transparent::return_path::ReturnPathError;
pub use worker::Timeouts;
