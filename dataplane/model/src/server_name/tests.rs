//! Tests of server names: which pattern has a name.

use std::sync::Arc;

use super::{ServerNamePattern, ServerNames};
use crate::Algorithm;
use crate::test_util::frontend;

fn pattern(text: &str) -> ServerNamePattern {
    ServerNamePattern::new(text)
}

#[test]
fn a_wildcard_covers_names_below_its_domain_at_any_depth_but_not_the_domain() {
    let wildcard = pattern("*.shop.example");
    for covered in
        ["a.shop.example", "b.a.shop.example", "*.a.shop.example", "*.shop.example", "A.SHOP.example"]
    {
        assert!(wildcard.covers(&pattern(covered)), "{covered}");
    }
    for other in ["shop.example", "ashop.example", "*.example", "*.workshop.example", "a.shop.example.org"] {
        assert!(!wildcard.covers(&pattern(other)), "{other}");
    }
    assert!(!pattern("a.shop.example").covers(&wildcard));
}

#[test]
fn the_intersection_is_the_narrower_pattern() {
    let common = |one: &str, other: &str| pattern(one).intersection(&pattern(other)).map(ToString::to_string);
    assert_eq!(common("*.example", "a.example").as_deref(), Some("a.example"));
    assert_eq!(common("*.a.example", "*.example").as_deref(), Some("*.a.example"));
    assert_eq!(common("*.a.example", "*.b.example"), None);
    assert_eq!(common("a.example", "b.example"), None);
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
        names.map(|(name, target)| (pattern(name), target)),
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
