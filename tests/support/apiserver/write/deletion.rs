//! DELETE of an object.

use serde_json::{Value, json};

use super::causes::unsupported;
use super::metadata::{finalizers, is_terminating, text};
use crate::apiserver::kind::Kind;
use crate::apiserver::status::{Cause, Status};

/// Effect of DELETE.
#[must_use]
#[derive(Debug)]
pub enum Deletion {
    /// Finalizers hold the object, which has a deletionTimestamp. It equals the live object if it already had one.
    Marked(Value),
    /// The object is removed.
    Removed,
}

/// Deletes the live object. With finalizers it is only marked.
///
/// `options` are the DeleteOptions, including the query's `propagationPolicy`. `now` is RFC 3339, whole seconds, UTC.
pub fn delete(kind: &Kind, live: &Value, options: &Value, now: &str) -> Result<Deletion, Status> {
    check_policy(options)?;
    check_preconditions(kind, live, options)?;
    let mut held: Vec<String> = finalizers(live).into_iter().map(str::to_owned).collect();
    // The garbage collector, which removes this finalizer, is not part of an API server.
    if options["propagationPolicy"] == "Foreground" && !is_terminating(live) {
        held.push("foregroundDeletion".to_owned());
    }
    if held.is_empty() {
        return Ok(Deletion::Removed);
    }
    let mut object = live.clone();
    if !is_terminating(live) {
        let metadata = &mut object["metadata"];
        metadata["deletionTimestamp"] = json!(now);
        metadata["deletionGracePeriodSeconds"] = json!(0);
        metadata["finalizers"] = json!(held);
        if let Some(generation) = metadata["generation"].as_u64() {
            metadata["generation"] = json!(generation + 1);
        }
    }
    Ok(Deletion::Marked(object))
}

fn check_policy(options: &Value) -> Result<(), Status> {
    let supported = ["Foreground", "Background", "Orphan", "nil"];
    let Some(policy) = options["propagationPolicy"].as_str() else { return Ok(()) };
    if supported[..3].contains(&policy) {
        return Ok(());
    }
    let cause: Cause = unsupported("propagationPolicy", policy, &supported);
    let message = format!("DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: {}", cause.message);
    Err(Status::new(422, "Invalid", message).about("", "meta.k8s.io", "DeleteOptions").because(&[cause]))
}

fn check_preconditions(kind: &Kind, live: &Value, options: &Value) -> Result<(), Status> {
    let name = text(live, "name");
    let told =
        [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")];
    for (key, word, what) in told {
        let Some(wanted) = options["preconditions"][key].as_str() else { continue };
        let found = text(live, key);
        if wanted != found {
            let message = format!(
                "Operation cannot be fulfilled on {} {name:?}: the {word} in the precondition ({wanted}) does not \
                 match the {word} in record ({found}). The object might have been {what}",
                kind.qualified_kind()
            );
            return Err(Status::new(409, "Conflict", message).about(name, &kind.group, &kind.kind));
        }
    }
    Ok(())
}
