//! Label selectors of other projects: joins lists of alternatives into the single selector of an AddressPool.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;

/// Reads a selector; `None` if it is malformed.
pub(super) fn read(value: &Value) -> Option<LabelSelector> {
    serde_json::from_value(value.clone()).ok()
}

/// Reads a list of selectors; `None` if it is malformed.
pub(super) fn read_list(value: Option<&Value>) -> Option<Vec<LabelSelector>> {
    let Some(value) = value else { return Some(Vec::new()) };
    value.as_array()?.iter().map(read).collect()
}

/// Selector for `key in (values)`.
pub(super) fn one_of(key: &str, values: impl IntoIterator<Item = String>) -> LabelSelector {
    requirement(key, "In", values)
}

/// Selector for `key notin (values)`, which objects without the label match, too.
pub(super) fn none_of(key: &str, values: impl IntoIterator<Item = String>) -> LabelSelector {
    requirement(key, "NotIn", values)
}

fn requirement(key: &str, operator: &str, values: impl IntoIterator<Item = String>) -> LabelSelector {
    let requirement = LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values.into_iter().collect::<BTreeSet<_>>().into_iter().collect()),
    };
    LabelSelector { match_expressions: Some(vec![requirement]), match_labels: None }
}

/// Keys of the labels that a selector is about.
pub(super) fn keys(selector: &LabelSelector) -> impl Iterator<Item = &String> {
    let labels = selector.match_labels.iter().flat_map(BTreeMap::keys);
    labels.chain(selector.match_expressions.iter().flatten().map(|expression| &expression.key))
}

/// Result of joining alternatives.
#[derive(Debug, PartialEq)]
#[must_use]
pub(super) enum Joined {
    /// There is no alternative, or one of them selects everything.
    Everything,
    /// An equivalent selector.
    One(LabelSelector),
    /// No single selector is equivalent. Holds the first alternative.
    Several(LabelSelector),
}

/// Joins alternatives into one selector.
pub(super) fn join(alternatives: &[LabelSelector]) -> Joined {
    let [first, others @ ..] = alternatives else { return Joined::Everything };
    if alternatives.iter().any(is_empty) {
        return Joined::Everything;
    }
    if others.iter().all(|other| other == first) {
        return Joined::One(first.clone());
    }
    let values: Option<Vec<(String, Vec<String>)>> = alternatives.iter().map(values_of_one_label).collect();
    match values.as_deref() {
        Some([(key, _), rest @ ..]) if rest.iter().all(|(other, _)| other == key) => {
            let values = values.iter().flatten().flat_map(|(_, values)| values.clone());
            Joined::One(one_of(key, values))
        }
        _ => Joined::Several(first.clone()),
    }
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// The label and its values, if the selector only requires one of several values for one label.
fn values_of_one_label(selector: &LabelSelector) -> Option<(String, Vec<String>)> {
    let labels: Vec<_> = selector.match_labels.iter().flatten().collect();
    match (labels.as_slice(), selector.match_expressions.as_deref().unwrap_or_default()) {
        ([(key, value)], []) => Some(((*key).clone(), vec![(*value).clone()])),
        ([], [requirement]) if requirement.operator == "In" => {
            Some((requirement.key.clone(), requirement.values.clone().unwrap_or_default()))
        }
        _ => None,
    }
}

/// Whether labels match the selector. A malformed selector matches nothing.
pub(super) fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(yaml: &str) -> LabelSelector {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn alternatives_of_one_label_are_one_selector() {
        let zones = [
            selector("{matchLabels: {zone: b}}"),
            selector("{matchExpressions: [{key: zone, operator: In, values: [c, a]}]}"),
        ];
        assert_eq!(join(&zones), Joined::One(one_of("zone", ["a", "b", "c"].map(str::to_owned))));
        assert_eq!(join(&zones[..1]), Joined::One(zones[0].clone()));
    }

    #[test]
    fn an_empty_alternative_admits_everything() {
        assert_eq!(join(&[]), Joined::Everything);
        assert_eq!(join(&[selector("{matchLabels: {zone: b}}"), selector("{}")]), Joined::Everything);
    }

    #[test]
    fn alternatives_of_several_labels_are_no_selector() {
        let several = [selector("{matchLabels: {zone: b}}"), selector("{matchLabels: {rack: r1}}")];
        assert_eq!(join(&several), Joined::Several(several[0].clone()));
    }
}
