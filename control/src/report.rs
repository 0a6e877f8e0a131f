//! Collects the Problems of one object while it is read. Knows nothing of what they mean.

use crate::bounded::{LONGEST_MESSAGE, cut_middle};
use crate::problem::{ObjectRef, Problem, ProblemPort, reason};

/// The Problems found so far in one object.
#[derive(Debug)]
pub(crate) struct Report {
    object: ObjectRef,
    problems: Vec<Problem>,
}

impl Report {
    pub(crate) fn about(object: ObjectRef) -> Self {
        Self { object, problems: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        reason: &'static str,
        field: impl Into<String>,
        port: Option<ProblemPort>,
        message: impl Into<String>,
    ) {
        self.problems.push(Problem {
            object: self.object.clone(),
            reason,
            field: field.into(),
            // A value that is quoted may be as long as an object.
            message: cut_middle(message.into(), LONGEST_MESSAGE),
            port,
        });
    }

    /// A value that the API does not allow.
    pub(crate) fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.add(reason::INVALID_VALUE, field, None, message);
    }

    /// A value that does not work for one port.
    pub(crate) fn invalid_port(
        &mut self,
        field: impl Into<String>,
        port: ProblemPort,
        message: impl Into<String>,
    ) {
        self.add(reason::INVALID_VALUE, field, Some(port), message);
    }

    /// Problems that were found elsewhere.
    pub(crate) fn extend(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}
