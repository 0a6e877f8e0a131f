//! Label selectors of pools: the `matchLabels` and `matchExpressions` of the Kubernetes API.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::api::problem::report::Report;

/// The one label of a Namespace that is known without reading it: the API server sets it to the name.
pub(super) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// One requirement that labels must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    /// A requirement that cannot be read admits nothing: a pool that is closed by mistake does less harm than an
    /// open one.
    Never,
}

/// A selector that was read; without requirements it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    /// Reads a selector, reporting each requirement that cannot be met. `known_keys` limits the keys that can be
    /// judged at all; `None` means every key.
    pub(super) fn read(
        selector: Option<&LabelSelector>,
        field: &str,
        known_key: Option<&str>,
        report: &mut Report,
    ) -> Self {
        let Some(selector) = selector else { return Self::default() };
        let labels = selector.match_labels.iter().flatten();
        let mut requirements: Vec<Requirement> = labels
            .map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) })
            .collect();
        for (index, expression) in selector.match_expressions.iter().flatten().enumerate() {
            let test = test(expression).unwrap_or_else(|why| {
                report.invalid(
                    format!("{field}.matchExpressions[{index}]"),
                    format!("{why}; it matches nothing"),
                );
                Test::Never
            });
            requirements.push(Requirement { key: expression.key.clone(), test });
        }
        if let Some(known) = known_key {
            for unknown in requirements.iter_mut().filter(|requirement| requirement.key != known) {
                let message =
                    format!("only the label {known} can be judged; {} matches nothing", unknown.key);
                report.invalid(field, message);
                unknown.test = Test::Never;
            }
        }
        Self { requirements }
    }

    /// Whether it can be judged by the name of a Namespace alone.
    pub(super) fn needs_only(&self, key: &str) -> bool {
        self.requirements.iter().all(|requirement| requirement.key == key)
    }

    /// Whether there is nothing to meet.
    pub(super) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels meet every requirement.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                // As in the API: a label that is not there is not in the list either.
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::Never => false,
            }
        })
    }
}

fn test(expression: &LabelSelectorRequirement) -> Result<Test, String> {
    let values = expression.values.clone().unwrap_or_default();
    match (expression.operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(Test::In(values)),
        ("NotIn", false) => Ok(Test::NotIn(values)),
        ("Exists", true) => Ok(Test::Exists),
        ("DoesNotExist", true) => Ok(Test::Absent),
        (operator @ ("In" | "NotIn"), true) => Err(format!("{operator} needs values")),
        (operator @ ("Exists" | "DoesNotExist"), false) => Err(format!("{operator} takes no values")),
        (other, _) => Err(format!("{other:?} is not In, NotIn, Exists or DoesNotExist")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::ObjectRef;

    fn read(yaml: &str, known_key: Option<&str>) -> (Selector, usize) {
        let selector: LabelSelector = serde_saphyr::from_str(yaml).unwrap();
        let object = ObjectRef { kind: "AddressPool", namespace: "".into(), name: "p".into() };
        let mut report = Report::about(object);
        (
            Selector::read(Some(&selector), "spec.serviceSelector", known_key, &mut report),
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
