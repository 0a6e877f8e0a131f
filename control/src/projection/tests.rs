//! The projection through its public face: manifests in, frontends and Problems out.

mod addresses;
mod conflicts;
mod endpoints;
mod explain;
mod fields;
mod incremental;
mod kinds;
mod placement;
mod reference;
mod support;
