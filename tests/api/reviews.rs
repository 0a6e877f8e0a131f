//! Tests of TokenReviews and SubjectAccessReviews, with the answers of Kubernetes' source.

use serde_json::{Value, json};

use crate::support::apiserver::ApiServer;
use crate::support::http::{Outgoing, exchange};

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const SCRAPER: &str = "system:serviceaccount:monitoring:prometheus";

fn ask(server: &ApiServer, path: &str, spec: &Value) -> (u16, Value) {
    let request = Outgoing::new("POST", path, &server.token("gateway"), &json!({"spec": spec}));
    let answer = exchange(server.address(), &request).expect("an answer");
    (answer.status, answer.json())
}

fn review(server: &ApiServer, token: &str, audiences: &[&str]) -> Value {
    let (code, review) = ask(server, TOKENS, &json!({"token": token, "audiences": audiences}));
    assert_eq!((code, &review["kind"]), (201, &json!("TokenReview")), "{review}");
    review["status"].clone()
}

#[test]
fn a_token_is_its_users_for_its_audience() {
    let server = ApiServer::start();
    let token = server.token(SCRAPER);
    let groups = ["system:serviceaccounts", "system:serviceaccounts:monitoring", "system:authenticated"];
    let status = review(&server, &token, &[]);
    assert_eq!(status["authenticated"], true);
    assert_eq!((&status["user"]["username"], &status["user"]["groups"]), (&json!(SCRAPER), &json!(groups)));
    for (token, audiences) in [
        (token.as_str(), &["gateways"][..]),
        (&server.token_for(SCRAPER, "gateways"), &[]),
        ("token-of-nobody", &[]),
    ] {
        let status = review(&server, token, audiences);
        assert_eq!((&status["authenticated"], &status["user"]), (&Value::Null, &json!({})), "{status}");
        assert!(status["error"].as_str().is_some_and(|error| error.starts_with("[invalid bearer token")));
    }
    let status = review(&server, &server.token_for(SCRAPER, "gateways"), &["others", "gateways"]);
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["gateways"])));
    server.revoke(&token);
    assert_eq!(review(&server, &token, &[])["authenticated"], Value::Null);
    assert_eq!(ask(&server, TOKENS, &json!({})).0, 400);
}

#[test]
fn a_token_for_others_opens_nothing_here() {
    let server = ApiServer::start();
    let token = server.token_for("gateway", "gateways");
    let request = Outgoing::new("GET", "/api/v1/services", &token, &Value::Null);
    assert_eq!(exchange(server.address(), &request).expect("an answer").status, 401);
}

#[test]
fn paths_are_for_those_whose_roles_name_them() {
    let server = ApiServer::start();
    let role = json!({"kind": "ClusterRole", "metadata": {"name": "some"},
                      "rules": [{"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}]});
    server.authorize(SCRAPER, &[role]);
    let allowed = |verb: &str, path: &str| {
        let attributes = json!({"verb": verb, "path": path});
        let (code, review) =
            ask(&server, ACCESS, &json!({"user": SCRAPER, "nonResourceAttributes": attributes}));
        assert_eq!(code, 201, "{review}");
        review["status"]["allowed"].clone()
    };
    assert_eq!(allowed("get", "/metrics"), true);
    assert_eq!(allowed("get", "/logs/today"), true);
    assert_eq!((allowed("post", "/metrics"), allowed("get", "/metrics/x")), (json!(false), json!(false)));
    assert_eq!(server.unused_rules(SCRAPER), []);
    assert_eq!(server.refused().len(), 2);
}

#[test]
fn a_review_of_nobody_or_of_nothing_is_invalid() {
    let server = ApiServer::start();
    let path = json!({"verb": "get", "path": "/metrics"});
    let (_, status) = ask(&server, ACCESS, &json!({}));
    assert_eq!(
        status["message"],
        "SubjectAccessReview.authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one \
         of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of \
         user or group must be specified]"
    );
    for spec in [
        json!({"nonResourceAttributes": path}),
        json!({"user": "u"}),
        json!({"user": "u", "nonResourceAttributes": path, "resourceAttributes": {"verb": "get"}}),
    ] {
        assert_eq!(ask(&server, ACCESS, &spec).0, 422, "{spec}");
    }
    let request = Outgoing::new("GET", ACCESS, &server.token("gateway"), &Value::Null);
    assert_eq!(exchange(server.address(), &request).expect("an answer").status, 405);
}
