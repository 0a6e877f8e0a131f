//! The controller: of all that run, the elected one gives addresses, publishes status, conditions and Events, and takes back
//! what Services no longer need. Gateways forward without it.

pub mod conditions;
pub mod election;
pub mod events;
pub mod names;
pub mod pool_status;
pub mod publication;
pub mod publisher;
mod reports;
