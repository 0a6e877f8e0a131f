//! `metadata.managedFields`: ownership of fields, and what an apply may do. After structured-merge-diff
//! `merge/update.go` and k8s.io/apimachinery `util/managedfields`.

use serde_json::{Value, json};

use super::compare::{Comparison, compare};
use super::fields::{FieldSet, told};
use super::merge::{field_set, merge, with_named_parents, without};
use super::schema::Schema;
use crate::apiserver::status::{Cause, Status};

/// Author and type of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub manager: String,
    pub applies: bool,
    pub api_version: String,
    pub subresource: String,
}

/// Fields of one writer.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub writer: Writer,
    pub time: Option<String>,
    pub fields: FieldSet,
}

/// Rules of ownership, besides the objects.
pub(super) struct Rules<'a> {
    pub schema: &'a Schema,
    /// Paths that this kind of write cannot change, and so cannot own.
    pub ignored: &'a [&'a [&'a str]],
    pub now: &'a str,
}

/// Metadata that the server itself maintains.
const SERVER_OWNED: [&[&str]; 12] = [
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
    &["f:metadata", "f:deletionTimestamp"],
    &["f:metadata", "f:deletionGracePeriodSeconds"],
];

/// Owners as stored in the object.
pub(super) fn read(object: &Value) -> Vec<Owned> {
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| Owned {
            writer: Writer {
                manager: text(entry, "manager"),
                applies: entry["operation"] == "Apply",
                api_version: text(entry, "apiVersion"),
                subresource: text(entry, "subresource"),
            },
            time: entry["time"].as_str().map(str::to_owned),
            fields: FieldSet::from_json(&entry["fieldsV1"]),
        })
        .collect()
}

/// Stores the owners in the object, in the server's order.
pub(super) fn store(object: &mut Value, mut owners: Vec<Owned>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    owners.sort_by(|one, other| {
        // Apply before Update, then by time. Entries without a time come first.
        let rank = |owned: &Owned| (!owned.writer.applies, owned.time.clone());
        rank(one).cmp(&rank(other)).then_with(|| {
            let name = |owned: &Owned| (owned.writer.manager.clone(), owned.writer.subresource.clone());
            name(one).cmp(&name(other))
        })
    });
    let stored: Vec<Value> = owners.iter().map(entry).collect();
    if stored.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".to_owned(), Value::Array(stored));
    }
}

fn entry(owned: &Owned) -> Value {
    let Writer { manager, applies, api_version, subresource } = &owned.writer;
    let mut entry = json!({
        "manager": manager,
        "operation": if *applies { "Apply" } else { "Update" },
        "apiVersion": api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owned.fields.to_json(),
    });
    if let Some(time) = &owned.time {
        entry["time"] = json!(time);
    }
    if !subresource.is_empty() {
        entry["subresource"] = json!(subresource);
    }
    entry
}

/// Whether both sides are equal, regardless of times.
pub(super) fn same(one: &[Owned], other: &[Owned]) -> bool {
    let holds = |owned: &Owned, side: &[Owned]| {
        side.iter().any(|found| found.writer == owned.writer && found.fields == owned.fields)
    };
    one.len() == other.len() && one.iter().all(|owned| holds(owned, other))
}

/// Ownership after a write other than apply: the writer owns what it changed.
pub(super) fn after_update(
    rules: &Rules<'_>,
    before: &Value,
    after: &Value,
    mut owners: Vec<Owned>,
    writer: &Writer,
) -> Vec<Owned> {
    let Comparison { changed, removed } = filtered(rules, compare(rules.schema, before, after));
    for owned in &mut owners {
        owned.fields.difference(&changed);
        owned.fields.difference(&removed);
    }
    let taken = stripped(changed);
    if !taken.is_empty() {
        match owners.iter_mut().find(|owned| owned.writer == *writer) {
            Some(owned) => {
                owned.fields.union(&taken);
                owned.time = Some(rules.now.to_owned());
            }
            None => {
                let time = Some(rules.now.to_owned());
                owners.push(Owned { writer: writer.clone(), time, fields: taken });
            }
        }
    }
    tidied(owners)
}

/// Object and owners after an apply, or the conflicts that prevent it.
pub(super) fn after_apply(
    rules: &Rules<'_>,
    live: &Value,
    applied: &Value,
    mut owners: Vec<Owned>,
    writer: &Writer,
    force: bool,
) -> Result<(Value, Vec<Owned>), Status> {
    let schema = rules.schema;
    let mut fields = field_set(schema, applied);
    for path in rules.ignored {
        fields.prune(path);
    }
    let mut object = merge(schema, Some(live), Some(applied)).unwrap_or_default();
    let last = match owners.iter_mut().find(|owned| owned.writer == *writer) {
        Some(owned) => std::mem::replace(&mut owned.fields, fields),
        None => {
            owners.push(Owned { writer: writer.clone(), time: None, fields });
            FieldSet::default()
        }
    };
    if !last.is_empty() {
        object = pruned(schema, &object, &last, &owners);
    }
    let Comparison { changed, removed } = filtered(rules, compare(schema, live, &object));
    let mut conflicts = Vec::new();
    for owned in owners.iter_mut().filter(|owned| owned.writer != *writer) {
        let contested = owned.fields.intersection(&changed);
        conflicts.extend(contested.paths().into_iter().map(|path| (owned.writer.clone(), path)));
        owned.fields.difference(&contested);
        owned.fields.difference(&removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    if object != *live
        && let Some(owned) = owners.iter_mut().find(|owned| owned.writer == *writer)
    {
        owned.time = Some(rules.now.to_owned());
    }
    for owned in &mut owners {
        owned.fields = stripped(std::mem::take(&mut owned.fields));
    }
    Ok((object, tidied(owners)))
}

/// Removes what the writer applied last time, unless another manager owns it.
fn pruned(schema: &Schema, merged: &Value, last: &FieldSet, owners: &[Owned]) -> Value {
    let mut owned = FieldSet::default();
    for owner in owners {
        owned.union(&owner.fields);
    }
    let mut gone = with_named_parents(schema, last);
    gone.difference(&with_named_parents(schema, &owned));
    without(schema, merged, &gone)
}

fn filtered(rules: &Rules<'_>, mut comparison: Comparison) -> Comparison {
    for path in rules.ignored {
        comparison.changed.prune(path);
        comparison.removed.prune(path);
    }
    comparison
}

fn stripped(mut fields: FieldSet) -> FieldSet {
    for path in SERVER_OWNED {
        fields.prune(path);
    }
    if let Some(metadata) = fields.children.get_mut("f:metadata") {
        metadata.member = false;
    }
    fields.children.retain(|_, child| !child.is_empty());
    fields
}

fn tidied(mut owners: Vec<Owned>) -> Vec<Owned> {
    owners.retain(|owned| !owned.fields.is_empty());
    owners
}

/// 409 with one cause for each conflicting field.
fn conflict(conflicts: &[(Writer, Vec<String>)]) -> Status {
    let causes: Vec<Cause> = conflicts
        .iter()
        .map(|(writer, path)| {
            Cause::new("FieldManagerConflict", &told(path), format!("conflict with {}", named(writer)))
        })
        .collect();
    let message = match conflicts {
        [(writer, path)] => {
            format!("Apply failed with 1 conflict: conflict with {}: {}", named(writer), told(path))
        }
        many => {
            let mut writers: Vec<String> = many.iter().map(|(writer, _)| named(writer)).collect();
            writers.sort_unstable();
            writers.dedup();
            let lists: Vec<String> = writers
                .iter()
                .map(|writer| {
                    let paths: Vec<String> = many
                        .iter()
                        .filter(|(other, _)| named(other) == *writer)
                        .map(|(_, path)| format!("- {}", told(path)))
                        .collect();
                    format!("conflicts with {writer}:\n{}", paths.join("\n"))
                })
                .collect();
            format!("Apply failed with {} conflicts: {}", many.len(), lists.join("\n"))
        }
    };
    Status::new(409, "Conflict", message).because(&causes)
}

fn named(writer: &Writer) -> String {
    let mut name = format!("{:?}", writer.manager);
    if !writer.subresource.is_empty() {
        name = format!("{name} with subresource {:?}", writer.subresource);
    }
    if !writer.applies {
        name = format!("{name} using {}", writer.api_version);
    }
    name
}
