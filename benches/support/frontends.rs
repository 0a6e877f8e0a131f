//! Numbered frontends for the benches, each with its own range of endpoints.

use sheave_model::{Affinity, Algorithm, Frontend, test_util};

pub(crate) use sheave_model::test_util::{endpoint_addr, frontend_addr, table};

/// Frontend with this many endpoints.
pub(crate) fn frontend(number: u32, algorithm: Algorithm, affinity: Affinity, endpoints: u32) -> Frontend {
    let first = number * 16;
    let endpoints: Vec<(u32, u16)> = (first..first + endpoints).map(|endpoint| (endpoint, 100)).collect();
    Frontend { affinity, ..test_util::frontend(number, algorithm, &endpoints) }
}
