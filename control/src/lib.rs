//! Sheave's control loop: reads API objects from a source, keeps them in a store and projects them into the data plane's routing
//! table. The only crate that knows Kubernetes types.

pub mod api;
mod backoff;
pub mod controller;
pub mod delegated_auth;
pub mod migration;
mod net;
pub mod pipeline;
pub mod projection;
pub mod sources;
pub mod text;
pub mod time;
mod token_bucket;
