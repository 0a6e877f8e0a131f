//! A frontend's flows as others see them that need the room or the ports.

use std::time::Instant;

use sheave_model::EndpointAddr;

/// A frontend's flows on one worker.
pub(super) trait Tenant {
    /// How many there are.
    fn flows(&self) -> usize;

    /// Ends the one that was quiet the longest, of those to this endpoint if one is named; false if there is none.
    fn evict(&self, now: Instant, towards: Option<EndpointAddr>) -> bool;
}
