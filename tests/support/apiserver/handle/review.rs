//! TokenReviews and SubjectAccessReviews: answered at once and not stored, as in `pkg/registry/authentication/tokenreview` and
//! `pkg/registry/authorization/subjectaccessreview` of Kubernetes.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::access::{API_AUDIENCE, Access};
use super::super::kind::Kind;
use super::super::reply::Reply;
use super::super::route::Target;
use super::super::shared::Shared;
use super::super::status::{Cause, Status};

/// Kinds of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Review {
    /// Authentication of a token.
    Token,
    /// Authorization of a user.
    SubjectAccess,
}

impl Review {
    /// Review that a request is about.
    pub(super) fn of(target: &Target) -> Option<Self> {
        match (target.group.as_str(), target.version.as_str(), target.resource.as_str()) {
            ("authentication.k8s.io", "v1", "tokenreviews") => Some(Self::Token),
            ("authorization.k8s.io", "v1", "subjectaccessreviews") => Some(Self::SubjectAccess),
            _ => None,
        }
    }

    pub(super) fn answer(
        self,
        shared: &Shared,
        verb: &str,
        body: Result<Bytes, Status>,
    ) -> Result<Reply, Status> {
        if verb != "create" {
            let text = "the server does not allow this method on the requested resource";
            return Err(Status::new(405, "MethodNotAllowed", text).about("", "", ""));
        }
        let mut review: Value =
            serde_json::from_slice(&body?).map_err(|error| Status::bad_request(error.to_string()))?;
        let mut access = shared.access();
        let (kind, group) = match self {
            Self::Token => ("TokenReview", "authentication.k8s.io"),
            Self::SubjectAccess => ("SubjectAccessReview", "authorization.k8s.io"),
        };
        let status = match self {
            Self::Token => review_token(&access, &review["spec"])?,
            Self::SubjectAccess => review_access(&mut access, &review["spec"])?,
        };
        review["kind"] = json!(kind);
        review["apiVersion"] = json!(format!("{group}/v1"));
        review["status"] = status;
        Ok(Reply::json(201, &review))
    }
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Answers a TokenReview. The default audiences are those of the API server; the answer lists the ones that the token and the
/// request share.
fn review_token(access: &Access, spec: &Value) -> Result<Value, Status> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let mut wanted = words(&spec["audiences"]);
    if wanted.is_empty() {
        wanted.push(API_AUDIENCE);
    }
    let Some((user, audience)) = access.bearer(token) else {
        return Ok(json!({"user": {}, "error": "[invalid bearer token]"}));
    };
    if !wanted.contains(&audience) {
        let error = format!(
            "[invalid bearer token, token audiences {:?} is invalid for the target audiences {wanted:?}]",
            [audience]
        );
        return Ok(json!({"user": {}, "error": error}));
    }
    let uid = format!("uid-of-{user}");
    let user = json!({"username": user, "uid": uid, "groups": groups(user)});
    Ok(json!({"authenticated": true, "user": user, "audiences": [audience]}))
}

/// Groups of a user, as in `serviceaccount.MakeGroupNames`, and the authenticated group.
fn groups(user: &str) -> Vec<String> {
    let mut groups = Vec::new();
    if let Some((namespace, _)) =
        user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups.push("system:authenticated".to_owned());
    groups
}

/// Answers a SubjectAccessReview, validated like `ValidateSubjectAccessReviewSpec`. Only non-resource paths are supported.
fn review_access(access: &mut Access, spec: &Value) -> Result<Value, Status> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let wrong = match (resource.is_null(), path.is_null()) {
        (false, false) => Some((
            "nonResourceAttributes",
            path,
            "cannot be specified in combination with resourceAttributes",
        )),
        (true, true) => Some((
            "resourceAttributes",
            path,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => None,
    };
    let user = json!(spec["user"].as_str().unwrap_or_default());
    let nobody = user == "" && words(&spec["groups"]).is_empty();
    let nobody = nobody.then_some(("user", &user, "at least one of user or group must be specified"));
    let causes: Vec<Cause> = [wrong, nobody]
        .into_iter()
        .flatten()
        .map(|(field, value, why)| Cause::invalid(&format!("spec.{field}"), value, why))
        .collect();
    if !causes.is_empty() {
        return Err(Status::invalid(&subject_access_review(), "", &causes));
    }
    assert!(resource.is_null(), "rights to resources are not reviewed here: {resource}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (user, verb, path) = (text(&spec["user"]), text(&path["verb"]), text(&path["path"]));
    Ok(if access.allows_url(&user, &verb, &path) {
        json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding"})
    } else {
        json!({"allowed": false})
    })
}

fn subject_access_review() -> Kind {
    let [group, version, kind, plural] =
        ["authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"].map(str::to_owned);
    Kind {
        group,
        version,
        kind,
        plural,
        namespaced: false,
        subresources: Vec::new(),
        custom: false,
        schema: None,
    }
}
