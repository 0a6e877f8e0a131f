//! Label selectors of pools: `matchLabels` and `matchExpressions` of the Kubernetes API.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Expression, Selector, SelectorExt as _};

use crate::api::problem::ObjectRef;
use crate::api::problem::report::Report;

/// The only label of a Namespace that is known without reading it: the API server sets it to the name.
pub(super) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Selector of a pool. Without requirements it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolSelector {
    selector: Selector,
    /// Label keys of the requirements.
    keys: BTreeSet<String>,
}

impl PoolSelector {
    /// Reads a selector. An invalid requirement is reported and matches nothing: a pool that is closed by mistake does less harm
    /// than an open one. `known_key` is the only label that can be evaluated; `None` means every label.
    pub(super) fn read(
        selector: Option<&LabelSelector>,
        field: &str,
        known_key: Option<&str>,
        report: &mut Report,
    ) -> Self {
        let Some(selector) = selector else { return Self::default() };
        let labels = selector.match_labels.iter().flatten();
        let mut requirements: Vec<(&String, Expression)> =
            labels.map(|(key, value)| (key, Expression::Equal(key.clone(), value.clone()))).collect();
        for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
            let expression = expression(requirement).unwrap_or_else(|why| {
                report.invalid(
                    format!("{field}.matchExpressions[{index}]"),
                    format!("{why}; it matches nothing"),
                );
                nothing(&requirement.key)
            });
            requirements.push((&requirement.key, expression));
        }
        if let Some(known) = known_key {
            for (key, expression) in requirements.iter_mut().filter(|(key, _)| *key != known) {
                let message = format!("only the label {known} can be judged; {key} matches nothing");
                report.invalid(field, message);
                *expression = nothing(key);
            }
        }
        let keys = requirements.iter().map(|(key, _)| (*key).clone()).collect();
        Self { selector: requirements.into_iter().map(|(_, expression)| expression).collect(), keys }
    }

    /// Whether it uses no label but this one.
    pub(super) fn needs_only(&self, key: &str) -> bool {
        self.keys.iter().all(|needed| needed == key)
    }

    /// Whether it has no requirements.
    pub(super) fn is_empty(&self) -> bool {
        self.selector.selects_all()
    }

    /// Whether the labels meet every requirement.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }
}

/// Whether a selector of the Gateway API matches a Namespace. An invalid requirement matches nothing, and neither does one about
/// labels of a Namespace that is unknown.
pub(in crate::projection) fn selects_namespace(
    selector: &LabelSelector,
    name: &str,
    namespace: Option<&Namespace>,
) -> bool {
    let nobody = ObjectRef { kind: "", namespace: "".into(), name: "".into() };
    let selector = PoolSelector::read(Some(selector), "", None, &mut Report::about(nobody));
    if namespace.is_none() && !selector.needs_only(NAMESPACE_NAME) {
        return false;
    }
    let mut labels = namespace.and_then(|known| known.metadata.labels.clone()).unwrap_or_default();
    labels.insert(NAMESPACE_NAME.to_owned(), name.to_owned());
    selector.matches(&labels)
}

/// A requirement that no label meets.
fn nothing(key: &str) -> Expression {
    Expression::In(key.to_owned(), BTreeSet::new())
}

/// Like `Expression::try_from`, but rejects lists of values that the API server rejects.
fn expression(requirement: &LabelSelectorRequirement) -> Result<Expression, String> {
    let key = requirement.key.clone();
    let values: BTreeSet<String> = requirement.values.iter().flatten().cloned().collect();
    match (requirement.operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(Expression::In(key, values)),
        ("NotIn", false) => Ok(Expression::NotIn(key, values)),
        ("Exists", true) => Ok(Expression::Exists(key)),
        ("DoesNotExist", true) => Ok(Expression::DoesNotExist(key)),
        (operator @ ("In" | "NotIn"), true) => Err(format!("{operator} needs values")),
        (operator @ ("Exists" | "DoesNotExist"), false) => Err(format!("{operator} takes no values")),
        (other, _) => Err(format!("{other:?} is not In, NotIn, Exists or DoesNotExist")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str, known_key: Option<&str>) -> (PoolSelector, usize) {
        let selector: LabelSelector = serde_saphyr::from_str(yaml).unwrap();
        let object = ObjectRef { kind: "AddressPool", namespace: "".into(), name: "p".into() };
        let mut report = Report::about(object);
        (
            PoolSelector::read(Some(&selector), "spec.serviceSelector", known_key, &mut report),
            report.into_problems().len(),
        )
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_requirement_has_to_be_met() {
        let (selector, problems) = read(
            "{matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [a, b]}, \
             {key: env, operator: NotIn, values: [test]}, {key: team, operator: Exists}, {key: old, operator: DoesNotExist}]}",
            None,
        );
        assert_eq!(problems, 0);
        let good = [("app", "web"), ("tier", "b"), ("team", "x")];
        assert!(selector.matches(&labels(&good)));
        for bad in [("app", "db"), ("tier", "c"), ("env", "test"), ("old", "")] {
            let mut all = labels(&good);
            all.insert(bad.0.into(), bad.1.into());
            assert!(!selector.matches(&all), "{bad:?}");
        }
        assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "a")])));
    }

    #[test]
    fn a_requirement_that_cannot_be_read_matches_nothing_and_is_reported() {
        for expression in [
            "{key: a, operator: Equals}",
            "{key: a, operator: In}",
            "{key: a, operator: Exists, values: [b]}",
        ] {
            let (selector, problems) = read(&format!("{{matchExpressions: [{expression}]}}"), None);
            assert_eq!(problems, 1, "{expression}");
            assert!(
                !selector.matches(&labels(&[("a", "b")])) && !selector.matches(&labels(&[])),
                "{expression}"
            );
        }
    }

    #[test]
    fn a_label_that_cannot_be_judged_matches_nothing() {
        let (selector, problems) =
            read("{matchExpressions: [{key: env, operator: NotIn, values: [test]}]}", Some(NAMESPACE_NAME));
        assert_eq!(problems, 1);
        assert!(!selector.matches(&labels(&[(NAMESPACE_NAME, "shop")])));
    }
}
