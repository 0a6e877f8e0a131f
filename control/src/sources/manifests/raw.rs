//! Objects of any kind as written, for commands that read manifests of other programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value};

use super::manifest::{MAX_LIST_DEPTH, file_problem};
use super::origin::{FileProblem, Origin};
use super::{document, folder, line};
use crate::api::decode::field_path::{FieldPath, Step};

/// An object of any kind, and its location.
#[derive(Clone, Debug)]
pub struct RawObject {
    /// Its fields, as written.
    pub fields: Map<String, Value>,
    document: Arc<RawDocument>,
    /// Path of the object in its document.
    place: FieldPath,
}

#[derive(Debug)]
struct RawDocument {
    file: Arc<str>,
    number: u32,
    first_line: u32,
    text: String,
    /// Number of lines that were looked up in it.
    lookups: AtomicUsize,
}

impl RawObject {
    /// Kind, as in the manifest; empty if there is none.
    pub fn kind(&self) -> &str {
        self.fields.get("kind").and_then(Value::as_str).unwrap_or_default()
    }

    /// API group; empty for the core group.
    pub fn group(&self) -> &str {
        let api_version = self.fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// `metadata.name`; empty if there is none.
    pub fn name(&self) -> &str {
        self.at(&["metadata", "name"]).and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.namespace`, or else `default`, as with `kubectl`.
    pub fn namespace(&self) -> &str {
        let namespace = self.at(&["metadata", "namespace"]).and_then(Value::as_str);
        namespace.filter(|name| !name.is_empty()).unwrap_or("default")
    }

    /// The value at this path of keys.
    pub fn at(&self, keys: &[&str]) -> Option<&Value> {
        let (first, rest) = keys.split_first()?;
        let first = self.fields.get(*first)?;
        rest.iter().try_fold(first, |value, key| value.get(*key)).filter(|value| !value.is_null())
    }

    /// `metadata.annotations` or `metadata.labels`, without values that are not text.
    pub fn texts(&self, field: &str) -> BTreeMap<String, String> {
        let texts = self.at(&["metadata", field]).and_then(Value::as_object).into_iter().flatten();
        texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    /// Location of one of its fields, or of the longest existing part of its path.
    pub fn origin(&self, field: &str) -> Origin {
        let RawDocument { file, number, first_line, text, lookups } = self.document.as_ref();
        let looked_up = lookups.fetch_add(1, Ordering::Relaxed) < line::MAX_LINE_LOOKUPS;
        let path = FieldPath::parse(field).below(&self.place);
        let line = looked_up.then(|| line::line_of(text, &path)).flatten();
        let line = line.map_or(*first_line, |line| first_line + line - 1);
        Origin { file: Arc::clone(file), document: Some(*number), line: Some(line) }
    }
}

/// Objects of any kind in files.
#[derive(Debug, Default)]
pub struct RawManifests {
    /// Objects, in the order of the files.
    pub objects: Vec<RawObject>,
    /// Problems of documents and files that cannot be read.
    pub problems: Vec<FileProblem>,
}

impl RawManifests {
    /// Reads a folder, or a single file, once.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn load(path: &Path) -> std::io::Result<Self> {
        let mut manifests = Self::default();
        for (name, text) in folder::texts(path)? {
            match text {
                Ok(text) => manifests.add(&name, &text),
                Err(message) => {
                    let origin = Origin { file: Arc::clone(&name), document: None, line: None };
                    let problem = file_problem(&name, message);
                    manifests.problems.push(FileProblem { origin, problem });
                }
            }
        }
        Ok(manifests)
    }

    /// Parses a text with the file name `name`.
    pub fn parse(name: &str, text: &str) -> Self {
        let mut manifests = Self::default();
        manifests.add(&name.into(), text);
        manifests
    }

    fn add(&mut self, name: &Arc<str>, text: &str) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for document in document::parse(text, name.ends_with(".json")) {
            let (number, first_line) = (document.number, document.first_line);
            match document.value {
                Ok(value) => {
                    let raw = RawDocument {
                        file: Arc::clone(name),
                        number,
                        first_line,
                        text: document.text.to_owned(),
                        lookups: AtomicUsize::new(0),
                    };
                    self.take(value, &Arc::new(raw), &FieldPath::default(), 0);
                }
                Err(error) => {
                    let origin =
                        Origin { file: Arc::clone(name), document: Some(number), line: Some(error.line) };
                    let message = format!("the document cannot be read: {}", error.message);
                    self.problems.push(FileProblem { origin, problem: file_problem(name, message) });
                }
            }
        }
    }

    /// Takes an object, or the items of a list.
    fn take(&mut self, value: Value, document: &Arc<RawDocument>, place: &FieldPath, depth: usize) {
        let Value::Object(mut fields) = value else { return };
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let listed = kind.strip_suffix("List").filter(|_| depth < MAX_LIST_DEPTH);
        let (Some(item_kind), Some(Value::Array(items))) = (listed, fields.get_mut("items")) else {
            let (document, place) = (Arc::clone(document), place.clone());
            return self.objects.push(RawObject { fields, document, place });
        };
        let items = std::mem::take(items);
        let api_version = fields.get("apiVersion").cloned();
        for (index, mut item) in items.into_iter().enumerate() {
            // The API server omits both from the items of built-in lists.
            if let (Value::Object(item), false) = (&mut item, item_kind.is_empty()) {
                item.entry("kind").or_insert_with(|| item_kind.into());
                if let Some(api_version) = &api_version {
                    item.entry("apiVersion").or_insert_with(|| api_version.clone());
                }
            }
            let mut place = place.clone().then_key("items");
            place.0.push(Step::Index(index));
            self.take(item, document, &place, depth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_lists_know_their_kind_and_their_line() {
        let text = "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: a}\n- kind: Service\n  metadata:\n    name: b\n    namespace: shop\n";
        let read = RawManifests::parse("stdin", text);
        let names: Vec<_> = read.objects.iter().map(|it| (it.kind(), it.namespace(), it.name())).collect();
        assert_eq!(names, [("Service", "default", "a"), ("Service", "shop", "b")]);
        assert_eq!(read.objects[1].origin("metadata.name").line, Some(7));
    }

    #[test]
    fn a_document_that_cannot_be_read_leaves_the_others() {
        let read = RawManifests::parse("x.yaml", "kind: A\n---\na: b: c\n---\nkind: B\n");
        assert_eq!(read.objects.len(), 2);
        assert_eq!(read.problems.len(), 1);
        assert_eq!(read.problems[0].origin.line, Some(3));
    }

    #[test]
    fn json_from_a_pipe_is_read() {
        let read = RawManifests::parse(
            "stdin",
            "{\"kind\": \"List\", \"items\": [{\"kind\": \"A\"}]}\n{\"kind\": \"B\"}",
        );
        assert_eq!(read.objects.iter().map(RawObject::kind).collect::<Vec<_>>(), ["A", "B"]);
    }
}
