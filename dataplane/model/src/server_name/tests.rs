//! Tests of server names: which pattern has a name.

use super::{PatternMap, ServerNamePattern};

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
fn the_narrowest_pattern_covers_another() {
    let mut patterns = PatternMap::default();
    for text in ["*.example", "*.shop.example", "a.shop.example"] {
        patterns.add(pattern(text), text);
    }
    for (covered, by) in [
        ("a.shop.example", Some("a.shop.example")),
        ("*.a.shop.example", Some("*.shop.example")),
        ("*.shop.example", Some("*.shop.example")),
        ("shop.example", Some("*.example")),
        ("*.example", Some("*.example")),
        ("example", None),
        ("*.org", None),
    ] {
        assert_eq!(patterns.covering(&pattern(covered)).copied(), by, "{covered}");
    }
}
