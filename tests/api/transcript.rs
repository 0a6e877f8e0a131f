//! Recorded requests with their answers, read from `recorded/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Recorded file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Transcript {
    /// Steps in the order in which they were sent.
    pub(crate) steps: Vec<Step>,
}

/// Request with its answer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) note: String,
    pub(crate) request: Asked,
    pub(crate) response: Answered,
}

/// Recorded request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    /// Method and path.
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    /// User: `admin`, `ro`, `nobody`, `bad` or `none`.
    pub(crate) user: String,
    pub(crate) body: Option<Value>,
    pub(crate) body_text: Option<String>,
}

/// Recorded answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<Value>,
    pub(crate) body_text: Option<String>,
    pub(crate) watch: Option<Vec<Seen>>,
}

/// Line of a recorded watch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Seen {
    pub(crate) line: Value,
}

impl Transcript {
    /// Reads `recorded/<name>.json`.
    pub(crate) fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/api/recorded/{name}.json"));
        let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Objects of a recorded list, as they would be stored.
    pub(crate) fn listed(&self, step: usize) -> Vec<Value> {
        let list = self.steps[step].response.body.as_ref().expect("a list");
        let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).expect("a list's kind");
        let items = list["items"].as_array().expect("items").clone();
        let complete = |mut item: Value| {
            item["kind"] = kind.into();
            item["apiVersion"] = list["apiVersion"].clone();
            item
        };
        items.into_iter().map(complete).collect()
    }

    /// Object of a line of a recorded watch.
    pub(crate) fn seen(&self, step: usize, line: usize) -> Value {
        self.steps[step].response.watch.as_ref().expect("a watch")[line].line["object"].clone()
    }
}
