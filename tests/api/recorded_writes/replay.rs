//! Replay of a recorded file on a server, with its differences.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fmt, fs};

use serde_json::{Value, json};

use super::scenes::{Before, Scene};
use crate::comparison::Comparison;
use crate::support::apiserver::ApiServer;
use crate::support::http::{Outgoing, exchange};

/// Duration of watches in seconds, longer than any answer takes.
const WATCH_SECONDS: u32 = 1;

/// Replayed step.
pub(super) struct Step {
    pub(super) file: String,
    pub(super) number: usize,
    line: String,
    /// Empty if the answer was as recorded.
    pub(super) differences: Vec<String>,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} step {}: {}", self.file, self.number, self.line)?;
        if self.differences.is_empty() {
            write!(formatter, "\n    is as recorded: not an exception any more")?;
        }
        self.differences.iter().try_for_each(|line| write!(formatter, "\n    {line}"))
    }
}

/// Server with the correspondence of values.
pub(super) struct Replay {
    server: ApiServer,
    token: String,
    comparison: Comparison,
}

impl Replay {
    /// Server with the namespace of the recordings.
    pub(super) fn new() -> Self {
        let server = ApiServer::start();
        let token = server.token("admin");
        let replay = Self { server, token, comparison: Comparison::default() };
        replay.namespace("rec");
        replay
    }

    /// Adds a namespace.
    pub(super) fn namespace(&self, name: &str) {
        self.server.load([json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})]);
    }

    /// Serves the kind of a CustomResourceDefinition.
    pub(super) fn define(&self, definition: &str) {
        self.server.load([serde_json::from_str(definition).expect("a definition")]);
    }

    /// Replays one file.
    pub(super) fn play(&mut self, scene: &Scene) -> Vec<Step> {
        let mut start = 0;
        let mut played = Vec::new();
        for (number, recorded) in steps(scene.file).into_iter().enumerate() {
            for (_, before) in scene.before.iter().filter(|(at, _)| *at == number) {
                self.prepare(before);
            }
            if number == 0 {
                start = self.server.revision();
            }
            let mut asked = recorded["request"].clone();
            for (_, correct) in scene.corrections.iter().filter(|(at, _)| *at == number) {
                correct(&mut asked["body"]);
            }
            let differences = self.step(&asked, &recorded["response"], start);
            let line = asked["line"].as_str().unwrap_or_default().to_owned();
            played.push(Step { file: scene.file.to_owned(), number, line, differences });
        }
        played
    }

    /// Sends one request, and returns the differences between its answer and the recorded one.
    fn step(&mut self, asked: &Value, recorded: &Value, start: u64) -> Vec<String> {
        let answer =
            exchange(self.server.address(), &self.outgoing(asked, start)).expect("the server answers");
        let mut differences = Vec::new();
        if recorded["status"] != answer.status {
            differences.push(format!("status {}, not {}", answer.status, recorded["status"]));
        }
        differences.extend(warnings(&recorded["headers"]["Warning"], &answer.headers("Warning")));
        if let Some(watch) = recorded["watch"].as_array() {
            let lines = answer.lines().expect("the watch ends");
            let seen: Vec<Value> = watch.iter().map(|seen| seen["line"].clone()).collect();
            differences.extend(self.compare(&json!(seen), &json!(lines)));
        } else if recorded["body"].is_object() {
            differences.extend(self.compare(&recorded["body"], &answer.json()));
        }
        differences
    }

    /// Does what was done between the recorded requests.
    fn prepare(&mut self, before: &Before) {
        match before {
            Before::Send(method, path, body) => drop(self.ask(method, path, &body())),
            Before::Is(name, recorded) => {
                let ours = self.server.object("services", Some("rec"), name).expect("it was made before");
                // Only generated values are recorded here; other differences are due to what happens next.
                drop(self.comparison.differences(&recorded(), &ours));
            }
        }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut outgoing = Outgoing::new(method, path, &self.token, body);
        outgoing.headers.push(("User-Agent".to_owned(), "lbctl/0.1".to_owned()));
        let answer = exchange(self.server.address(), &outgoing).expect("the server answers");
        let status = answer.status;
        let body = answer.json();
        assert!(status < 300, "{method} {path}: {body}");
        body
    }

    fn outgoing(&self, asked: &Value, start: u64) -> Outgoing {
        let mut line = asked["line"].as_str().unwrap_or_default().split(' ');
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        let sent = asked["headers"].as_object().into_iter().flatten();
        let mut headers: Vec<(String, String)> =
            sent.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        headers.push(("Authorization".to_owned(), format!("Bearer {}", self.token)));
        let mut body = asked["body"].clone();
        self.translate(&mut body);
        let body = match asked["bodyText"].as_str() {
            Some(text) => text.to_owned(),
            None if body.is_null() => String::new(),
            None => body.to_string(),
        };
        let path = self.path(path, start);
        Outgoing { method: method.to_owned(), path, headers, body: body.into_bytes() }
    }

    /// Watches begin at the revision of the file's start, and are short.
    fn path(&self, path: &str, start: u64) -> String {
        let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
        let translated = query.split('&').map(|part| match part.split_once('=') {
            Some((key @ "resourceVersion", recorded)) => match self.comparison.ours(key, recorded) {
                Some(ours) => format!("{key}={ours}"),
                None => format!("{key}={start}"),
            },
            Some((key @ "timeoutSeconds", _)) => format!("{key}={WATCH_SECONDS}"),
            _ => part.to_owned(),
        });
        format!("{path}?{}", translated.collect::<Vec<_>>().join("&"))
    }

    /// Replaces recorded values in a request with ours.
    fn translate(&self, body: &mut Value) {
        match body {
            Value::Object(fields) => {
                let about = fields.get("path").and_then(Value::as_str).unwrap_or_default();
                let about = about.rsplit('/').next().unwrap_or_default().to_owned();
                for (key, value) in fields.iter_mut() {
                    let key = if key == "value" { about.clone() } else { key.clone() };
                    self.translate_field(&key, value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.translate(item)),
            _ => {}
        }
    }

    fn translate_field(&self, key: &str, value: &mut Value) {
        let family = if key == "clusterIPs" { "clusterIP" } else { key };
        let text = match &*value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Array(items) if family == "clusterIP" && !items.is_empty() => {
                let Some(items) = value.as_array_mut() else { return };
                return items.iter_mut().for_each(|item| self.translate_field(family, item));
            }
            _ => return self.translate(value),
        };
        if let Some(ours) = self.comparison.ours(family, &text) {
            *value =
                if value.is_string() { json!(ours) } else { json!(ours.parse::<u64>().unwrap_or_default()) };
        }
    }

    fn compare(&mut self, recorded: &Value, ours: &Value) -> Vec<String> {
        let (mut recorded, mut ours) = (recorded.clone(), ours.clone());
        [&mut recorded, &mut ours].into_iter().for_each(sort_managers);
        self.translate_texts(&mut recorded);
        self.comparison.differences(&recorded, &ours)
    }

    /// Replaces uids and revisions in the texts of errors.
    fn translate_texts(&self, status: &mut Value) {
        if status["kind"] != "Status" {
            return;
        }
        let inside = |character: char| character.is_ascii_alphanumeric() || "-.:".contains(character);
        let translated = |text: &str| -> String {
            let words = text.split_inclusive(|character: char| !inside(character));
            words.map(|word| self.translated_word(word)).collect()
        };
        let causes = status["details"]["causes"].as_array().map_or(0, Vec::len);
        let places = (0..causes).map(|index| format!("/details/causes/{index}/message"));
        for place in places.chain(["/message".to_owned()]) {
            if let Some(text) = status.pointer_mut(&place)
                && let Some(found) = text.as_str()
            {
                *text = json!(translated(found));
            }
        }
    }

    fn translated_word(&self, word: &str) -> String {
        let bare = word.trim_end_matches(|character: char| !character.is_ascii_alphanumeric());
        let fields = ["uid", "resourceVersion", "clusterIP", "nodePort"];
        let ours = fields.iter().find_map(|field| self.comparison.ours(field, bare)).unwrap_or(bare);
        format!("{ours}{}", &word[bare.len()..])
    }
}

/// Steps of `recorded/<file>.json`.
pub(super) fn steps(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/api/recorded/{file}.json"));
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: Value = serde_json::from_slice(&text).expect("a transcript");
    file["steps"].as_array().expect("steps").clone()
}

/// Sorts managers, whose order depends on the second in which each wrote.
fn sort_managers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                let name =
                    |entry: &Value| ["manager", "operation", "subresource"].map(|key| entry[key].to_string());
                entries.sort_by_key(name);
            }
            fields.values_mut().for_each(sort_managers);
        }
        Value::Array(items) => items.iter_mut().for_each(sort_managers),
        _ => {}
    }
}

fn warnings(recorded: &Value, ours: &[&str]) -> Option<String> {
    let recorded: BTreeSet<&str> = match recorded {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let ours: BTreeSet<&str> = ours.iter().copied().collect();
    (recorded != ours).then(|| format!("warnings {ours:?}, not {recorded:?}"))
}
