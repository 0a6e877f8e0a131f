//! A change of what a gateway does, as `sheave watch` and `sheave events` report it. JSON keys and kinds of changes may be added, but are
//! never renamed.

use serde::{Deserialize, Serialize};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    pub(crate) change: ChangeKind,
    /// Name of an endpoint, address or Problem; null for properties that the Service has only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// Number of things that changed alike at the same moment; null for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<usize>,
    /// Old and new value; null if there is none.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeKind {
    /// The whole decision, in the first line of `watch` and after the Service or port was added or removed; in `events`, whether clients
    /// of the Service get answers.
    State,
    /// Address and port where the Service is reached.
    Frontend,
    /// Outcome for the client: an endpoint, a refusal, or dropped packets.
    Action,
    /// Reason why the frontend accepts nothing on this gateway.
    Closed,
    /// Endpoint: its state, and whether it may be chosen.
    Endpoint,
    /// Endpoint that the client goes to.
    Choice,
    /// Share of traffic of each cluster.
    Shares,
    /// Gateway that owns the address.
    Announced,
    Problem,
    /// Any other field of a frontend; the subject is its name in `routes -o json`.
    Setting,
    /// Whether the gateway answers; in `events`, what concerns the process as a whole.
    Gateway,
}

impl Change {
    pub(crate) fn new(change: ChangeKind, from: Option<String>, to: Option<String>) -> Self {
        Self { change, subject: None, count: None, from, to }
    }

    /// Something of this kind came.
    pub(crate) fn came(change: ChangeKind) -> Self {
        Self::new(change, None, Some(PRESENT.to_owned()))
    }

    /// Something of this kind has gone.
    pub(crate) fn gone(change: ChangeKind) -> Self {
        Self::new(change, Some(PRESENT.to_owned()), None)
    }

    /// The change of one of several things of this kind.
    pub(crate) fn of(self, subject: &str) -> Self {
        Self { subject: Some(subject.to_owned()), ..self }
    }

    /// Text for people, in one line.
    pub(crate) fn to_text(&self) -> String {
        let (from, to) = (self.from.as_deref(), self.to.as_deref());
        let what = self.what();
        let moved = match (from, to) {
            (Some(from), Some(to)) => format!("{what}: {to} (was: {from})"),
            (None, Some(to)) => format!("{what}: {to}"),
            (from, None) => format!("{what}: none any more (was: {})", from.unwrap_or("unknown")),
        };
        match (self.change, from, to) {
            (ChangeKind::State | ChangeKind::Gateway, None, to) if self.count.is_none() => {
                to.unwrap_or_default().to_owned()
            }
            (ChangeKind::Frontend, None, _) => format!("{what} added"),
            (ChangeKind::Endpoint, None, Some(to)) => format!("{what} added: {to}"),
            (ChangeKind::Frontend, ..) | (ChangeKind::Endpoint, _, None) => format!("{what} removed"),
            (ChangeKind::Problem, None, _) => what,
            (ChangeKind::Problem, ..) => what.replacen(PROBLEM, "Problem solved: ", 1),
            (ChangeKind::Closed, _, None) => format!("{what} open again on this gateway"),
            (ChangeKind::Closed, _, Some(why)) => format!("{what} closed on this gateway: {why}"),
            _ => moved,
        }
    }

    /// What has changed: one thing by name, or several by number.
    fn what(&self) -> String {
        let (one, several) = self.change.nouns();
        match (self.count, &self.subject) {
            (Some(count), None) => format!("{count} {several}"),
            (Some(count), Some(common)) => format!("{count} {several} ({common})"),
            (None, Some(address)) if self.change == ChangeKind::Announced => format!("{address} {one}"),
            (None, Some(subject)) => format!("{one}{subject}"),
            (None, None) => one.trim_end_matches([' ', ':']).to_owned(),
        }
    }
}

/// Value of what is only there or not.
const PRESENT: &str = "present";
/// What stands before the text of a Problem.
const PROBLEM: &str = "Problem: ";

impl ChangeKind {
    /// What stands before the name of the one thing that changed, and what stands behind the number of several.
    fn nouns(self) -> (&'static str, &'static str) {
        match self {
            Self::State => ("state", "Services"),
            Self::Frontend => ("frontend ", "frontends"),
            Self::Action => ("action", "actions"),
            Self::Closed => ("the frontend is", "frontends are"),
            Self::Endpoint => ("endpoint ", "endpoints"),
            Self::Choice => ("the client goes to", "choices"),
            Self::Shares => ("shares of clusters", "shares of clusters"),
            Self::Announced => ("announced by", "addresses announced by"),
            Self::Problem => (PROBLEM, "Problems"),
            Self::Setting => ("", "settings"),
            Self::Gateway => ("", "changes of the gateway"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_a_sentence_of_its_own() {
        let some = |text: &str| Some(text.to_owned());
        let state = Change::new(ChangeKind::State, some("ok"), some("broken: no endpoint"));
        assert_eq!(state.to_text(), "state: broken: no endpoint (was: ok)");
        let many = Change { count: Some(51), ..state };
        assert_eq!(many.to_text(), "51 Services: broken: no endpoint (was: ok)");
        let endpoint = Change::new(ChangeKind::Endpoint, None, some("Ready")).of("10.0.0.1:80");
        assert_eq!(endpoint.to_text(), "endpoint 10.0.0.1:80 added: Ready");
        assert_eq!(
            Change { count: Some(9), subject: None, ..endpoint }.to_text(),
            "9 endpoints added: Ready"
        );
        let problem = Change::new(ChangeKind::Problem, some("present"), None).of("NoAddress: no pool fits");
        assert_eq!(problem.to_text(), "Problem solved: NoAddress: no pool fits");
        let setting = Change::new(ChangeKind::Setting, some("none"), some("clientIP")).of("affinity");
        assert_eq!(setting.to_text(), "affinity: clientIP (was: none)");
        let settings = Change { count: Some(51), ..setting };
        assert_eq!(settings.to_text(), "51 settings (affinity): clientIP (was: none)");
        let moved = Change::new(ChangeKind::Announced, some("gw-1"), some("gw-2"));
        assert_eq!(moved.to_text(), "announced by: gw-2 (was: gw-1)");
        let address = moved.of("203.0.113.10");
        assert_eq!(address.to_text(), "203.0.113.10 announced by: gw-2 (was: gw-1)");
        let closed = Change::new(ChangeKind::Closed, None, some("address in use"));
        assert_eq!(closed.to_text(), "the frontend is closed on this gateway: address in use");
    }
}
