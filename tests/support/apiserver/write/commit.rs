//! From candidate to stored object: preconditions, fields that this write cannot change, allocation and
//! validation.

use serde_json::{Value, json};

use super::allocations::Allocations;
use super::candidate::Candidate;
use super::causes::refused;
use super::managers::{self, Owned};
use super::metadata::{self, text};
use super::resource::{Family, Resource};
use super::service::{self, Held};
use super::{Operation, WriteRequest, Written};
use crate::apiserver::kind::Kind;
use crate::apiserver::status::{Cause, Status};

/// Completes a new object.
pub(super) fn create(
    request: &WriteRequest<'_>,
    resource: &Resource<'_>,
    candidate: Candidate,
    allocations: &mut Allocations,
) -> Result<Written, Status> {
    let Candidate { mut object, owners, mut warnings } = candidate;
    check_creation(request, resource, &object)?;
    prepare_new(resource, &mut object);
    finish(request, resource, &mut object, None, allocations)?;
    managers::store(&mut object, owners);
    resource.store(&mut object);
    warnings.extend(warned(resource, &object));
    Ok(Written { object, created: true, warnings })
}

/// Completes a changed object.
pub(super) fn update(
    request: &WriteRequest<'_>,
    resource: &Resource<'_>,
    candidate: Candidate,
    live: &Value,
    allocations: &mut Allocations,
) -> Result<Written, Status> {
    let Candidate { mut object, owners, mut warnings } = candidate;
    check_preconditions(request, resource, &object, live)?;
    keep_system_fields(&mut object, live);
    reset(request, resource, &mut object, live);
    finish(request, resource, &mut object, Some(live), allocations)?;
    warnings.extend(warned(resource, &object));
    resource.store(&mut object);
    object["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    bump_generation(resource, &mut object, live);
    let object = settled(object, owners, live);
    Ok(Written { object, created: false, warnings })
}

/// The live object itself, if only the times of managers would change.
fn settled(mut object: Value, owners: Vec<Owned>, live: &Value) -> Value {
    let mut bare = live.clone();
    if let Some(metadata) = bare["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if bare == object && managers::same(&owners, &managers::read(live)) {
        return live.clone();
    }
    managers::store(&mut object, owners);
    object
}

fn check_creation(request: &WriteRequest<'_>, resource: &Resource<'_>, object: &Value) -> Result<(), Status> {
    let (kind, name, uid) = (request.kind, text(object, "name"), text(object, "uid"));
    match request.operation {
        Operation::Update => {
            let status_of_none = request.subresource.is_some() && resource.family != Family::Service;
            if !resource.put_creates() || status_of_none {
                return Err(Status::not_found(kind, name));
            }
            if !uid.is_empty() {
                return Err(precondition(kind, object, uid, ""));
            }
        }
        Operation::Apply { .. } if !uid.is_empty() => {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(kind, name, &why));
        }
        Operation::Create if !text(object, "resourceVersion").is_empty() => {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Status::plain_error(why));
        }
        _ => {}
    }
    Ok(())
}

/// Removes what only the server sets, and what cannot be set on creation.
fn prepare_new(resource: &Resource<'_>, object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let system = [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ];
        metadata.retain(|key, _| !system.contains(&key.as_str()) && key != "selfLink" && key != "generation");
    }
    if matches!(resource.family, Family::Custom | Family::EndpointSlice) {
        object["metadata"]["generation"] = json!(1);
    }
    match resource.family {
        Family::Service => object["status"] = json!({"loadBalancer": {}}),
        Family::Namespace => {
            object["status"] = json!({"phase": "Active"});
            object["spec"] = json!({"finalizers": ["kubernetes"]});
        }
        Family::Custom if resource.has_status() => {
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
        }
        _ => {}
    }
}

/// Checks the preconditions on uid and resourceVersion (optimistic locking).
fn check_preconditions(
    request: &WriteRequest<'_>,
    resource: &Resource<'_>,
    object: &Value,
    live: &Value,
) -> Result<(), Status> {
    let (kind, name) = (request.kind, text(live, "name"));
    let uid = text(object, "uid");
    if request.operation == Operation::Update && !uid.is_empty() && uid != text(live, "uid") {
        return Err(precondition(kind, live, uid, text(live, "uid")));
    }
    match text(object, "resourceVersion") {
        "" | "0" if resource.unconditional() => Ok(()),
        "" | "0" => {
            let (field, why) = ("metadata.resourceVersion", "must be specified for an update");
            let cause = Cause::invalid(field, &json!(0), why);
            let message =
                format!("{} {name:?} is invalid: {field}: {}", kind.qualified_plural(), cause.message);
            Err(Status::new(422, "Invalid", message).about(name, &kind.group, &kind.plural).because(&[cause]))
        }
        given if given == text(live, "resourceVersion") => Ok(()),
        given if given.parse::<u64>().is_err() => {
            let text = format!("strconv.ParseUint: parsing {given:?}: invalid syntax");
            Err(Status::plain_error(text))
        }
        _ => Err(Status::stale(kind, name)),
    }
}

/// 409 in the form of the storage layer.
fn precondition(kind: &Kind, object: &Value, wanted: &str, found: &str) -> Status {
    let (name, namespace) = (text(object, "name"), text(object, "namespace"));
    let folder = match (kind.plural.as_str(), kind.custom) {
        ("services", false) => "services/specs".to_owned(),
        ("nodes", false) => "minions".to_owned(),
        (plural, false) => plural.to_owned(),
        (plural, true) => format!("{}/{plural}", kind.group),
    };
    let place = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{folder}/{place}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    );
    Status::conflict(kind, name, &why)
}

/// Restores fields that a client may omit but not set (`rest.BeforeUpdate`).
fn keep_system_fields(object: &mut Value, live: &Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if let Some(uid) = live["metadata"].get("uid") {
        metadata.entry("uid").or_insert_with(|| uid.clone());
    }
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        match live["metadata"].get(key) {
            Some(kept) => drop(metadata.insert(key.to_owned(), kept.clone())),
            None => drop(metadata.remove(key)),
        }
    }
}

/// Restores fields that this write cannot change.
fn reset(request: &WriteRequest<'_>, resource: &Resource<'_>, object: &mut Value, live: &Value) {
    let restore = |object: &mut Value, key: &str| match live.get(key) {
        Some(kept) => object[key] = kept.clone(),
        None => {
            if let Some(fields) = object.as_object_mut() {
                fields.remove(key);
            }
        }
    };
    match (request.subresource, resource.family) {
        (Some("status"), Family::Custom) => {
            let status = object.get("status").cloned();
            *object = live.clone();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
                fields.extend(status.map(|status| ("status".to_owned(), status)));
            }
        }
        (Some("status"), _) => restore(object, "spec"),
        (None, _) if resource.has_status() => restore(object, "status"),
        _ => {}
    }
    if request.subresource.is_none() && resource.family == Family::Service {
        service::wipe(object, live);
        service::fill_from(object, live);
    }
}

/// Allocates and validates. If validation fails, the allocations are undone.
fn finish(
    request: &WriteRequest<'_>,
    resource: &Resource<'_>,
    object: &mut Value,
    live: Option<&Value>,
    allocations: &mut Allocations,
) -> Result<(), Status> {
    let mut held = Held::default();
    // A Service that is created with PUT /status keeps the addresses in the body, even if they are taken.
    let allocates = resource.family == Family::Service
        && (request.subresource.is_none() || live.is_none() && request.operation != Operation::Update);
    let allocated = if allocates {
        service::allocate(request.kind, object, live, request.dry_run, allocations, &mut held)
    } else {
        Ok(())
    };
    let done = allocated.and_then(|()| validate(request, resource, object, live));
    if done.is_ok() && !request.dry_run {
        held.settle(allocations);
    } else {
        held.give_back(allocations);
    }
    done
}

fn validate(
    request: &WriteRequest<'_>,
    resource: &Resource<'_>,
    object: &Value,
    live: Option<&Value>,
) -> Result<(), Status> {
    let mut causes = Vec::new();
    if let Some(live) = live {
        // Both the generic store and the kind's strategy check metadata.
        let times = if matches!(resource.family, Family::Service | Family::Custom) { 2 } else { 1 };
        for _ in 0..times {
            causes.extend(metadata::check_update(live, object));
        }
    }
    causes.extend(resource.check(object, live, request.subresource));
    if causes.is_empty() {
        return Ok(());
    }
    let name = text(object, "name");
    if matches!(resource.family, Family::Event | Family::CoreEvent) {
        // Events are validated as the internal type, which belongs to the core group.
        let core = Kind { group: String::new(), ..request.kind.clone() };
        return Err(refused(&core, name, &causes));
    }
    Err(refused(request.kind, name, &causes))
}

/// Warnings about the object; only Services have any.
fn warned(resource: &Resource<'_>, object: &Value) -> Vec<String> {
    if resource.family == Family::Service { service::warnings(object) } else { Vec::new() }
}

/// Increments `metadata.generation` if something besides metadata and status has changed.
fn bump_generation(resource: &Resource<'_>, object: &mut Value, live: &Value) {
    let wish = |object: &Value| {
        let mut wish = object.clone();
        if let Some(fields) = wish.as_object_mut() {
            fields.remove("metadata");
            if resource.family == Family::Custom && resource.has_status() {
                fields.remove("status");
            }
        }
        wish
    };
    let labels_count = resource.family == Family::EndpointSlice;
    let labels = |object: &Value| labels_count.then(|| object["metadata"]["labels"].clone());
    if matches!(resource.family, Family::Custom | Family::EndpointSlice)
        && (wish(object) != wish(live) || labels(object) != labels(live))
    {
        let generation = live["metadata"]["generation"].as_u64().unwrap_or_default();
        object["metadata"]["generation"] = json!(generation + 1);
    }
}
