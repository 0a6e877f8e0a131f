//! Collects the Problems of one object while it is read. Knows nothing of what they mean.

use crate::problem::{ObjectRef, Problem, ProblemPort, reason};

/// Longer messages are cut: a value that is quoted in one may be as long as an object.
const LONGEST: usize = 1024;

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
            message: within(message.into(), LONGEST),
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

/// The text, or as much of it as fits, with a sign that it goes on. The end is kept: it says what happens instead.
fn within(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    let head = text.floor_char_boundary(longest * 3 / 4);
    let tail = text.ceil_char_boundary(text.len() - longest / 4);
    format!("{} … {}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_in_the_middle_at_whole_characters() {
        let text = format!("\"{}\" is no address; it is ignored", "ä".repeat(100_000));
        let cut = within(text, LONGEST);
        assert!(cut.len() <= LONGEST + 5 && cut.ends_with("is no address; it is ignored"), "{cut}");
        assert_eq!(within("short".to_owned(), LONGEST), "short");
    }
}
