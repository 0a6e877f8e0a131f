//! Numbered frontends for the benches, each with its own range of endpoints.

use std::sync::Arc;

use sheave_model::{Affinity, Algorithm, Frontend, FrontendAddr, PartTarget, Protocol, SplitPart, test_util};

pub(crate) use sheave_model::test_util::{endpoint_addr, frontend_addr, table};

/// Frontend with this many endpoints.
pub(crate) fn frontend(number: u32, algorithm: Algorithm, affinity: Affinity, endpoints: u32) -> Frontend {
    let first = number * 16;
    let endpoints: Vec<(u32, u16)> = (first..first + endpoints).map(|endpoint| (endpoint, 100)).collect();
    Frontend { affinity, ..test_util::frontend(number, algorithm, &endpoints) }
}

/// Frontend split evenly over two parts with this many endpoints each.
#[allow(dead_code, reason = "not every bench has splits")]
pub(crate) fn split_frontend(
    number: u32,
    protocol: Protocol,
    algorithm: Algorithm,
    affinity: Affinity,
    endpoints: u32,
) -> Frontend {
    let part = |part: u32| {
        let pool = frontend(2 * number + part, algorithm, affinity, endpoints);
        let name = format!("Service shop/{}:80", pool.service.name).into();
        SplitPart { name, weight: 50, target: PartTarget::Pool(Arc::new(pool)) }
    };
    let mut whole = test_util::split(number, algorithm, [part(0), part(1)]);
    let addr = FrontendAddr { protocol, ..whole.addr };
    test_util::move_split(&mut whole, addr);
    whole
}
