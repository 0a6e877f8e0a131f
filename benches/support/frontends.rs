//! Numbered frontends for the benches, each with its own range of endpoints.

use std::sync::Arc;

use sheave_model::{
    Affinity, Algorithm, Frontend, FrontendAddr, PartTarget, Protocol, ServerNamePattern, ServerNames,
    SplitPart, test_util,
};

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

/// Frontend with this many server names, each of which leads to two endpoints, also with further labels before it.
#[allow(dead_code, reason = "not every bench has server names")]
pub(crate) fn named_frontend(number: u32, names: u32) -> Frontend {
    let texts: Vec<String> = (0..names).map(server_name).collect();
    let targets = (0..names).map(|name| named_target(name, 2 * name));
    let whole = test_util::with_server_names(number, texts.iter().map(String::as_str).zip(targets));
    let targets = whole.server_names.iter().flat_map(|names| names.targets()).cloned().collect();
    with_targets(&whole, targets)
}

/// Target of a server name with two endpoints, of which this is the first.
#[allow(dead_code, reason = "not every bench has server names")]
pub(crate) fn named_target(name: u32, first: u32) -> Frontend {
    let pool = test_util::pool(name, 1, &[(first, 100), (first + 1, 100)]);
    test_util::split(name, Algorithm::LeastConnections, [pool])
}

/// The frontend with other targets for the same names.
#[allow(dead_code, reason = "not every bench has server names")]
pub(crate) fn with_targets(whole: &Frontend, targets: Vec<Arc<Frontend>>) -> Frontend {
    let patterns: Vec<_> = (0..targets.len() as u32)
        .zip(0..)
        .flat_map(|(name, target)| {
            let name = server_name(name);
            [format!("*.{name}"), name].map(|name| (ServerNamePattern::new(&name), Some(target)))
        })
        .collect();
    Frontend { server_names: Some(Arc::new(ServerNames::new(targets, patterns))), ..whole.clone() }
}

fn server_name(number: u32) -> String {
    format!("n{number}.example")
}
