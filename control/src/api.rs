//! The Kubernetes and Karmada API objects that Sheave reads and writes: types, names, decoding, the Problems found in them, and
//! the store that indexes them. No API client is here.

pub mod address_pool;
mod collection;
pub mod condition;
pub(crate) mod decode;
mod dependents;
pub mod gateway_api;
pub mod gateway_members;
pub mod gateway_report;
pub mod karmada;
pub(crate) mod keep_addresses;
pub mod kinds;
pub mod names;
pub mod object;
pub mod objects;
pub mod owners;
pub mod problem;
pub(crate) mod prune;
pub(crate) mod published_ports;
mod resource;
pub mod routes;
pub mod service_import;
pub mod service_key;
pub mod store;
