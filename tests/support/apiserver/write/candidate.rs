//! Candidate: the requested object, before validation.

use serde_json::{Value, json};

use super::managers::{Owned, Rules, Writer, after_apply, after_update, read};
use super::merge::check;
use super::metadata::text;
use super::patch::{json_patched, merge_patched, strategic};
use super::resource::{Family, Resource};
use super::typed::Decoded;
use super::{FieldValidation, Operation, WriteRequest};
use crate::apiserver::status::{Cause, Status};

/// Manager of all fields that were written before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Object on its way to the storage.
pub(super) struct Candidate {
    pub(super) object: Value,
    pub(super) owners: Vec<Owned>,
    pub(super) warnings: Vec<String>,
}

/// Computes the object and the ownership of its fields.
pub(super) fn of(
    request: &WriteRequest<'_>,
    resource: &Resource<'_>,
    live: Option<&Value>,
) -> Result<Candidate, Status> {
    if let (Operation::Create, Some(live)) = (request.operation, live) {
        // The body is parsed first, as in a real server.
        sent(request, resource)?;
        return Err(exists(request, live));
    }
    if let Operation::Apply { force } = request.operation {
        return applied(request, resource, live, force);
    }
    let decoded = match (request.operation, live) {
        (Operation::Create | Operation::Update, _) => sent(request, resource)?,
        (_, None) => return Err(Status::not_found(request.kind, request.name.unwrap_or_default())),
        (_, Some(live)) => patched(request, resource, live)?,
    };
    let warnings = warned(request, &decoded);
    let mut object = placed(request, decoded.value);
    let mut before = live.cloned().unwrap_or_else(|| resource.blank());
    let owners = owners(request, live, &object);
    remove_owners(&mut before);
    remove_owners(&mut object);
    // Objects without ownership so far stay so until the first apply.
    let tracked = live.is_none() || !owners.is_empty();
    let owners = if tracked {
        let rules = rules(request, resource);
        after_update(&rules, &before, &object, owners, &writer(request, false))
    } else {
        owners
    };
    Ok(Candidate { object, owners, warnings })
}

fn exists(request: &WriteRequest<'_>, live: &Value) -> Status {
    let mut status = Status::already_exists(request.kind, text(live, "name"));
    if super::metadata::is_terminating(live) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

fn rules<'a>(request: &'a WriteRequest<'_>, resource: &'a Resource<'_>) -> Rules<'a> {
    Rules { schema: &resource.schema, ignored: resource.ignored(request.subresource), now: &request.now }
}

fn writer(request: &WriteRequest<'_>, applies: bool) -> Writer {
    Writer {
        manager: request.field_manager.clone(),
        applies,
        api_version: request.kind.api_version(),
        subresource: request.subresource.unwrap_or_default().to_owned(),
    }
}

/// Initial owners. A PUT may bring its own; an empty list removes all.
fn owners(request: &WriteRequest<'_>, live: Option<&Value>, object: &Value) -> Vec<Owned> {
    let stored = live.map(read).unwrap_or_default();
    let given = &object["metadata"]["managedFields"];
    if request.subresource.is_some() || !given.is_array() {
        return stored;
    }
    let brought = read(object);
    let forgets = given.as_array().is_some_and(Vec::is_empty);
    if brought.is_empty() && !forgets { stored } else { brought }
}

fn remove_owners(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

/// Body of POST and PUT.
fn sent(request: &WriteRequest<'_>, resource: &Resource<'_>) -> Result<Decoded, Status> {
    let (kind, body) = (request.kind, &request.body);
    let unfit = |why: &str| {
        let version = &kind.version;
        Status::bad_request(format!(
            "{0} in version {version:?} cannot be handled as a {0}: {why}",
            kind.kind
        ))
    };
    check_kind(request)?;
    let decoded = resource.decode(body).map_err(|why| unfit(&why))?;
    if request.field_validation == FieldValidation::Strict && !decoded.unknown.is_empty() {
        return Err(unfit(&strict(&decoded.unknown)));
    }
    check_place(request, body)?;
    Ok(decoded)
}

fn check_kind(request: &WriteRequest<'_>) -> Result<(), Status> {
    let (kind, body) = (request.kind, &request.body);
    let (own_version, own_kind) = (kind.api_version(), &kind.kind);
    let version = body["apiVersion"].as_str().filter(|text| !text.is_empty()).unwrap_or(&own_version);
    let found = body["kind"].as_str().filter(|text| !text.is_empty()).unwrap_or(own_kind);
    if version == own_version && found == own_kind {
        return Ok(());
    }
    let text = if version == own_version && kind.group.is_empty() {
        let version = &kind.version;
        format!(
            "{found} in version {version:?} cannot be handled as a {own_kind}: converting ({version}.{found}) to \
             (core.{own_kind}): unknown conversion"
        )
    } else {
        format!(
            "the API version in the data ({version}, Kind={found}) does not match the expected API version \
             ({own_version}, Kind={own_kind})"
        )
    };
    Err(Status::bad_request(text))
}

/// Checks that the body is about the same object as the URL.
fn check_place(request: &WriteRequest<'_>, body: &Value) -> Result<(), Status> {
    let name = text(body, "name");
    if let Some(wanted) = request.name.filter(|wanted| !name.is_empty() && *wanted != name) {
        let text = format!("the name of the object ({name}) does not match the name on the URL ({wanted})");
        return Err(Status::bad_request(text));
    }
    let namespace = text(body, "namespace");
    if !namespace.is_empty() && request.namespace.is_some_and(|wanted| wanted != namespace) {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(text));
    }
    Ok(())
}

fn patched(request: &WriteRequest<'_>, resource: &Resource<'_>, live: &Value) -> Result<Decoded, Status> {
    let object = match request.operation {
        Operation::JsonPatch => json_patched(live, &request.body)?,
        Operation::StrategicMergePatch if resource.family == Family::Custom => return Err(unknown_format()),
        Operation::StrategicMergePatch => strategic(&resource.schema, live, &request.body)?,
        _ => merge_patched(live, &request.body)?,
    };
    let unfit = |why: &str| {
        let cause = Cause::invalid("patch", &json!(object.to_string()), why);
        Status::new(422, "Invalid", format!(" \"\" is invalid: patch: {}", cause.message)).because(&[cause])
    };
    let decoded = resource.decode(&object).map_err(|why| unfit(&why))?;
    if request.field_validation == FieldValidation::Strict && !decoded.unknown.is_empty() {
        return Err(unfit(&strict(&decoded.unknown)));
    }
    check_place(request, &decoded.value)?;
    Ok(decoded)
}

fn unknown_format() -> Status {
    let text = "the body of the request was in an unknown format - accepted media types include: \
                application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    Status::new(415, "UnsupportedMediaType", text)
}

fn strict(unknown: &[String]) -> String {
    let told: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    format!("strict decoding error: {}", told.join(", "))
}

fn warned(request: &WriteRequest<'_>, decoded: &Decoded) -> Vec<String> {
    if request.field_validation != FieldValidation::Warn {
        return Vec::new();
    }
    decoded.unknown.iter().map(|path| format!("unknown field {path:?}")).collect()
}

/// Adds the name and namespace of the URL if the body has none.
fn placed(request: &WriteRequest<'_>, mut object: Value) -> Value {
    if let Some(name) = request.name {
        object["metadata"]["name"] = json!(name);
    }
    if let Some(namespace) = request.namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// Server-side apply.
fn applied(
    request: &WriteRequest<'_>,
    resource: &Resource<'_>,
    live: Option<&Value>,
    force: bool,
) -> Result<Candidate, Status> {
    let (kind, name) = (request.kind, request.name.unwrap_or_default());
    if live.is_none() && request.subresource.is_some() && resource.family == Family::Custom {
        return Err(Status::not_found(kind, name));
    }
    let mut config = request.body.clone();
    check_applied(request, resource, &config)?;
    config = placed(request, config);
    let rules = rules(request, resource);
    let mut before = live.cloned().unwrap_or_else(|| resource.blank());
    let mut owners = live.map(read).unwrap_or_default();
    remove_owners(&mut before);
    if live.is_some() && owners.is_empty() {
        let first = Writer { manager: BEFORE_FIRST_APPLY.to_owned(), ..writer(request, false) };
        owners = after_update(&rules, &resource.blank(), &before, owners, &first);
    }
    let writer = writer(request, true);
    let (object, owners) = after_apply(&rules, &before, &config, owners, &writer, force)?;
    let decoded = resource.decode(&object).map_err(Status::plain_error)?;
    Ok(Candidate { object: placed(request, decoded.value), owners, warnings: Vec::new() })
}

fn check_applied(request: &WriteRequest<'_>, resource: &Resource<'_>, config: &Value) -> Result<(), Status> {
    let kind = request.kind;
    let (version, found) =
        (config["apiVersion"].as_str().unwrap_or_default(), config["kind"].as_str().unwrap_or_default());
    let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
    if found != kind.kind || group != kind.group {
        return Err(Status::bad_request(format!("invalid object type: {group}/{short}, Kind={found}")));
    }
    if version != kind.api_version() {
        return Err(Status::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            kind.api_version()
        )));
    }
    check_place(request, config)?;
    if config["metadata"].get("managedFields").is_some_and(|owners| !owners.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    check(&resource.schema, config).map_err(|why| {
        let place = match request.namespace {
            Some(namespace) => format!("{namespace}/{}", text(config, "name")),
            None => format!("/{}", text(config, "name")),
        };
        let group_version = if group.is_empty() { format!("/{version}") } else { version.to_owned() };
        Status::plain_error(format!(
            "failed to create typed patch object ({place}; {group_version}, Kind={found}): {why}"
        ))
    })
}
