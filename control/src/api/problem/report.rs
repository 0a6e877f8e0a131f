//! Collects the Problems of one object while it is read.

use std::collections::BTreeMap;

use crate::api::problem::{ObjectRef, Problem, ProblemPort, reason};
use crate::text::{MAX_MESSAGE_BYTES, cut_middle};

/// How many Problems of one object and reason are listed individually: a list in a Service can have a hundred thousand entries.
const ONE_BY_ONE: usize = 64;

/// The Problems found so far in one object.
#[derive(Debug)]
pub(crate) struct Report {
    object: ObjectRef,
    problems: Vec<Problem>,
    /// Number of Problems found, by reason.
    counts: BTreeMap<&'static str, usize>,
}

impl Report {
    pub(crate) fn about(object: ObjectRef) -> Self {
        Self { object, problems: Vec::new(), counts: BTreeMap::new() }
    }

    pub(crate) fn add(
        &mut self,
        reason: &'static str,
        field: impl Into<String>,
        port: Option<ProblemPort>,
        message: impl Into<String>,
    ) {
        let count = self.counts.entry(reason).or_default();
        *count += 1;
        if *count > ONE_BY_ONE {
            return;
        }
        self.problems.push(Problem {
            object: self.object.clone(),
            reason,
            field: field.into(),
            // The message may quote a value that is as long as an object.
            message: cut_middle(message.into(), MAX_MESSAGE_BYTES),
            port,
        });
    }

    /// A value that the API does not allow.
    pub(crate) fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(reason::INVALID_VALUE, field, None, message);
    }

    /// A value that is not valid for one port.
    pub(crate) fn invalid_port(
        &mut self,
        field: impl Into<String>,
        port: ProblemPort,
        message: impl Into<String>,
    ) {
        self.add(reason::INVALID_VALUE, field, Some(port), message);
    }

    /// Adds Problems that were found elsewhere.
    pub(crate) fn extend(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    /// All Problems. If a reason has too many, a last Problem gives the number of the others.
    pub(crate) fn into_problems(mut self) -> Vec<Problem> {
        for (reason, more) in std::mem::take(&mut self.counts) {
            if let Some(more @ 1..) = more.checked_sub(ONE_BY_ONE) {
                self.problems.push(Problem {
                    object: self.object.clone(),
                    reason,
                    field: String::new(),
                    message: format!(
                        "{more} more fields or values have Problems for this reason; they are not listed"
                    ),
                    port: None,
                });
            }
        }
        self.problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_mistakes_are_a_few_problems_and_a_number() {
        let mut report =
            Report::about(ObjectRef { kind: "Service", namespace: "shop".into(), name: "web".into() });
        for index in 0..100_000 {
            report.invalid(format!("spec.x[{index}]"), "no");
        }
        report.add(reason::NOT_SERVED, "spec", None, "nothing of it can be served");
        let problems = report.into_problems();
        assert_eq!(problems.len(), ONE_BY_ONE + 2);
        assert_eq!(problems[ONE_BY_ONE].reason, reason::NOT_SERVED);
        let last = problems.last().unwrap();
        let message = "99936 more fields or values have Problems for this reason; they are not listed";
        assert_eq!((last.reason, last.message.as_str()), (reason::INVALID_VALUE, message));
    }

    #[test]
    fn as_many_as_are_listed_are_all_there_are() {
        let mut report =
            Report::about(ObjectRef { kind: "Service", namespace: "shop".into(), name: "web".into() });
        (0..ONE_BY_ONE).for_each(|index| report.invalid(format!("spec.x[{index}]"), "no"));
        assert_eq!(report.into_problems().len(), ONE_BY_ONE);
    }
}
