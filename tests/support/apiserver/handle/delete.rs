//! DELETE of one object or of a collection.

use std::sync::Arc;

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::kind::registry::Served;
use super::super::reply::{JSON, Reply};
use super::super::rules;
use super::super::selector::Selector;
use super::super::shared::{World, now};
use super::super::status::Status;
use super::super::store::Entry;
use super::super::write::{self, Deletion};
use super::{Call, represent};

/// DELETE of one object.
pub(super) fn one(call: &Call<'_>, bytes: &Bytes) -> Result<Reply, Status> {
    let options = Options::parse(call, bytes)?;
    let name = call.target.name.as_deref().unwrap_or_default();
    let mut world = call.world();
    let entry = world.store.get(&call.served, &call.key(name));
    let entry = entry.ok_or_else(|| Status::not_found(&call.served.kind, name))?;
    let (entry, removed) = delete(call, &mut world, &entry, &options)?;
    let mut bytes = Vec::new();
    if removed && tells_only_success(&call.served) {
        let kind = &call.served.kind;
        let object = represent::object(&call.served, &entry);
        let details =
            json!({"name": name, "group": kind.group, "kind": kind.plural, "uid": object["metadata"]["uid"]});
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        return Ok(Reply::json(200, &status));
    }
    represent::whole(&call.served, call.form, &entry, &mut bytes);
    bytes.push(b'\n');
    Ok(Reply::bytes(200, JSON, bytes))
}

/// Whether the removal is answered with a `Status`, as for most kinds; some built-in kinds answer with the
/// object.
fn tells_only_success(served: &Served) -> bool {
    !["services", "pods", "serviceaccounts"].contains(&served.shelf.as_str())
}

/// DELETE of all objects that match. The answer is the list of their last states.
pub(super) fn collection(call: &Call<'_>, bytes: &Bytes) -> Result<Reply, Status> {
    let options = Options::parse(call, bytes)?;
    let query = call.query;
    let selector = Selector::parse(&call.served, query.get("labelSelector"), query.get("fieldSelector"))?;
    let prefix = call.prefix().unwrap_or_default();
    let mut world = call.world();
    let revision = world.store.revision();
    let shelf = world.store.shelf(&call.served.shelf);
    let entries = shelf.entries().values().filter(|entry| entry.key.starts_with(&prefix));
    let entries: Vec<Arc<Entry>> = entries.filter(|entry| selector.matches(entry)).cloned().collect();
    let kind = &call.served.kind;
    let mut bytes = format!(
        r#"{{"kind":"{}List","apiVersion":"{}","metadata":{{"resourceVersion":"{revision}"}},"items":["#,
        kind.kind,
        kind.api_version()
    )
    .into_bytes();
    for (index, entry) in entries.iter().enumerate() {
        delete(call, &mut world, entry, &options)?;
        if index > 0 {
            bytes.push(b',');
        }
        represent::item(&call.served, call.form, entry, &mut bytes);
    }
    bytes.extend_from_slice(b"]}\n");
    Ok(Reply::bytes(200, JSON, bytes))
}

/// Options of a deletion.
struct Options {
    /// Options in the form of `write::delete`.
    given: Value,
    dry_run: bool,
}

impl Options {
    fn parse(call: &Call<'_>, bytes: &Bytes) -> Result<Self, Status> {
        let mut given: Value = if bytes.is_empty() {
            json!({})
        } else {
            serde_json::from_slice(bytes).map_err(|error| Status::bad_request(error.to_string()))?
        };
        let policy = call.query.get("propagationPolicy");
        if !policy.is_empty() {
            given["propagationPolicy"] = json!(policy);
        }
        let dry_run = call.query.get("dryRun") == "All" || given["dryRun"][0] == "All";
        Ok(Self { given, dry_run })
    }
}

/// Deletes or marks an object. Returns its current or last state, and whether it was removed.
fn delete(
    call: &Call<'_>,
    world: &mut World,
    entry: &Arc<Entry>,
    options: &Options,
) -> Result<(Arc<Entry>, bool), Status> {
    let live = represent::object(&call.served, entry);
    let moment = now();
    let deletion = match rules::namespace::delete(&call.served, &live, &moment) {
        Some(deletion) => deletion,
        None => write::delete(&call.served.kind, &live, &options.given, &moment)?,
    };
    match deletion {
        Deletion::Marked(object) if !options.dry_run && object != live => {
            Ok((world.store.put(&call.served, object, &moment, false), false))
        }
        Deletion::Removed if !options.dry_run => {
            let gone = remove(&call.served, world, &entry.key).unwrap_or_else(|| Arc::clone(entry));
            Ok((gone, true))
        }
        Deletion::Marked(_) => Ok((Arc::clone(entry), false)),
        Deletion::Removed => Ok((Arc::clone(entry), true)),
    }
}

/// Removes an object with everything that depends on it.
pub(super) fn remove(served: &Served, world: &mut World, key: &str) -> Option<Arc<Entry>> {
    let gone = world.store.remove(served, key)?;
    rules::definition::unfollow(world, served, &gone);
    world.allocations.release(&served.kind, &gone.object(&served.kind));
    Some(gone)
}
