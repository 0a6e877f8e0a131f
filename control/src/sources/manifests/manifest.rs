//! Decoding of the documents of one file into typed objects and Problems: selects the used kinds, and permits what a handwritten
//! manifest may leave out. Independent of files, folders and earlier states.

use std::sync::Arc;

use kube::Resource as _;
use serde_json::{Map, Value};

use super::document::{self, Document};
use super::line;
use super::origin::{FILE, FileProblem, Origin};
use crate::api::decode::field_path::{FieldPath, Step};
use crate::api::decode::{self, UnknownField};
use crate::api::gateway_api::{self, Breach};
use crate::api::kinds::{Change, ControlPlane, Delta, KINDS, Kind, KindVisitor, visit_kinds};
use crate::api::object::{ApiObject as _, Resource};
use crate::api::owners::{missing_label, slice_owner};
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::text::{MAX_MESSAGE_BYTES, cut_middle};

/// An object with its name and location.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlacedObject {
    /// The object, as a change.
    pub(super) object: Change,
    pub(super) reference: ObjectRef,
    pub(super) origin: Origin,
    /// Path of the object inside its document.
    pub(super) place: FieldPath,
}

/// Contents of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ManifestFile {
    /// Objects, in the order of the file.
    pub(super) objects: Vec<PlacedObject>,
    /// Problems, in the order of the file.
    pub(super) problems: Vec<FileProblem>,
    /// Whether some document was rejected, so that the file is not what its author intended.
    pub(super) refused: bool,
    /// Number of objects of kinds that are not used.
    pub(super) passed_over: usize,
}

/// Largest nesting depth of lists.
pub(super) const MAX_LIST_DEPTH: usize = 4;

/// Parses the text of the file `name` with manifests of this API server.
pub(super) fn parse(name: &Arc<str>, text: &str, plane: ControlPlane) -> ManifestFile {
    // Some editors start a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let documents = document::parse(text, name.ends_with(".json"));
    let mut manifest = ManifestFile::default();
    for document in documents {
        let mut reader =
            Reader { plane, file: name, document: &document, manifest: &mut manifest, lookups: 0 };
        match &document.value {
            Ok(value) => reader.read(value, &FieldPath::default(), None, 0),
            Err(error) => reader.refuse_text(&error.message, error.line),
        }
    }
    manifest
}

/// Reads one document into a manifest.
struct Reader<'a> {
    plane: ControlPlane,
    file: &'a Arc<str>,
    document: &'a Document<'a>,
    manifest: &'a mut ManifestFile,
    lookups: usize,
}

impl Reader<'_> {
    /// Reads an object, or the objects of a list. `listed_as` is the kind of the items according to the list: the API server
    /// omits `kind` and `apiVersion` from the items of built-in lists.
    fn read(&mut self, value: &Value, place: &FieldPath, listed_as: Option<&Resource>, depth: usize) {
        let fields = match value {
            Value::Null => return,
            Value::Object(fields) => fields,
            _ => return self.refuse(place, None, "", "an object with apiVersion and kind is expected here"),
        };
        let Some(kind) = fields.get("kind").and_then(Value::as_str).or(listed_as.map(|it| it.kind)) else {
            return self.refuse(place, None, "kind", "is missing, so the document is not used");
        };
        let item_kind = kind.strip_suffix("List").and_then(resource).filter(|_| is_of_our_groups(fields));
        if kind == "List" || item_kind.is_some() {
            return self.read_items(fields, place, item_kind, depth);
        }
        let Some(kind) = resource(kind).filter(|_| is_of_our_groups(fields)) else {
            self.manifest.passed_over += 1;
            return tracing::debug!(file = %self.file, document = self.document.number, kind, "kind is not used");
        };
        if !KINDS.iter().any(|row| row.resource.kind == kind.kind && row.plane == self.plane) {
            // A Karmada control plane has Namespaces, too, and may have Nodes.
            if kind.is_built_in() {
                return self.manifest.passed_over += 1;
            }
            return self.misplaced(kind, fields, place);
        }
        let listed = listed_as.is_some_and(|listed| listed.kind == kind.kind);
        if let Err(found) = check_api_version(kind, fields, listed) {
            let reference = reference_in(kind, fields);
            let mut message = format!("{found}; {} has {:?}", with_article(kind.kind), kind.api_version);
            if kind.group == gateway_api::GROUP {
                message += " since release 1.6 of the Gateway API at the latest; upgrade the manifest to that version";
            }
            return self.refuse(place, reference, "apiVersion", &message);
        }
        self.read_object(kind, fields, place);
    }

    /// Reports an object that belongs in the folder of the other API server.
    fn misplaced(&mut self, kind: &Resource, fields: &Map<String, Value>, place: &FieldPath) {
        let (folder, whose) = match self.plane {
            ControlPlane::Local => ("--karmada-manifests", "a Karmada control plane"),
            ControlPlane::Karmada => ("--manifests", "the cluster that the gateways run in"),
        };
        let message = format!(
            "is not used here: {} belongs in the folder of {folder}, with the objects of {whose}",
            with_article(kind.kind)
        );
        self.tell(
            place,
            reference_in(kind, fields),
            &FieldPath::default(),
            reason::INVALID_MANIFEST,
            message,
        );
    }

    fn read_items(
        &mut self,
        list: &Map<String, Value>,
        place: &FieldPath,
        kind: Option<&Resource>,
        depth: usize,
    ) {
        let items = match list.get("items") {
            None | Some(Value::Null) => return,
            Some(Value::Array(items)) if depth < MAX_LIST_DEPTH => items,
            Some(Value::Array(_)) => return self.refuse(place, None, "items", "lists are nested too deeply"),
            Some(_) => return self.refuse(place, None, "items", "a list is expected here"),
        };
        for (index, item) in items.iter().enumerate() {
            let mut place = place.clone().then_key("items");
            place.0.push(Step::Index(index));
            self.read(item, &place, kind, depth + 1);
        }
    }

    fn read_object(&mut self, kind: &Resource, fields: &Map<String, Value>, place: &FieldPath) {
        let Some(reference) = reference_in(kind, fields) else {
            let message = match fields.get("metadata").and_then(|metadata| metadata.get("name")) {
                None | Some(Value::Null) => format!("is missing, so the {} is not used", kind.kind),
                Some(name) => format!("is {name} where a string is expected; put it in quotes"),
            };
            return self.refuse(place, None, "metadata.name", &message);
        };
        let mut value = fields.clone();
        decode::drop_nulls(&mut value);
        // Already checked, and not fields of the typed objects.
        value.retain(|name, _| name != "kind" && name != "apiVersion");
        decode::complete_conditions(&mut value);
        let value = Value::Object(value);
        let mut typed = TypedReader { reader: self, value: &value, reference: &reference, place, read: None };
        visit_kinds(&mut typed);
        let Some(object) = typed.read.flatten() else { return };
        if let Change::Slices(Delta::Put(slice)) | Change::Imported(Delta::Put(slice)) = &object
            && slice_owner(slice).is_none()
        {
            let path = FieldPath::key("metadata").then_key("labels");
            let missing = missing_label(slice);
            let message = format!("label {missing} is missing, so no Service uses the slice");
            return self.tell(place, Some(reference), &path, reason::INVALID_VALUE, message);
        }
        let origin = self.origin(Some(self.document.first_line));
        self.manifest.objects.push(PlacedObject { object, reference, origin, place: place.clone() });
    }

    /// The decoded object, with the namespace from `reference`, unless a value does not fit its field.
    fn typed<K: Kind>(&mut self, value: &Value, reference: &ObjectRef, place: &FieldPath) -> Option<Change> {
        match decode::read::<K::Object>(value) {
            Ok(mut typed) => {
                // The types of Karmada's objects and of the Gateway API have only some of the fields.
                let is_partial = K::ROW.plane == ControlPlane::Karmada || K::ROW.definition.is_some();
                let is_lenient = is_partial && !K::ROW.resource.is_built_in();
                for field in typed.unknown.iter().filter(|_| !is_lenient) {
                    self.tell_unknown(place, reference, field);
                }
                let namespace = &reference.namespace;
                typed.object.meta_mut().namespace =
                    (!namespace.is_empty()).then(|| namespace.as_ref().to_owned());
                for Breach { field, message } in typed.object.correct() {
                    let path = FieldPath::parse(&field);
                    self.tell(place, Some(reference.clone()), &path, reason::INVALID_VALUE, message);
                }
                if let Some(Problem { reason, field, message, .. }) = typed.object.warning() {
                    self.tell(place, Some(reference.clone()), &FieldPath::parse(&field), reason, message);
                }
                Some(K::change(Delta::Put(Arc::new(typed.object))))
            }
            Err(error) => {
                self.manifest.refused = true;
                let reference = Some(reference.clone());
                self.tell(place, reference, &error.path, reason::INVALID_MANIFEST, error.message);
                None
            }
        }
    }

    fn tell_unknown(&mut self, place: &FieldPath, reference: &ObjectRef, field: &UnknownField) {
        let mut message = "unknown field, which is ignored".to_owned();
        if let Some(suggestion) = field.suggestion {
            message += &format!("; did you mean {suggestion}?");
        }
        self.tell(place, Some(reference.clone()), &field.path, reason::INVALID_MANIFEST, message);
    }

    /// Rejects the object at `place`.
    fn refuse(&mut self, place: &FieldPath, reference: Option<ObjectRef>, field: &str, message: &str) {
        self.manifest.refused = true;
        let keys = field.split('.').filter(|key| !key.is_empty());
        let path = keys.fold(FieldPath::default(), FieldPath::then_key);
        self.tell(place, reference, &path, reason::INVALID_MANIFEST, message.to_owned());
    }

    /// Reports a document that is neither YAML nor JSON.
    fn refuse_text(&mut self, message: &str, line: u32) {
        self.manifest.refused = true;
        let message = cut_middle(format!("the document cannot be read: {message}"), MAX_MESSAGE_BYTES);
        let problem = file_problem(self.file, message);
        self.manifest.problems.push(FileProblem { origin: self.origin(Some(line)), problem });
    }

    /// Records a Problem at `path` below `place`. An object without a name is identified by its location in the file.
    fn tell(
        &mut self,
        place: &FieldPath,
        reference: Option<ObjectRef>,
        path: &FieldPath,
        reason: &'static str,
        message: String,
    ) {
        let inside = path.below(place);
        let line = if self.lookups < line::MAX_LINE_LOOKUPS {
            line::line_of(self.document.text, &inside)
        } else {
            None
        };
        self.lookups += 1;
        let line = line.map_or(self.document.first_line, |line| self.document.first_line + line - 1);
        // The message may quote a value that is as long as the file.
        let message = cut_middle(message, MAX_MESSAGE_BYTES);
        let problem = match reference {
            Some(object) => Problem { object, reason, field: path.to_string(), message, port: None },
            None => Problem { field: inside.to_string(), reason, ..file_problem(self.file, message) },
        };
        self.manifest.problems.push(FileProblem { origin: self.origin(Some(line)), problem });
    }

    fn origin(&self, line: Option<u32>) -> Origin {
        Origin { file: self.file.clone(), document: Some(self.document.number), line }
    }
}

/// Decodes an object as the type of its kind. Parts of a kind share one type.
struct TypedReader<'r, 'a> {
    reader: &'r mut Reader<'a>,
    value: &'r Value,
    reference: &'r ObjectRef,
    place: &'r FieldPath,
    /// The result of decoding, once it was done; the inner `None` means an undecodable object.
    read: Option<Option<Change>>,
}

impl KindVisitor for TypedReader<'_, '_> {
    fn visit<K: Kind>(&mut self) {
        let is_it = K::ROW.resource.kind == self.reference.kind && K::ROW.plane == self.reader.plane;
        if is_it && self.read.is_none() {
            self.read = Some(self.reader.typed::<K>(self.value, self.reference, self.place));
        }
    }
}

/// The kind with this name.
fn resource(kind: &str) -> Option<&'static Resource> {
    KINDS.iter().map(|row| &row.resource).find(|resource| resource.kind == kind)
}

/// The kind with its article: `a Service`, `an AddressPool`.
fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {kind}")
}

/// Whether the object's API group is one that used kinds belong to. Other groups have kinds with the same names (Knative's
/// Service, Longhorn's Node), which are ignored. An object without a readable group counts as ours, so that it is reported.
fn is_of_our_groups(fields: &Map<String, Value>) -> bool {
    let api_version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    KINDS.iter().any(|row| row.resource.group == group)
}

/// A Problem about the file `name` as a whole.
pub(super) fn file_problem(name: &Arc<str>, message: String) -> Problem {
    let object = ObjectRef { kind: FILE, namespace: "".into(), name: name.clone() };
    Problem { object, reason: reason::INVALID_MANIFEST, field: String::new(), message, port: None }
}

/// Checks the object's API version; items of a typed list may omit it.
fn check_api_version(kind: &Resource, fields: &Map<String, Value>, listed: bool) -> Result<(), String> {
    match fields.get("apiVersion") {
        None if listed => Ok(()),
        None => Err("is missing".to_owned()),
        Some(Value::String(found)) if has_api_version(kind, found) => Ok(()),
        Some(found) => Err(format!("{found} is not supported")),
    }
}

/// Whether the kind can be decoded from this API version.
fn has_api_version(kind: &Resource, found: &str) -> bool {
    // The fields that are used are the same in these versions.
    let older = match kind.kind {
        "ResourceBinding" => found == "work.karmada.io/v1alpha1",
        "GatewayClass" | "Gateway" => found == "gateway.networking.k8s.io/v1beta1",
        _ => false,
    };
    let definitions = KINDS.iter().filter(|row| row.resource.kind == kind.kind && !kind.is_built_in());
    let mut served = definitions.filter_map(|row| row.definition).flat_map(|it| it.api_versions);
    found == kind.api_version || older || served.any(|version| *version == found)
}

/// The object's name, as far as its metadata can be read. Without a namespace it is in `default`, as with `kubectl`; a namespace
/// on a cluster-scoped object is ignored.
fn reference_in(kind: &Resource, fields: &Map<String, Value>) -> Option<ObjectRef> {
    let metadata = fields.get("metadata")?;
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let namespace = if kind.namespaced { text("namespace").unwrap_or("default") } else { "" };
    Some(ObjectRef { kind: kind.kind, namespace: namespace.into(), name: text("name")?.into() })
}

#[cfg(test)]
mod tests;
