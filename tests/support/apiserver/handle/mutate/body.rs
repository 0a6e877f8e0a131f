//! Bodies of writes, and errors for invalid ones.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::Call;
use super::super::options::options_invalid;
use crate::apiserver::status::{Cause, Status};
use crate::apiserver::write::Operation;

/// The whole object of a POST or PUT.
pub(super) fn object(call: &Call<'_>, bytes: &Bytes) -> Result<Value, Status> {
    let media = media_type(call);
    if !["", "application/json", "application/yaml"].contains(&media) {
        let text = "the body of the request was in an unknown format - accepted media types include: \
                    application/json, application/yaml, application/vnd.kubernetes.protobuf";
        return Err(Status::new(415, "UnsupportedMediaType", text));
    }
    let kind = &call.served.kind;
    let mut object = parse(bytes).map_err(|why| {
        let told =
            if bytes.is_empty() { "<empty>".to_owned() } else { String::from_utf8_lossy(bytes).into_owned() };
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; \
             json parse error: {why} ({told})",
            kind.kind
        ))
    })?;
    // Missing fields default to what the URL says.
    for (key, expected) in [("apiVersion", kind.api_version()), ("kind", kind.kind.clone())] {
        match object.get(key).and_then(Value::as_str) {
            None | Some("") => object[key] = json!(expected),
            // The write itself checks for differences from the URL.
            Some(_) => {}
        }
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let own = object["metadata"]["namespace"].as_str().unwrap_or_default();
    match call.target.namespace.as_deref() {
        Some(namespace) if !own.is_empty() && own != namespace => {
            let text =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(text));
        }
        Some(namespace) => object["metadata"]["namespace"] = json!(namespace),
        None => {}
    }
    Ok(object)
}

/// Patch format and content, by Content-Type.
pub(super) fn patch(call: &Call<'_>, bytes: &Bytes) -> Result<(Operation, Value), Status> {
    let operation = match media_type(call) {
        "application/json-patch+json" => Operation::JsonPatch,
        "application/merge-patch+json" => Operation::MergePatch,
        "application/strategic-merge-patch+json" => Operation::StrategicMergePatch,
        "application/apply-patch+yaml" => Operation::Apply { force: call.query.is_on("force") },
        _ => {
            let text = "415: Unsupported Media Type";
            return Err(Status::new(415, "UnsupportedMediaType", text).about("", "", ""));
        }
    };
    if let Operation::Apply { .. } = operation {
        let object =
            parse(bytes).or_else(|_| serde_saphyr::from_slice(bytes).map_err(|error| error.to_string()));
        return Ok((
            operation,
            object.map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?,
        ));
    }
    let patch = parse(bytes).map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
    Ok((operation, patch))
}

fn media_type<'a>(call: &'a Call<'_>) -> &'a str {
    call.content_type.split(';').next().unwrap_or_default().trim()
}

/// Parses JSON, with the error of Go's decoder where it is known.
fn parse(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            go_syntax_error(bytes, &error)
        }
    })
}

fn go_syntax_error(bytes: &[u8], error: &serde_json::Error) -> String {
    let line = bytes.split(|&byte| byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)).copied().map_or(' ', char::from);
    format!("invalid character '{found}' looking for beginning of value")
}

/// Field manager: from the query, else the User-Agent up to its first slash.
pub(super) fn field_manager(call: &Call<'_>, operation: Operation) -> Result<String, Status> {
    let manager = call.query.get("fieldManager");
    let options = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        _ => "PatchOptions",
    };
    let refuse = |cause: Cause| Err(options_invalid(options, &[cause]));
    if manager.len() > 128 {
        let text = "Too long: may not be more than 128 bytes";
        return refuse(Cause::new("FieldValueTooLong", "fieldManager", text));
    }
    if let Some((position, bad)) = manager.char_indices().find(|(_, character)| character.is_control()) {
        let why = format!("invalid character U+{:04X} (at position {position})", u32::from(bad));
        return refuse(Cause::invalid("fieldManager", &json!(manager), &why));
    }
    if call.query.has("force") && options == "PatchOptions" && !matches!(operation, Operation::Apply { .. }) {
        return refuse(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    match (manager, operation) {
        ("", Operation::Apply { .. }) => {
            refuse(Cause::required("fieldManager", "is required for apply patch"))
        }
        ("", _) => {
            let agent = call.user_agent.split('/').next().unwrap_or_default();
            Ok(if agent.is_empty() { "unknown".to_owned() } else { agent.to_owned() })
        }
        (manager, _) => Ok(manager.to_owned()),
    }
}
