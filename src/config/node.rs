//! Name of the Node that this process runs on.

use serde_json::Value;
use sheave_console::views::validation::ConfigMistake;

use super::values;

/// Environment of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment {
    /// `$NODE_NAME`, which a DaemonSet sets through the downward API.
    pub(super) node_name: Option<String>,
    pub(super) host_name: Option<String>,
}

impl Environment {
    /// Reads the environment of this process.
    pub(super) fn of_process() -> Self {
        Self {
            node_name: std::env::var("NODE_NAME").ok(),
            host_name: std::fs::read_to_string("/proc/sys/kernel/hostname").ok(),
        }
    }
}

/// Resolves the name: the flag, else the file, `$NODE_NAME` or the host name. Empty values are skipped.
pub(super) fn resolve(
    flag: Option<&str>,
    config: Option<&str>,
    environment: &Environment,
) -> Result<String, ConfigMistake> {
    let mistake = |message: String| ConfigMistake {
        path: "node".to_owned(),
        message,
        hint: Some("set node, --node or $NODE_NAME to the name of the Node that this runs on".to_owned()),
    };
    let given = [("--node", flag), ("node", config), ("$NODE_NAME", environment.node_name.as_deref())];
    for (from, name) in given {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            return values::name(&Value::String(name.to_owned()))
                .map_err(|wrong| mistake(format!("{}, as {from} says", wrong.message)));
        }
    }
    // The kubelet registers the lower-case host name. It is not configured for us, so it is not validated.
    let host = environment.host_name.as_deref().map(|name| name.trim().to_lowercase());
    host.filter(|name| !name.is_empty()).ok_or_else(|| mistake("nothing says which node this is".to_owned()))
}
