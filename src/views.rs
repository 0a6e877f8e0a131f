//! Views of a process for users and programs: routing table, status and explanations, as JSON and as text. JSON keys may be
//! added, but are never renamed.

pub(crate) mod all_gateways;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod gateways;
pub(crate) mod numbers;
mod percent;
pub(crate) mod problem;
pub(crate) mod routes;
pub(crate) mod services;
pub(crate) mod status;
pub(crate) mod steering;
pub(crate) mod text_table;
pub(crate) mod top;
pub(crate) mod traffic;
pub(crate) mod validation;
pub(crate) mod visible;
pub(crate) mod watch;

use serde::Serialize;

/// View that commands and the admin server show.
pub(crate) trait View: Serialize + Sized {
    /// Indented JSON with a newline at the end.
    fn to_json(&self) -> String {
        // Serialization fails only for maps with other keys than strings, or a failing `Serialize`; there are none here.
        serde_json::to_string_pretty(self).map(|json| json + "\n").unwrap_or_default()
    }

    /// JSON in one line, for other Sheave processes.
    fn to_compact_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// YAML, for people who keep manifests.
    fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).unwrap_or_default()
    }
}
