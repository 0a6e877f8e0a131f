//! Replays: requests that were recorded with a real kube-apiserver 1.36, sent to the test API server in the same order and from
//! the same state.
//!
//! All recordings, including those of [`crate::recorded_writes`], are of one server: an OpenShift fork of 1.36, built locally
//! without a version stamp. They do not show differences to Kubernetes' own 1.36 or to other versions; for that, the cluster
//! suite runs on a real cluster (`SHEAVE_TEST_KUBECONFIG`).
//!
//! Status codes, bodies and the headers of [`HEADERS`] must be the same, as compared by [`crate::comparison`]. Deliberately
//! left out:
//! - apiserver-shutdown: a stopped test server is gone at once, and does not linger for a minute;
//! - too-many-requests: the server has no flow control; faults answer 429 like the API does;
//! - content-types, third step: lists are not compressed;
//! - pretty-print, YAML step: the server only supports JSON;
//! - discovery: `storageVersionHash` is a hash of Go types;
//! - version: the recorded server has no version stamp;
//! - the number of equal bookmarks in a row, and all durations of watches, which are shortened;
//! - MicroTime errors of patches: the object inside the message is printed in Go's order of fields;
//! - generated names;
//! - spaces: bodies are compared as JSON.

mod definitions;
mod events;
mod lists;
mod meta;
mod protocol;
mod watches;

use serde_json::Value;

use crate::comparison::Comparison;
use crate::support::apiserver::ApiServer;
use crate::support::http::{Incoming, Outgoing, exchange};
use crate::transcript::{Step, Transcript};

/// Headers that affect clients.
const HEADERS: &[&str] = &["Content-Type", "Retry-After", "X-Content-Type-Options", "Warning"];

/// Maximum duration of a replayed watch, in seconds.
const LONGEST_WATCH: u64 = 1;

/// Same for a watch with a bookmark, which is sent two seconds before the end.
const WITH_BOOKMARK: u64 = 3;

/// Server in a recorded state, with the correspondence of values.
struct Replay {
    server: ApiServer,
    comparison: Comparison,
}

impl Replay {
    /// Server with the namespaces of the recordings.
    fn new() -> Self {
        let server = ApiServer::start();
        let namespace =
            |name| serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        server.load([namespace("rec"), namespace("rec2")]);
        Self { server, comparison: Comparison::default() }
    }

    /// Server with the Services, Nodes and EndpointSlices of the recorded lists, at this revision.
    fn at(revision: u64) -> Self {
        let replay = Self::new();
        let lists = ["list-services-all", "list-nodes", "list-endpointslices"];
        let mut objects: Vec<Value> = lists
            .iter()
            .flat_map(|name| Transcript::read(&format!("01-list-watch/{name}")).listed(0))
            .collect();
        objects.sort_by_key(|object| {
            object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok())
        });
        replay.server.load(objects);
        replay.server.skip_to(revision);
        replay
    }

    /// Sends all steps of a transcript and compares the answers.
    fn all(&mut self, name: &str) {
        self.steps(name, |_| true);
    }

    /// Like [`Self::all`], for selected steps by number.
    fn steps(&mut self, name: &str, wanted: impl Fn(usize) -> bool) {
        let transcript = Transcript::read(name);
        assert!(!transcript.steps.is_empty(), "{name} has steps");
        for (index, step) in transcript.steps.iter().enumerate().filter(|(index, _)| wanted(*index)) {
            let answer = self.ask(step);
            self.check(name, index, step, answer);
        }
    }

    /// Sends the request of a step.
    fn ask(&self, step: &Step) -> Incoming {
        let (method, path) = step.request.line.split_once(' ').expect("method and path");
        let mut headers: Vec<(String, String)> = step.request.headers.clone().into_iter().collect();
        headers.retain(|(name, _)| name != "Host");
        let token = match step.request.user.as_str() {
            "none" => None,
            "bad" => Some("not a token".to_owned()),
            "ro" => Some(self.server.token("lb-readonly")),
            "nobody" => Some(self.server.token("nobody-user")),
            user => Some(self.server.token(user)),
        };
        headers.extend(token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}"))));
        let body = match (&step.request.body, step.request.body_text.as_deref()) {
            (Some(body), _) => {
                let mut body = body.clone();
                self.comparison.translate(&mut body);
                body.to_string().into_bytes()
            }
            (None, Some(text)) if text.contains("bytes, omitted") => vec![b' '; 3_200_037],
            (None, text) => text.unwrap_or_default().as_bytes().to_vec(),
        };
        let longest = if expects_bookmark(step) { WITH_BOOKMARK } else { LONGEST_WATCH };
        let request = Outgoing { method: method.to_owned(), path: shortened(path, longest), headers, body };
        exchange(self.server.address(), &request)
            .unwrap_or_else(|error| panic!("{}: {error}", step.request.line))
    }

    /// Compares an answer with the recorded one.
    fn check(&mut self, name: &str, index: usize, step: &Step, answer: Incoming) {
        let place = format!("{name}, step {index} ({}), {}", step.note, step.request.line);
        let status = answer.status;
        if status != step.response.status {
            let body = answer.rest().unwrap_or_default();
            panic!("{place}: {status} instead of {}: {body}", step.response.status);
        }
        for header in HEADERS {
            let wanted: Vec<&str> =
                step.response.headers.get(*header).map(String::as_str).into_iter().collect();
            assert_eq!(answer.headers(header), wanted, "{place}: {header}");
        }
        let response = &step.response;
        let differences = match (&response.watch, &response.body, &response.body_text) {
            (Some(seen), ..) => {
                let seen: Vec<Value> = seen.iter().map(|seen| seen.line.clone()).collect();
                let ours = answer.lines().unwrap_or_else(|error| panic!("{place}: {error}"));
                self.comparison.differences(&once(seen).into(), &once(ours).into())
            }
            (None, Some(body), _) => self.comparison.differences(body, &answer.json()),
            (None, None, text) => {
                let ours = answer.rest().unwrap_or_else(|error| panic!("{place}: {error}"));
                let same = ours == text.as_deref().unwrap_or_default();
                if same { Vec::new() } else { vec![format!("{ours:?}, not {text:?}")] }
            }
        };
        assert!(differences.is_empty(), "{place}:\n{}", differences.join("\n"));
    }
}

fn expects_bookmark(step: &Step) -> bool {
    let seen = step.response.watch.iter().flatten();
    let mut bookmarks = seen.map(|seen| &seen.line).filter(|line| line["type"] == "BOOKMARK");
    bookmarks.any(|line| line["object"]["metadata"]["annotations"].is_null())
}

/// The URL with a shorter time limit.
fn shortened(path: &str, longest: u64) -> String {
    let Some((before, after)) = path.split_once("timeoutSeconds=") else { return path.to_owned() };
    let digits = after.find('&').unwrap_or(after.len());
    let seconds: u64 = after[..digits].parse().expect("seconds");
    format!("{before}timeoutSeconds={}{}", seconds.min(longest), &after[digits..])
}

/// Removes bookmarks that repeat the previous one.
fn once(mut lines: Vec<Value>) -> Vec<Value> {
    lines.dedup_by(|next, before| next == before && next["type"] == "BOOKMARK");
    lines
}
