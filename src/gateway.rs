//! Gateway: sources fill the store, the projection builds the routing table, and the data plane forwards traffic
//! by it.

mod bgp_devices;
pub(crate) mod capacity;
pub(crate) mod event_loop;
pub(crate) mod options;
mod overload;
mod problem_log;
mod problems;
pub(crate) mod sources;
pub(crate) mod startup_log;
