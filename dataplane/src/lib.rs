//! Sheave's data plane: accepts TCP and UDP on the frontends of a routing table and forwards to their endpoints.
//!
//! A packet passes these modules: `listener` opens the sockets, or `steering` replaces them by a few shared ones;
//! [`select`] picks an endpoint; `tcp` connects and relays; `udp` keeps flows. `tcp` and `udp` report failing endpoints to
//! `health`, and picks avoid those. A new `RoutingTable` is compared with its predecessor, and only the frontends that
//! changed touch a socket.
//!
//! The crate has no knowledge of Kubernetes: everything arrives as values of [`sheave_model`].

pub mod balance;
mod client_traffic;
mod connection_log;
pub mod counters;
mod dataplane;
mod event_loop;
pub mod handover;
mod health;
mod kernel_path;
mod limits;
mod listener;
mod log_throttle;
mod memory;
mod namespace_lock;
mod node_settings;
mod paths;
mod port_search;
pub mod proxy_protocol;
pub mod select;
mod splitmix64;
mod sys;
mod tcp;
pub mod transparent;
mod udp;
mod upstream_addresses;
mod weak_map;
mod worker;
mod worker_port;

// Under the path `crate::sync`, so that tests/interleavings can substitute its own module.
use std::sync;

pub use client_traffic::{ClientCounts, ClientPrefix, ClientTraffic, TrafficWatch};
pub use connection_log::{ConnectionLog, ConnectionRecord, LoggedEndpoint, LoggedFrontend};
pub use dataplane::{
    Dataplane, Drained, HandedListeners, ListenersToHandOver, Observer, Options, claim_local_ports,
    local_ports_claim, take_over_local_ports,
};
pub use event_loop::watchdog::StuckWorker;
pub use health::{EndpointCounts, EndpointFailures, HealthCounts, UnhealthyEndpoint};
pub use kernel_path::{
    KernelPathError, KernelPathErrors, KernelPathOptions, Pinned, hashed_by_kernel, pinned_by_kernel,
};
pub use limits::capacity::{CapacityLimits, MemoryGauge, MemoryLeft};
pub use listener::BindFailure;
pub use listener::overload::Overloaded;
pub use listener::steering::{SteeringMode, SteeringReport};
pub use memory::{MemoryWatch, memory_limit};
pub use node_settings::{SmallSetting, small_settings};
pub use sys::privileges::give_up_privileges;
pub use sys::raise_open_files;
pub use sys::tun::{check_tun, open_tun};
pub use tcp::client_hello::{
    ClientHelloError, ClientHelloParser, LONGEST_HELLO, ParsedClientHello, server_name,
};
pub use transparent::return_path::ReturnPathError;
pub use udp::local_ports::claim::LocalPortsError;
pub use worker::context::{Settings, Timeouts};
