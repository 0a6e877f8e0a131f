//! Cache of the API server's decisions, and rate limit of its reviews. No I/O; the caller passes the time.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::AuthDecision;
use crate::token_bucket::TokenBucket;

/// Lifetime of a positive decision, as in kube-rbac-proxy: a revoked token remains valid for this long.
const ALLOWED: Duration = Duration::from_secs(120);
/// How long a token that was allowed has its own rate limit. The kubelet replaces tokens within their hour of validity.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Lifetime of a negative decision, as in Kubernetes' aggregated servers: a new permission must take effect soon.
const REFUSED: Duration = Duration::from_secs(10);
/// Largest number of decisions of each kind. Few clients scrape, and made-up tokens must not displace theirs.
const MOST: usize = 256;
/// Burst of reviews for one origin.
const BURST: u32 = 20;
/// Time for one more review after the burst.
const REFILL: Duration = Duration::from_millis(100);

/// Hash of a token; the token itself is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// Origin of a token without a cached decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenOrigin {
    /// A user who was recently allowed with this token.
    Known,
    /// Any client: the token may be made up.
    Unknown,
}

/// Cached decisions.
pub(super) struct DecisionCache {
    /// Time of each positive decision. It is valid for [`ALLOWED`].
    allowed: HashMap<TokenHash, Instant>,
    /// Negative decisions and the end of their lifetime.
    refused: HashMap<TokenHash, (AuthDecision, Instant)>,
    of_known: TokenBucket,
    of_unknown: TokenBucket,
}

impl DecisionCache {
    pub(super) fn new(now: Instant) -> Self {
        let reviews = TokenBucket::new(BURST, REFILL, now);
        Self { allowed: HashMap::new(), refused: HashMap::new(), of_known: reviews, of_unknown: reviews }
    }

    /// The decision about a token, if it is still valid.
    pub(super) fn get(&self, token: &TokenHash, now: Instant) -> Option<AuthDecision> {
        if self.was_allowed(token, ALLOWED, now) {
            return Some(AuthDecision::Allowed);
        }
        self.refused.get(token).filter(|(_, until)| *until > now).map(|(decision, _)| *decision)
    }

    /// Whether the token was recently allowed.
    pub(super) fn origin(&self, token: &TokenHash, now: Instant) -> TokenOrigin {
        if self.was_allowed(token, REMEMBERED, now) { TokenOrigin::Known } else { TokenOrigin::Unknown }
    }

    fn was_allowed(&self, token: &TokenHash, within: Duration, now: Instant) -> bool {
        self.allowed.get(token).is_some_and(|since| now < *since + within)
    }

    /// Stores an answer of the API server.
    pub(super) fn insert(&mut self, token: TokenHash, decision: AuthDecision, now: Instant) {
        match decision {
            AuthDecision::Allowed => {
                self.refused.remove(&token);
                self.make_room();
                self.allowed.insert(token, now);
            }
            AuthDecision::Unauthenticated | AuthDecision::Forbidden => {
                self.allowed.remove(&token);
                if self.refused.len() >= MOST {
                    self.refused.retain(|_, (_, until)| *until > now);
                }
                if self.refused.len() < MOST {
                    self.refused.insert(token, (decision, now + REFUSED));
                }
            }
            AuthDecision::Unavailable => {}
        }
    }

    /// Drops the positive decision that is the oldest if there is no room for another.
    fn make_room(&mut self) {
        let oldest = self.allowed.iter().min_by_key(|(_, since)| **since).map(|(token, _)| *token);
        if let Some(oldest) = oldest.filter(|_| self.allowed.len() >= MOST) {
            self.allowed.remove(&oldest);
        }
    }

    /// Takes a token of the rate limit for one review, if there is one.
    #[must_use]
    pub(super) fn may_ask(&mut self, origin: TokenOrigin, now: Instant) -> bool {
        let reviews = match origin {
            TokenOrigin::Known => &mut self.of_known,
            TokenOrigin::Unknown => &mut self.of_unknown,
        };
        let may = reviews.has_one(now);
        if may {
            reviews.take(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> TokenHash {
        TokenHash::of(&number.to_string())
    }

    #[test]
    fn what_is_allowed_holds_longer_than_what_is_refused() {
        let start = Instant::now();
        let mut cache = DecisionCache::new(start);
        cache.insert(token(1), AuthDecision::Allowed, start);
        cache.insert(token(2), AuthDecision::Forbidden, start);
        cache.insert(token(3), AuthDecision::Unavailable, start);
        let just = Duration::from_millis(1);
        let at = |cache: &DecisionCache, number, time| cache.get(&token(number), time);
        assert_eq!(at(&cache, 1, start + ALLOWED - just), Some(AuthDecision::Allowed));
        assert_eq!(at(&cache, 1, start + ALLOWED), None);
        assert_eq!(at(&cache, 2, start + REFUSED - just), Some(AuthDecision::Forbidden));
        assert_eq!(at(&cache, 2, start + REFUSED), None);
        assert_eq!(at(&cache, 3, start), None, "nobody has decided");
        cache.insert(token(1), AuthDecision::Unauthenticated, start + just);
        assert_eq!(
            at(&cache, 1, start + just),
            Some(AuthDecision::Unauthenticated),
            "the newer answer counts"
        );
    }

    #[test]
    fn those_who_make_up_tokens_take_neither_room_nor_places() {
        let start = Instant::now();
        let mut cache = DecisionCache::new(start);
        cache.insert(token(0), AuthDecision::Allowed, start);
        for number in 1..10 * MOST {
            cache.insert(token(number), AuthDecision::Unauthenticated, start);
        }
        assert_eq!(cache.get(&token(0), start), Some(AuthDecision::Allowed));
        assert_eq!(cache.refused.len(), MOST);
        cache.insert(token(10 * MOST), AuthDecision::Forbidden, start + REFUSED);
        assert_eq!(cache.refused.len(), 1, "what has expired makes room");
        for number in 0..10 * MOST {
            let now = start + REFUSED + Duration::from_millis(number as u64);
            cache.insert(token(number), AuthDecision::Allowed, now);
            assert_eq!(cache.get(&token(number), now), Some(AuthDecision::Allowed), "the oldest makes room");
        }
        assert_eq!(cache.allowed.len(), MOST);
    }

    #[test]
    fn a_token_that_was_allowed_is_known_until_it_is_refused_or_an_hour_has_passed() {
        let start = Instant::now();
        let mut cache = DecisionCache::new(start);
        let just = Duration::from_millis(1);
        assert_eq!(cache.origin(&token(1), start), TokenOrigin::Unknown);
        cache.insert(token(1), AuthDecision::Allowed, start);
        cache.insert(token(2), AuthDecision::Allowed, start);
        cache.insert(token(2), AuthDecision::Unavailable, start + ALLOWED);
        assert_eq!(cache.origin(&token(1), start + REMEMBERED - just), TokenOrigin::Known);
        assert_eq!(cache.origin(&token(1), start + REMEMBERED), TokenOrigin::Unknown);
        assert_eq!(cache.origin(&token(2), start + ALLOWED), TokenOrigin::Known, "nobody has decided");
        cache.insert(token(2), AuthDecision::Unauthenticated, start + ALLOWED);
        assert_eq!(cache.origin(&token(2), start + ALLOWED), TokenOrigin::Unknown);
    }

    #[test]
    fn the_api_server_is_asked_at_a_bounded_rate_about_each_origin() {
        let start = Instant::now();
        let mut cache = DecisionCache::new(start);
        let mut asked = |origin, now| (0..100).filter(|_| cache.may_ask(origin, now)).count();
        assert_eq!(asked(TokenOrigin::Unknown, start), BURST as usize);
        assert_eq!(asked(TokenOrigin::Known, start), BURST as usize);
        assert_eq!(asked(TokenOrigin::Unknown, start + REFILL * 3), 3);
    }
}
