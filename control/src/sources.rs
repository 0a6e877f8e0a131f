//! Sources of objects: API servers, folders of manifests, and the snapshot on disk. Each source fills [`crate::api::store`], and
//! distinguishes a failed list from an empty one.

pub mod api_server;
pub mod connection;
pub mod manifests;
pub mod mass_deletion_guard;
pub mod port_forward;
pub mod snapshot;
