//! What limits traffic: what the gateway has room for, what each Service may have, and what happens beyond that.

pub(crate) mod capacity;
pub(crate) mod overload;
pub(crate) mod refusals;
pub(crate) mod service;
