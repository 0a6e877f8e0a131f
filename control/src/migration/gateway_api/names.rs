//! Names of migrated objects: valid, the same for the same input, and each used once.

use std::collections::BTreeSet;

use crate::api::gateway_api::GROUP;
use crate::net::{DNS_NAME, is_object_name};
use crate::sources::manifests::RawObject;

/// Name of an object whose source has no usable name.
const NAMELESS: &str = "gateway";

/// Names that objects of the Gateway API have, by kind and namespace.
#[derive(Debug)]
pub(in crate::migration) struct ObjectNames {
    taken: BTreeSet<(String, String, String)>,
}

impl ObjectNames {
    /// The names that are in use already.
    pub(in crate::migration) fn of(objects: &[RawObject]) -> Self {
        let there = objects.iter().filter(|it| it.group() == GROUP);
        let name = |it: &RawObject| (it.kind().to_owned(), it.namespace().to_owned(), it.name().to_owned());
        Self { taken: there.map(name).collect() }
    }

    /// The wanted name in valid form, with a number behind it if another object has it.
    pub(super) fn unique(&mut self, kind: &str, namespace: &str, wanted: &str) -> String {
        let key = |name: &str| (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let name = valid(wanted);
        if self.taken.insert(key(&name)) {
            return name;
        }
        let mut number = 2;
        loop {
            let suffix = format!("-{number}");
            let numbered = cut(&name, DNS_NAME - suffix.len()).to_owned() + &suffix;
            if self.taken.insert(key(&numbered)) {
                return numbered;
            }
            number += 1;
        }
    }
}

/// The name, as far as it may name an object.
fn valid(name: &str) -> String {
    if is_object_name(name) {
        return name.to_owned();
    }
    let letter = |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' };
    let cleaned: String = name.chars().map(letter).collect();
    match cut(cleaned.trim_matches('-'), DNS_NAME) {
        "" => NAMELESS.to_owned(),
        name => name.to_owned(),
    }
}

/// The start of an ASCII name that may end where it ends.
fn cut(name: &str, longest: usize) -> &str {
    name.get(..longest).unwrap_or(name).trim_end_matches(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_each_is_used_once() {
        let mut names = ObjectNames::of(&[]);
        let long = "a.".repeat(126) + "bc";
        for wanted in ["web", "web-2", "web", "", "\u{7}", "Öl_1", &long, &long, &"-".repeat(300)] {
            let name = names.unique("Gateway", "shop", wanted);
            assert!(is_object_name(&name), "{wanted:?}: {name:?}");
        }
        let names: Vec<&str> = names.taken.iter().map(|(_, _, name)| name.as_str()).collect();
        assert_eq!(names.len(), 9);
        assert!(["web", "web-2", "web-3", "gateway", "gateway-2", "l-1"].iter().all(|it| names.contains(it)));
    }

    #[test]
    fn a_name_is_taken_within_its_kind_and_namespace() {
        let mut names = ObjectNames::of(&[]);
        for (kind, namespace) in [("Gateway", "a"), ("Gateway", "b"), ("TCPRoute", "a")] {
            assert_eq!(names.unique(kind, namespace, "web"), "web");
        }
    }
}
