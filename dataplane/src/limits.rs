//! Limits of traffic: capacity of the gateway, limits of Services, and overload.

pub(crate) mod capacity;
pub(crate) mod overload;
pub(crate) mod refusals;
pub(crate) mod service;
