//! POST, PUT and PATCH: from the HTTP body to the stored object.

use std::sync::Arc;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::record::Request;
use super::super::reply::{JSON, Reply};
use super::super::rules;
use super::super::shared::{World, now};
use super::super::status::Status;
use super::super::store::Entry;
use super::super::store::entry::key;
use super::super::write::{self, FieldValidation, Operation, WriteRequest};
use super::{Call, forbidden, represent};

mod body;

/// POST to a collection.
pub(super) fn create(call: &Call<'_>, bytes: &Bytes, record: &mut Request) -> Result<Reply, Status> {
    let mut object = body::object(call, bytes)?;
    let metadata = &mut object["metadata"];
    let prefix = metadata["generateName"].as_str().unwrap_or_default().to_owned();
    if metadata["name"].as_str().is_none_or(str::is_empty) && !prefix.is_empty() {
        metadata["name"] = json!(format!("{prefix}{}", suffix()));
    }
    record.name = metadata["name"].as_str().map(str::to_owned);
    write(call, Operation::Create, object, None)
}

/// PUT or PATCH of an object.
pub(super) fn change(call: &Call<'_>, verb: &str, bytes: &Bytes) -> Result<Reply, Status> {
    let name = call.target.name.as_deref();
    if verb == "update" {
        let object = body::object(call, bytes)?;
        let own = object["metadata"]["name"].as_str().unwrap_or_default();
        if let Some(name) = name
            && !own.is_empty()
            && own != name
        {
            let text = format!("the name of the object ({own}) does not match the name on the URL ({name})");
            return Err(Status::bad_request(text));
        }
        return write(call, Operation::Update, object, name);
    }
    let (operation, patch) = body::patch(call, bytes)?;
    write(call, operation, patch, name)
}

fn write(call: &Call<'_>, operation: Operation, body: Value, name: Option<&str>) -> Result<Reply, Status> {
    let kind = &call.served.kind;
    let webhook = rules::multi_cluster_service::judges(kind, call.target.subresource.as_deref())
        && call.world().karmada_webhook;
    let request = WriteRequest {
        kind,
        namespace: call.target.namespace.as_deref(),
        name,
        subresource: call.target.subresource.as_deref(),
        operation,
        field_manager: body::field_manager(call, operation)?,
        body,
        field_validation: match call.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        },
        dry_run: call.query.get("dryRun") == "All",
        now: now(),
        mutation: webhook.then_some(rules::multi_cluster_service::mutate),
    };
    let name = name.or_else(|| request.body["metadata"]["name"].as_str()).unwrap_or_default().to_owned();
    let mut world = call.world();
    let world = &mut *world;
    if operation == Operation::Create {
        rules::namespace::admit(world, &request, &name)?;
    }
    let live = world.store.get(&call.served, &key(request.namespace, &name));
    let live = live.map(|entry| represent::object(&call.served, &entry));
    let mut copy;
    let allocations = if request.dry_run {
        copy = world.allocations.clone();
        &mut copy
    } else {
        &mut world.allocations
    };
    let mut written = write::write(&request, live.as_ref(), allocations)?;
    if webhook {
        rules::multi_cluster_service::validate(live.as_ref(), &written.object)?;
    }
    if written.created && operation != Operation::Create {
        admit_creation(call, world, &request, &name)?;
    }
    rules::complete(&request, live.as_ref(), &mut written.object);
    let entry = if request.dry_run {
        Arc::new(dry(call, live.as_ref(), written.object, &request.now))
    } else {
        store(call, world, live, written.object, &request.now)
    };
    let mut bytes = Vec::new();
    represent::whole(&call.served, call.form, &entry, &mut bytes);
    bytes.push(b'\n');
    let code = if written.created { 201 } else { 200 };
    Ok(Reply::bytes(code, JSON, bytes).with_warnings(&written.warnings))
}

/// Checks that a PUT or apply that creates has permission to create, and a namespace.
fn admit_creation(
    call: &Call<'_>,
    world: &mut World,
    request: &WriteRequest<'_>,
    name: &str,
) -> Result<(), Status> {
    if !call.shared.access().allows(call.user, "create", call.target) {
        return Err(forbidden(call.user, "create", call.target));
    }
    rules::namespace::admit(world, request, name)
}

/// Result of a dry run: the object that would have been stored.
fn dry(call: &Call<'_>, live: Option<&Value>, mut object: Value, now: &str) -> Entry {
    let metadata = &mut object["metadata"];
    match live {
        Some(live) => metadata["resourceVersion"] = live["metadata"]["resourceVersion"].clone(),
        None => {
            metadata["uid"] = json!(super::super::store::new_uid());
            metadata["creationTimestamp"] = json!(now);
        }
    }
    Entry::new(&call.served, stored_form(call, object), 0)
}

/// Stores the object if it has changed. An object whose last finalizer was removed is deleted instead.
fn store(
    call: &Call<'_>,
    world: &mut World,
    live: Option<Value>,
    mut object: Value,
    now: &str,
) -> Arc<Entry> {
    let own = &object["metadata"];
    let key = key(own["namespace"].as_str(), own["name"].as_str().unwrap_or_default());
    let Some(live) = live else {
        let metadata = object["metadata"].as_object_mut().expect("written objects have metadata");
        metadata.remove("uid");
        metadata.remove("creationTimestamp");
        return stored(call, world, None, object, now);
    };
    for kept in ["uid", "creationTimestamp", "resourceVersion"] {
        object["metadata"][kept] = live["metadata"][kept].clone();
    }
    let finalizers = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    if !object["metadata"]["deletionTimestamp"].is_null() && !finalizers {
        // The last state that watches see still has the finalizer; the answer does not.
        super::delete::remove(&call.served, world, &key);
        return Arc::new(Entry::new(&call.served, stored_form(call, object), 0));
    }
    if object == live {
        return world.store.get(&call.served, &key).expect("it was read under the same lock");
    }
    stored(call, world, Some(&live), object, now)
}

fn stored(call: &Call<'_>, world: &mut World, live: Option<&Value>, object: Value, now: &str) -> Arc<Entry> {
    let object = stored_form(call, object);
    rules::definition::follow(world, &call.served, &object);
    let entry = world.store.put(&call.served, object, now, false);
    rules::scheduler::follow(world, &call.served, live, &entry, now);
    entry
}

/// Stored form of an object. Events are stored in the shape of the core group.
fn stored_form(call: &Call<'_>, object: Value) -> Value {
    if call.served.reshapes_events() { rules::event::to_core(object) } else { object }
}

/// Five characters without vowels: `SimpleNameGenerator` of k8s.io/apiserver.
fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(ALPHABET[fastrand::usize(..ALPHABET.len())])).collect()
}
