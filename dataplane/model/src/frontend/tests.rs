//! Contents and routes of frontends that are split or have server names.

use super::*;
use crate::test_util::{endpoint_addr, frontend, pool, refused, split, with_server_names};
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

#[test]
fn the_most_specific_pattern_has_a_name_even_if_it_leads_nowhere() {
    let target = |number| Arc::new(frontend(number, Algorithm::Random, &[]));
    let names = [
        ("a.shop.example", Some(0)),
        ("*.shop.example", Some(1)),
        ("*.closed.shop.example", None),
        ("closed.example", None),
        ("*.example", Some(2)),
        ("a.shop.example", Some(2)),
    ];
    let names = ServerNames::new(
        vec![target(1), target(2), target(3)],
        names.map(|(name, target)| (ServerNamePattern::new(name), target)),
    );
    for (name, expected) in [
        ("a.shop.example", Some(0)),
        ("b.shop.example", Some(1)),
        ("b.a.shop.example", Some(1)),
        ("x.closed.shop.example", None),
        ("closed.shop.example", Some(1)),
        ("closed.example", None),
        ("shop.example", Some(2)),
        ("example", None),
        ("", None),
        ("a.b.c.d.e.f.g.example", Some(2)),
        ("shop.example.org", None),
    ] {
        assert_eq!(names.target(name), expected, "{name}");
    }
    let patterns: Vec<String> = names.patterns().iter().map(|(pattern, _)| pattern.to_string()).collect();
    assert_eq!(
        patterns,
        ["a.shop.example", "closed.example", "*.closed.shop.example", "*.example", "*.shop.example",]
    );
}

#[test]
fn server_names_forward_if_a_target_does_and_are_bound_in_any_case() {
    let is_bound = |whole: &Frontend, forwards| {
        assert_eq!(matches!(whole.route(|it| &it.external), Route::Forward(_)), forwards);
        whole.is_bound()
    };
    let empty = split(1, Algorithm::Random, [pool(1, 0, &[(1, 100)]), refused("gone", 1)]);
    let full = split(1, Algorithm::Random, [pool(1, 1, &[(1, 100)])]);
    let unsplit = frontend(1, Algorithm::Random, &[(1, 100)]);
    for (targets, forwards) in [
        (vec![], false),
        (vec![&empty], false),
        (vec![&empty, &full], true),
        (vec![&empty, &unsplit], true),
        (vec![&empty, &empty], false),
    ] {
        let names = ["a.example", "b.example"];
        let whole = with_server_names(1, names.into_iter().zip(targets.into_iter().cloned()));
        assert!(is_bound(&whole, forwards), "always: a client has to connect before it can ask for a name");
    }
    assert!(is_bound(&full, true) && !is_bound(&empty, false));
    let dropped = Frontend { external: Route::Drop, ..frontend(1, Algorithm::Random, &[]) };
    assert!(is_bound(&dropped, false) && !is_bound(&frontend(1, Algorithm::Random, &[]), false));
}
