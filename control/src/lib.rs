//! Sheave's control loop: reads API objects from a source, keeps them in a store and projects them into the data
//! plane's routing table. The only crate that knows Kubernetes types.

pub mod address_pool;
mod allocator;
mod bounded;
pub mod connection;
pub mod controller;
pub mod due;
pub mod duration;
pub mod gateway_report;
pub mod guard;
mod host_name;
mod ip;
pub mod karmada;
pub mod problem;
pub mod projection;
mod report;
mod retry_after;
pub mod snapshot;
pub mod source;
pub mod store;
pub mod suggest;
