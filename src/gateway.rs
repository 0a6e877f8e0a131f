//! Gateway: sources fill the store, the projection builds the routing table, and the data plane forwards traffic
//! by it.

mod bgp_devices;
pub(crate) mod capacity;
mod dataplane_failures;
pub(crate) mod event_loop;
mod gateway_problems;
pub(crate) mod options;
mod overload;
pub(crate) mod sources;
pub(crate) mod startup_log;
