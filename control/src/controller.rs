//! The controller: of all that run, the elected one gives addresses, publishes status, conditions and Events, and takes back
//! what Services no longer need. Gateways forward without it.

pub mod election;
pub mod events;
pub mod names;
mod reports;
