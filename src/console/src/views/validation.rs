//! Findings of `sheave validate`, as text and as JSON. JSON keys may be added, but are never renamed.

use std::fmt;

use serde::Serialize;
use sheave_dataplane::SmallSetting;

use super::View;
use super::escape::line;
use super::numbers::counted;
use super::problem::{LISTED, ProblemView};
use super::routes::RoutesView;

/// A mistake in the configuration. Its JSON keys may be added to, but are never renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigMistake {
    /// Key, for example `timeouts.connect`; empty for the file as a whole.
    #[serde(rename = "key")]
    pub path: String,
    /// Error message.
    pub message: String,
    /// Suggested correction, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

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
    /// Settings of this machine that are too small; null unless asked for.
    pub(crate) node: Option<Vec<SettingView>>,
}

/// A setting of the machine's kernel that is too small for a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SettingView {
    /// As `sysctl` names it.
    sysctl: &'static str,
    value: String,
    /// Consequence, and what to do.
    message: String,
}

impl From<SmallSetting> for SettingView {
    fn from(setting: SmallSetting) -> Self {
        let message = setting.to_string();
        Self { sysctl: setting.sysctl, value: setting.value, message }
    }
}

impl View for ValidationView {}

impl ValidationView {
    /// Combines the mistakes in a configuration, in manifests and on this machine, as far as these were looked at.
    pub(crate) fn new(
        config: Vec<ConfigMistake>,
        manifests: Option<(usize, RoutesView)>,
        node: Option<Vec<SmallSetting>>,
    ) -> Self {
        let node = node.map(|small| small.into_iter().map(SettingView::from).collect());
        let Some((objects, RoutesView { problems, not_served, notes, .. })) = manifests else {
            return Self { config, node, ..Self::default() };
        };
        Self { objects: Some(objects), config, problems, not_served, notes, node }
    }

    /// Text with one line for each mistake, and their number.
    pub(crate) fn to_text(&self) -> String {
        let mut text: String =
            self.config.iter().map(|mistake| line(&format!("config: {mistake}"))).collect();
        text.extend(self.problems.iter().map(|problem| line(&problem.to_string())));
        let small = self.node.as_deref().unwrap_or_default();
        text.extend(small.iter().map(|setting| line(&format!("node: {}", setting.message))));
        let notes = self.short_notes();
        text.extend(notes.iter().map(|note| line(&format!("note: {note}"))));
        let wrong = self.config.len() + self.problems.len() + small.len();
        text + &match (wrong, notes.len()) {
            (0, 0) => match self.objects {
                Some(read) => format!("no problems in {}\n", counted(read, "object")),
                None if self.node.is_some() => {
                    "no problems in the configuration and the settings of this machine\n".to_owned()
                }
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
            notes.push(format!("{more} more objects are not served; `-o json` lists all"));
        }
        notes.extend(self.notes.iter().cloned());
        notes
    }
}
