//! Reviews that are sent to the API server, and the decisions from its answers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tower_service::Service;

use super::*;

const PATH: &str = "/metrics";

/// An API server that gives these answers in this order, and records the requests.
#[derive(Clone, Default)]
struct ScriptedServer {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<(String, Body)>>>,
    /// Delay before each answer.
    delay: Duration,
}

impl ScriptedServer {
    fn answer(&self, code: u16, status: &Value) {
        self.answers.lock().unwrap().push_back((code, json!({"metadata": {}, "spec": {}, "status": status})));
    }

    /// Answers that accept any token as this user, with this permission.
    fn answer_for(&self, user: &str, allowed: bool) {
        let user =
            json!({"username": user, "uid": "u1", "groups": ["system:authenticated"], "extra": {"k": ["v"]}});
        self.answer(201, &json!({"authenticated": true, "user": user, "audiences": ["a"]}));
        self.answer(201, &json!({"allowed": allowed}));
    }

    fn auth(&self, audience: Option<&'static str>) -> DelegatedAuth {
        DelegatedAuth::new(Connection::by(Client::new(self.clone(), "default")), PATH, audience)
    }

    /// Paths and bodies of the requests so far.
    async fn asked(&self) -> Vec<(String, Value)> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        let mut read = Vec::new();
        for (path, body) in asked {
            let bytes = body.collect().await.unwrap().to_bytes();
            read.push((path, serde_json::from_slice(&bytes).unwrap()));
        }
        read
    }
}

impl Service<Request<Body>> for ScriptedServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (parts, body) = request.into_parts();
        self.asked.lock().unwrap().push((parts.uri.path().to_owned(), body));
        let (code, answer) = self.answers.lock().unwrap().pop_front().unwrap_or((503, Value::Null));
        let body = Body::from(answer.to_string().into_bytes());
        let delay = self.delay;
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            Ok(Response::builder().status(code).body(body).unwrap())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_user_with_the_right_is_allowed_and_not_asked_about_again() {
    let server = ScriptedServer::default();
    let auth = server.auth(Some("a"));
    server.answer_for("system:serviceaccount:monitoring:prometheus", true);
    assert_eq!(auth.decide("t").await, AuthDecision::Allowed);
    let asked = server.asked().await;
    let paths: Vec<&str> = asked.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        ["/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"]
    );
    assert_eq!(asked[0].1["spec"], json!({"token": "t", "audiences": ["a"]}));
    assert_eq!(
        asked[1].1["spec"],
        json!({"user": "system:serviceaccount:monitoring:prometheus", "uid": "u1", "groups": ["system:authenticated"],
               "extra": {"k": ["v"]}, "nonResourceAttributes": {"path": PATH, "verb": "get"}})
    );
    tokio::time::advance(Duration::from_secs(119)).await;
    assert_eq!(auth.decide("t").await, AuthDecision::Allowed);
    assert_eq!(server.asked().await, []);
}

#[tokio::test]
async fn without_an_audience_the_api_servers_own_counts() {
    let server = ScriptedServer::default();
    server.answer(201, &json!({"authenticated": true, "user": {"username": "u"}}));
    server.answer(201, &json!({"allowed": true}));
    assert_eq!(server.auth(None).decide("t").await, AuthDecision::Allowed);
    assert_eq!(server.asked().await[0].1["spec"], json!({"token": "t"}));
}

#[tokio::test]
async fn nothing_but_a_plain_yes_lets_in() {
    let yes = json!({"authenticated": true, "user": {"username": "u"}, "audiences": ["a"]});
    for (first, second, expected) in [
        (json!({"authenticated": false, "error": "expired"}), None, AuthDecision::Unauthenticated),
        (json!({"user": {"username": "u"}, "audiences": ["a"]}), None, AuthDecision::Unauthenticated),
        (Value::Null, None, AuthDecision::Unauthenticated),
        (json!({"authenticated": true, "audiences": ["a"]}), None, AuthDecision::Unauthenticated),
        (
            json!({"authenticated": true, "user": {"username": ""}, "audiences": ["a"]}),
            None,
            AuthDecision::Unauthenticated,
        ),
        // For another audience, or from a server that does not support audiences.
        (
            json!({"authenticated": true, "user": {"username": "u"}, "audiences": ["b"]}),
            None,
            AuthDecision::Unauthenticated,
        ),
        (json!({"authenticated": true, "user": {"username": "u"}}), None, AuthDecision::Unauthenticated),
        (
            yes.clone(),
            Some(json!({"allowed": false, "reason": "no RBAC policy matched"})),
            AuthDecision::Forbidden,
        ),
        (yes.clone(), Some(json!({"allowed": true, "denied": true})), AuthDecision::Forbidden),
        (yes.clone(), Some(Value::Null), AuthDecision::Forbidden),
        (yes.clone(), Some(json!({"allowed": false, "evaluationError": "webhook"})), AuthDecision::Forbidden),
    ] {
        let server = ScriptedServer::default();
        server.answer(201, &first);
        if let Some(second) = &second {
            server.answer(201, second);
        }
        assert_eq!(server.auth(Some("a")).decide("t").await, expected, "{first} {second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_lets_in_those_of_just_now_and_nobody_else() {
    let server = ScriptedServer::default();
    let auth = server.auth(Some("a"));
    server.answer_for("u", true);
    assert_eq!(auth.decide("known").await, AuthDecision::Allowed);
    assert_eq!(auth.decide("new").await, AuthDecision::Unavailable);
    server.answer(403, &Value::Null);
    assert_eq!(auth.decide("new").await, AuthDecision::Unavailable, "we may not ask");
    server.answer(201, &json!({"authenticated": true, "user": {"username": "u"}, "audiences": ["a"]}));
    server.answer(500, &Value::Null);
    assert_eq!(auth.decide("new").await, AuthDecision::Unavailable, "half an answer");
    assert_eq!(auth.decide("known").await, AuthDecision::Allowed);
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(auth.decide("known").await, AuthDecision::Unavailable);
    server.answer_for("u", true);
    assert_eq!(auth.decide("new").await, AuthDecision::Allowed, "a failure is not kept");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_tokens_does_not_reach_the_api_server() {
    let server = ScriptedServer::default();
    let auth = server.auth(None);
    for number in 0..1_000 {
        server.answer(201, &json!({"error": "invalid bearer token"}));
        let decision = auth.decide(&number.to_string()).await;
        assert!(matches!(decision, AuthDecision::Unauthenticated | AuthDecision::Unavailable));
    }
    assert_eq!(server.asked().await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn those_who_make_up_tokens_do_not_lock_out_who_was_allowed() {
    let server = ScriptedServer::default();
    let auth = server.auth(None);
    server.answer_for("u", true);
    assert_eq!(auth.decide("known").await, AuthDecision::Allowed);
    for second in 0..1_000 {
        for number in 0..30 {
            server.answer(201, &json!({"error": "invalid bearer token"}));
            let made_up = auth.decide(&format!("{second} {number}")).await;
            assert!(matches!(made_up, AuthDecision::Unauthenticated | AuthDecision::Unavailable));
        }
        server.answers.lock().unwrap().clear();
        server.answer_for("u", true);
        assert_eq!(auth.decide("known").await, AuthDecision::Allowed, "after {second} s");
        server.answers.lock().unwrap().clear();
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_outlives_the_caller_that_hangs_up_and_others_wait_for_the_same() {
    const SLOW: Duration = Duration::from_secs(3);
    let server = ScriptedServer { delay: SLOW, ..ScriptedServer::default() };
    let auth = server.auth(None);
    server.answer_for("u", true);
    for _ in 0..100 {
        tokio::time::timeout(Duration::from_millis(10), auth.decide("t")).await.expect_err("it takes 6 s");
    }
    assert_eq!(auth.decide("t").await, AuthDecision::Allowed);
    assert_eq!(server.asked().await.len(), 2, "it was asked about once");
    tokio::time::advance(Duration::from_secs(120)).await;
    for number in 0..10 {
        let made_up = number.to_string();
        drop(tokio::time::timeout(Duration::from_millis(10), auth.decide(&made_up)).await);
    }
    assert_eq!(server.asked().await.len(), 4, "no more hang at once");
    server.answer_for("u", true);
    assert_eq!(auth.decide("t").await, AuthDecision::Allowed, "it does not wait for those");
}
