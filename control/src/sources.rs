//! Where objects come from: API servers, folders of manifests, and the snapshot on disk. Each source fills [`crate::api::store`],
//! and none confuses a list that failed with a list that is empty.

pub mod api_server;
pub mod connection;
pub mod manifests;
pub mod mass_deletion_guard;
pub mod snapshot;
