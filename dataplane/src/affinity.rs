//! Session affinity by client address: which endpoint a client's last new connection or flow went to, and until when
//! that counts. Shared by all workers and bounded.

/// Affinity records of every Service port.
#[derive(Debug, Default)]
pub struct AffinityTable {}
