//! What a split frontend has and forwards.

use super::*;
use crate::test_util::{endpoint_addr, frontend, pool, refused, split};
use crate::{Algorithm, RefusedPart, Route};

fn endpoints(frontend: &Frontend) -> Vec<crate::EndpointAddr> {
    let backends = frontend.pools().flat_map(|pool| pool.backends.iter());
    backends.flat_map(|backend| &backend.endpoints).map(|endpoint| endpoint.addr).collect()
}

#[test]
fn a_frontend_that_is_not_split_is_its_only_pool() {
    let plain = frontend(1, Algorithm::Random, &[(1, 100)]);
    assert!(plain.pools().all(|pool| std::ptr::eq(pool, &plain)));
    assert_eq!(endpoints(&plain), [endpoint_addr(1)]);
}

#[test]
fn pools_are_those_of_all_parts_with_or_without_weight() {
    let parts = [pool(1, 70, &[(1, 100)]), refused("gone", 30), pool(2, 0, &[(2, 100)]), pool(3, 1, &[])];
    let whole = split(1, Algorithm::Random, parts);
    assert_eq!(endpoints(&whole), [endpoint_addr(1), endpoint_addr(2)]);
    assert!(whole.has_endpoints());
    assert_eq!(whole.pools().count(), 3);
    assert!(!split(1, Algorithm::Random, [refused("gone", 1), pool(1, 1, &[])]).has_endpoints());
}

#[test]
fn a_split_forwards_if_a_part_with_weight_does() {
    let forwards = |parts: &[SplitPart]| {
        let whole = split(1, Algorithm::Random, parts.iter().cloned());
        *whole.route(|pool| &pool.external) != Route::Reject
    };
    let endpoint: &[(u32, u16)] = &[(1, 100)];
    assert!(forwards(&[refused("gone", 9), pool(1, 1, endpoint)]));
    assert!(!forwards(&[refused("gone", 9), pool(1, 0, endpoint)]), "without weight");
    assert!(!forwards(&[refused("gone", 9), pool(1, 1, &[])]), "without endpoint");
    let plain = Frontend { external: Route::Drop, ..frontend(1, Algorithm::Random, endpoint) };
    assert_eq!(*plain.route(|it| &it.external), Route::Drop);
}

#[test]
fn reasons_are_those_of_the_gateway_api() {
    let all = [
        RefusedPart::BackendNotFound,
        RefusedPart::InvalidKind,
        RefusedPart::RefNotPermitted,
        RefusedPart::UnsupportedProtocol,
    ];
    assert!(all.iter().all(|reason| reason.name() == format!("{reason:?}")));
}
