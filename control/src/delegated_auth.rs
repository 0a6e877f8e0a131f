//! Delegated authentication and authorization: the API server decides to whom a bearer token belongs (TokenReview) and whether
//! that user may read a path (SubjectAccessReview), as for kube-rbac-proxy and Kubernetes' own aggregated servers.
//!
//! Decisions are cached for a short time. Without an API server, cached decisions remain valid for that time and all other
//! clients are rejected.
//!
//! Any client that can reach the port can make up tokens. Reviews of recently allowed tokens therefore never wait for reviews of
//! others.

mod cache;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use self::cache::{DecisionCache, TokenHash, TokenOrigin};
use crate::sources::connection::Connection;

/// Concurrent reviews for one origin. More would not be answered sooner.
const AT_ONCE: usize = 4;

/// Decision about the bearer of a token.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthDecision {
    /// The token is valid, and its user may read the path.
    Allowed,
    /// The token is unknown, has expired, or is for another audience.
    Unauthenticated,
    /// The token is valid, and its user may not read the path.
    Forbidden,
    /// The API server did not answer.
    Unavailable,
}

/// Client of the API server's reviews for one path. Clones share the cache.
#[derive(Clone, Debug)]
pub struct DelegatedAuth {
    reviewer: Arc<Reviewer>,
}

struct Reviewer {
    connection: Connection,
    path: &'static str,
    audience: Option<&'static str>,
    reviews: Mutex<Reviews>,
    /// Whether the last review failed, which was logged.
    failing: AtomicBool,
}

/// Cached decisions and running reviews.
struct Reviews {
    cache: DecisionCache,
    running: HashMap<TokenHash, RunningReview>,
}

/// A review in its own task. It continues if the caller disconnects, so that the answer of a slow API server still reaches the
/// cache.
struct RunningReview {
    origin: TokenOrigin,
    decision: watch::Receiver<Option<AuthDecision>>,
}

/// Result of a look-up.
enum LookUp {
    Decided(AuthDecision),
    Running(watch::Receiver<Option<AuthDecision>>),
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer")
            .field("path", &self.path)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

impl DelegatedAuth {
    /// A client for readers of `path`. Tokens must be for `audience`, or for the API server itself if there is none.
    pub fn new(connection: Connection, path: &'static str, audience: Option<&'static str>) -> Self {
        let cache = DecisionCache::new(Instant::now());
        let reviews = Mutex::new(Reviews { cache, running: HashMap::new() });
        let failing = AtomicBool::new(false);
        Self { reviewer: Arc::new(Reviewer { connection, path, audience, reviews, failing }) }
    }

    /// A client for readers of another path, with tokens for the same audience.
    #[must_use]
    pub fn for_path(&self, path: &'static str) -> Self {
        Self::new(self.reviewer.connection.clone(), path, self.reviewer.audience)
    }

    /// Whether the bearer of `token` may read the path. Must be called within a Tokio runtime.
    pub async fn decide(&self, token: &str) -> AuthDecision {
        match self.look_up(token) {
            LookUp::Decided(decision) => decision,
            LookUp::Running(mut decision) => match decision.wait_for(Option::is_some).await {
                Ok(decision) => decision.unwrap_or(AuthDecision::Unavailable),
                Err(_) => AuthDecision::Unavailable,
            },
        }
    }

    /// The cached decision, or the review of this token, which is started unless it is running.
    fn look_up(&self, token: &str) -> LookUp {
        let hash = TokenHash::of(token);
        let mut reviews = self.reviewer.reviews();
        let Reviews { cache, running } = &mut *reviews;
        let now = Instant::now();
        if let Some(decision) = cache.get(&hash, now) {
            return LookUp::Decided(decision);
        }
        // Remove reviews whose task is gone.
        running.retain(|_, review| review.decision.has_changed().is_ok());
        if let Some(review) = running.get(&hash) {
            return LookUp::Running(review.decision.clone());
        }
        let origin = cache.origin(&hash, now);
        let alike = running.values().filter(|review| review.origin == origin).count();
        if alike >= AT_ONCE || !cache.may_ask(origin, now) {
            return LookUp::Decided(AuthDecision::Unavailable);
        }
        let (sender, decision) = watch::channel(None);
        running.insert(hash, RunningReview { origin, decision: decision.clone() });
        let (reviewer, token) = (Arc::clone(&self.reviewer), token.to_owned());
        tokio::spawn(async move {
            sender.send_replace(Some(reviewer.decide(hash, &token).await));
        });
        LookUp::Running(decision)
    }
}

impl Reviewer {
    fn reviews(&self) -> MutexGuard<'_, Reviews> {
        self.reviews.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn decide(&self, hash: TokenHash, token: &str) -> AuthDecision {
        match self.review(token).await {
            Ok(decision) => {
                self.log_recovery();
                self.reviews().cache.insert(hash, decision, Instant::now());
                decision
            }
            Err(error) => {
                self.log_failure(&error);
                AuthDecision::Unavailable
            }
        }
    }

    async fn review(&self, token: &str) -> kube::Result<AuthDecision> {
        let client = self.connection.writer();
        let Some(user) = self.authenticate(&client, token).await? else {
            return Ok(AuthDecision::Unauthenticated);
        };
        let attributes =
            NonResourceAttributes { path: Some(self.path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            extra: user.extra,
            groups: user.groups,
            non_resource_attributes: Some(attributes),
            uid: user.uid,
            user: user.username,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let review = Api::all(client).create(&PostParams::default(), &review).await?;
        let allowed = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed { AuthDecision::Allowed } else { AuthDecision::Forbidden })
    }

    /// The token's user, if the token is valid.
    async fn authenticate(&self, client: &Client, token: &str) -> kube::Result<Option<UserInfo>> {
        let audiences = self.audience.map(|audience| vec![audience.to_owned()]);
        let spec = TokenReviewSpec { audiences, token: token.to_owned() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        Ok(self.is_valid(&status).then_some(status.user).flatten())
    }

    /// Whether the token is valid for the audience. An authenticator without support for audiences returns none, and its result
    /// is then about the API server's own audience ("validate that a compatible audience identifier is returned",
    /// TokenReviewStatus).
    fn is_valid(&self, status: &TokenReviewStatus) -> bool {
        let named = status
            .user
            .as_ref()
            .and_then(|user| user.username.as_deref())
            .is_some_and(|name| !name.is_empty());
        let heard = self
            .audience
            .is_none_or(|audience| status.audiences.iter().flatten().any(|answered| answered == audience));
        status.authenticated == Some(true) && named && heard
    }

    fn log_failure(&self, error: &kube::Error) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = self.path, %error,
                "the API server cannot be asked about bearer tokens: those that it allowed lately are let in, others get 503 \
                 (the account needs the right to create tokenreviews and subjectaccessreviews)"
            );
        }
    }

    fn log_recovery(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(path = self.path, "the API server answers about bearer tokens again");
        }
    }
}

#[cfg(test)]
mod tests;
