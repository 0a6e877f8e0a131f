//! Views of a process for users and programs: routing table, status and explanations, as JSON and as text. JSON keys may be
//! added, but are never renamed.

pub mod all_gateways;
pub(crate) mod change;
pub mod diff;
pub mod escape;
pub(crate) mod events;
pub mod explain;
pub mod gateways;
pub(crate) mod history;
pub mod numbers;
mod percent;
pub mod problem;
pub(crate) mod replay;
pub mod routes;
pub mod services;
pub mod status;
pub mod steering;
pub mod text_table;
pub mod top;
pub(crate) mod trace;
pub mod traffic;
pub mod validation;
pub mod watch;

use serde::Serialize;

/// View that commands and the admin server show.
pub trait View: Serialize + Sized {
    /// Indented JSON with a newline at the end, safe to show on a terminal.
    fn to_json(&self) -> String {
        // Serialization fails only for maps with other keys than strings, or a failing `Serialize`; there are none here.
        let json = serde_json::to_string_pretty(self).map(|json| json + "\n").unwrap_or_default();
        escape::json_lines(&json).into_owned()
    }

    /// JSON in one line, for other Sheave processes.
    fn to_compact_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// YAML, for people who keep manifests, safe to show on a terminal.
    fn to_yaml(&self) -> String {
        escape::visible_yaml(self)
    }
}
