//! The projection through its public interface: manifests in, frontends and Problems out.

mod addresses;
mod conflicts;
mod endpoints;
mod explain;
mod fields;
mod fleet;
mod fleet_limits;
mod fleet_rounds;
mod gateway_settings;
mod gateway_worlds;
mod history;
mod hostile;
mod incremental;
mod kinds;
mod multi_cluster;
mod other_load_balancers;
mod pools;
mod problems;
mod published_ports;
mod reference;
mod shared_addresses;
mod support;
mod unserved;
mod waiting;
mod worlds;
