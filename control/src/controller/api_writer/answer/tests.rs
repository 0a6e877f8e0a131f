//! Answers recorded from a real API server.

use serde_json::{Value, json};

use super::*;

fn answer(code: u16, body: &Value) -> ApiAnswer {
    ApiAnswer::read(code, None, body.to_string().into_bytes(), "sheave")
}

fn failure(message: &str, reason: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
           "reason": reason, "details": details})
}

fn conflicts(causes: &[(&str, &str)]) -> Value {
    let causes: Vec<_> = causes
        .iter()
        .map(|(message, field)| json!({"reason": "FieldManagerConflict", "message": message, "field": field}))
        .collect();
    failure("Apply failed with 1 conflict", "Conflict", &json!({"causes": causes}))
}

#[test]
fn a_write_gives_the_object() {
    assert_eq!(answer(200, &json!({"kind": "Service"})), ApiAnswer::Done(br#"{"kind":"Service"}"#.to_vec()));
}

#[test]
fn an_old_version_is_told_from_another_manager() {
    let details = json!({"name": "s-a", "kind": "services"});
    let message = "Operation cannot be fulfilled on services \"s-a\": the object has been modified";
    assert_eq!(answer(409, &failure(message, "Conflict", &details)), ApiAnswer::Stale);
    let exists = failure("it exists", "AlreadyExists", &json!({}));
    assert_eq!(answer(409, &exists), ApiAnswer::Exists);
    let causes =
        [("conflict with \"lbctl\" with subresource \"status\" using v1", ".status.loadBalancer.ingress")];
    assert_eq!(
        answer(409, &conflicts(&causes)),
        ApiAnswer::Conflict(Conflict {
            rivals: vec!["lbctl".into()],
            fields: vec!["status.loadBalancer.ingress".into()]
        })
    );
}

#[test]
fn another_object_of_the_name_is_no_refusal() {
    let message = "ServiceExport.multicluster.x-k8s.io \"web\" is invalid: metadata.uid: Invalid value: \"u1\": field is immutable";
    let cause = |field: &str| json!({"reason": "FieldValueInvalid", "message": "Invalid value: \"u1\": field is immutable", "field": field});
    let of = |field: &str| {
        failure(
            message,
            "Invalid",
            &json!({"name": "web", "kind": "ServiceExport", "causes": [cause(field), cause(field)]}),
        )
    };
    assert_eq!(answer(422, &of("metadata.uid")), ApiAnswer::Stale);
    assert_eq!(answer(422, &of("spec.types")), ApiAnswer::Refused(message.into()));
}

#[test]
fn rivals_are_named_once() {
    let field = ".status.conditions[type=\"sheave.dev/Programmed\"].status";
    let causes = [
        ("conflict with \"b\" with subresource \"status\"", field),
        (
            "conflict with \"a\\\"x\" with subresource \"status\" using v1 at 2026-01-01T00:00:00Z",
            ".status.x",
        ),
        ("conflict with \"b\" with subresource \"status\"", ".status.x"),
    ];
    let ApiAnswer::Conflict(held) = answer(409, &conflicts(&causes)) else { panic!("no conflict") };
    assert_eq!(held.rivals, ["a\"x", "b"]);
    assert_eq!(held.fields, [&field[1..], "status.x"]);
}

#[test]
fn our_own_plain_writes_are_no_rivals() {
    let causes =
        [("conflict with \"sheave\" with subresource \"status\" using v1", ".status.loadBalancer.ingress")];
    assert_eq!(answer(409, &conflicts(&causes)), ApiAnswer::Conflict(Conflict::default()));
}

#[test]
fn a_server_that_wants_to_be_left_alone_says_for_how_long() {
    let busy =
        ApiAnswer::read(429, Some("7"), b"Too many requests, please try again later.\n".to_vec(), "sheave");
    let reason = "Too many requests, please try again later.".to_owned();
    assert_eq!(busy, ApiAnswer::Busy { reason, retry_after: Some(Duration::from_secs(7)) });
    let starting =
        failure("storage is (re)initializing", "TooManyRequests", &json!({"retryAfterSeconds": 1}));
    assert_eq!(
        answer(429, &starting),
        ApiAnswer::Busy {
            reason: "storage is (re)initializing".into(),
            retry_after: Some(Duration::from_secs(1))
        }
    );
    let ApiAnswer::Busy { retry_after: None, .. } = ApiAnswer::read(503, Some("soon"), Vec::new(), "sheave")
    else {
        panic!("a bad header counts")
    };
    for code in [408, 429, 502, 503, 504] {
        assert!(matches!(answer(code, &starting), ApiAnswer::Busy { .. }), "{code}");
    }
    let expired = failure("Unauthorized", "Unauthorized", &json!({}));
    assert_eq!(answer(401, &expired), ApiAnswer::Unauthenticated("Unauthorized".into()));
}

#[test]
fn refusals_are_told_apart() {
    let text = failure("no", "", &json!({}));
    let may_not = "services \"web\" is forbidden: User \"system:serviceaccount:sheave-system:sheave-controller\" cannot patch \
                   resource \"services/status\" in API group \"\" in the namespace \"shop\"";
    assert_eq!(answer(403, &failure(may_not, "Forbidden", &json!({}))), ApiAnswer::Forbidden(may_not.into()));
    let denied = "services \"web\" is forbidden: ValidatingAdmissionPolicy 'frozen' denied request: not now";
    assert_eq!(answer(403, &failure(denied, "Forbidden", &json!({}))), ApiAnswer::Refused(denied.into()));
    let details = json!({"name": "web", "kind": "services"});
    assert_eq!(answer(404, &failure("services \"web\" not found", "NotFound", &details)), ApiAnswer::Gone);
    assert_eq!(answer(404, &text), ApiAnswer::Undefined("no".into()));
    let plain = b"404 page not found\n".to_vec();
    assert_eq!(
        ApiAnswer::read(404, None, plain, "sheave"),
        ApiAnswer::Undefined("404 page not found".into())
    );
    assert_eq!(answer(500, &text), ApiAnswer::Failed("no".into()));
    for code in [400, 415, 422] {
        assert_eq!(answer(code, &text), ApiAnswer::Refused("no".into()), "{code}");
    }
}

#[test]
fn hours_are_not_waited() {
    for asked in ["121", "3600", "18446744073709551615"] {
        let ApiAnswer::Busy { retry_after, .. } = ApiAnswer::read(429, Some(asked), Vec::new(), "sheave")
        else {
            panic!("{asked}")
        };
        assert_eq!(retry_after, Some(Duration::from_secs(120)), "{asked}");
    }
}

#[test]
fn another_installation_is_a_rival() {
    let causes =
        [("conflict with \"sheave\" with subresource \"status\" using v1", ".status.loadBalancer.ingress")];
    let body = conflicts(&causes).to_string().into_bytes();
    let ApiAnswer::Conflict(held) = ApiAnswer::read(409, None, body, "sheave-bf9cf968") else {
        panic!("no conflict")
    };
    assert_eq!(held.rivals, ["sheave"]);
}

#[test]
fn a_long_message_is_cut() {
    let quoted = format!("Invalid value: {}: must be shorter", "x".repeat(300_000));
    let ApiAnswer::Refused(message) = answer(422, &failure(&quoted, "Invalid", &json!({}))) else {
        panic!("taken")
    };
    assert!(message.len() <= 512 && message.ends_with("must be shorter"), "{} bytes", message.len());
}
