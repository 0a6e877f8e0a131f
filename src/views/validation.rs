//! Findings of `sheave validate`, as text and as JSON. JSON keys may be added, but are never renamed.

use serde::Serialize;

use super::View;
use super::problem::{LISTED, ProblemView};
use super::routes::RoutesView;
use super::visible::line;
use crate::config::ConfigMistake;

/// All mistakes in a configuration and in manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ValidationView {
    /// Number of objects that were read; null without manifests.
    pub(crate) objects: Option<usize>,
    /// Mistakes in the configuration.
    pub(crate) config: Vec<ConfigMistake>,
    /// Same as in `sheave routes -o json`.
    pub(crate) problems: Vec<ProblemView>,
    /// Same as in `sheave routes -o json`; has no effect on the exit code.
    pub(crate) not_served: Vec<ProblemView>,
    /// Same as in `sheave routes -o json`.
    pub(crate) notes: Vec<String>,
}

impl View for ValidationView {}

impl ValidationView {
    /// Combines the mistakes in a configuration and in manifests, if any were read.
    pub(crate) fn new(config: Vec<ConfigMistake>, manifests: Option<(usize, RoutesView)>) -> Self {
        let Some((objects, RoutesView { problems, not_served, notes, .. })) = manifests else {
            return Self { config, ..Self::default() };
        };
        Self { objects: Some(objects), config, problems, not_served, notes }
    }

    /// Text with one line for each mistake, and their number.
    pub(crate) fn to_text(&self) -> String {
        let mut text: String =
            self.config.iter().map(|mistake| line(&format!("config: {mistake}"))).collect();
        text.extend(self.problems.iter().map(|problem| line(&problem.to_string())));
        let notes = self.short_notes();
        text.extend(notes.iter().map(|note| line(&format!("note: {note}"))));
        let counted =
            |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let wrong = self.config.len() + self.problems.len();
        text + &match (wrong, notes.len()) {
            (0, 0) => match self.objects {
                Some(read) => format!("no problems in {}\n", counted(read, "object")),
                None => {
                    "no problems in the configuration; no manifests were given (--manifests DIR)\n".to_owned()
                }
            },
            (_, 0) => format!("{}\n", counted(wrong, "problem")),
            (_, notes) => format!("{}, {}\n", counted(wrong, "problem"), counted(notes, "note")),
        }
    }

    /// Notes: the load balancers that are not served, of which the first are named, and other surprises.
    fn short_notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.not_served.iter().take(LISTED).map(ToString::to_string).collect();
        if let more @ 1.. = self.not_served.len().saturating_sub(LISTED) {
            notes.push(format!(
                "{more} more objects of type LoadBalancer are not served; `-o json` lists all"
            ));
        }
        notes.extend(self.notes.iter().cloned());
        notes
    }
}
