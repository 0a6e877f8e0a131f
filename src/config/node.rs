//! Which Node we run on.

use serde_json::Value;

use super::{ConfigMistake, values};

/// What the process finds around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment {
    /// `$NODE_NAME`, which a DaemonSet sets by the downward API.
    pub(super) node_name: Option<String>,
    /// The host's name.
    pub(super) host_name: Option<String>,
}

impl Environment {
    /// Of this process.
    pub(super) fn of_process() -> Self {
        Self {
            node_name: std::env::var("NODE_NAME").ok(),
            host_name: std::fs::read_to_string("/proc/sys/kernel/hostname").ok(),
        }
    }
}

/// The flag wins, then the file, `$NODE_NAME` and the host name; empty ones do not count.
pub(super) fn resolve(
    flag: Option<&str>,
    config: Option<String>,
    environment: &Environment,
) -> Result<String, ConfigMistake> {
    let mistake = |message: String| ConfigMistake {
        path: "node".to_owned(),
        message,
        hint: Some("set node, --node or $NODE_NAME to the name of the Node that this runs on".to_owned()),
    };
    // The kubelet registers under the host name in small letters.
    let host = environment.host_name.as_deref().map(|name| name.trim().to_lowercase());
    let candidates = [
        ("--node", flag.map(str::to_owned)),
        ("node", config),
        ("$NODE_NAME", environment.node_name.clone()),
        ("the host name", host),
    ];
    let given = candidates.into_iter().find_map(|(from, name)| {
        let name = name?;
        (!name.is_empty()).then_some((from, name))
    });
    let Some((from, name)) = given else { return Err(mistake("nothing says which node this is".to_owned())) };
    values::name(&Value::String(name)).map_err(|wrong| mistake(format!("{}, as {from} says", wrong.message)))
}
