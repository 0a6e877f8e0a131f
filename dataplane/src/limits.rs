//! Limits of traffic: capacity of the gateway, limits of Services, and refusals.

pub(crate) mod capacity;
pub(crate) mod refusals;
pub(crate) mod service;
