//! MultiClusterServices: what one asks for, and from which clusters it is served.

mod status;

pub use self::status::{ClusterState, ClusterStatus, Drain, FleetStatus, Resolved};
