//! Decisions of the API server, for a while, and how often it is asked. Pure; the time is given.

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::AuthDecision;
use crate::token_bucket::TokenBucket;

/// As kube-rbac-proxy keeps users: a token that was taken back is good for so long.
const ALLOWED: Duration = Duration::from_secs(120);
/// As Kubernetes' aggregated servers keep them: a right that was just given must soon have its effect.
const REFUSED: Duration = Duration::from_secs(10);
/// Decisions of either kind at a time. Few scrape, and their places are not for those who make up tokens.
const MOST: usize = 256;
/// Reviews that may be asked for at once ...
const BURST: u32 = 20;
/// ... and the time per review after that.
const REFILL: Duration = Duration::from_millis(100);

/// What stands for a token, which itself is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

/// The decisions.
pub(super) struct DecisionCache {
    /// Until when.
    allowed: HashMap<TokenHash, Instant>,
    refused: HashMap<TokenHash, (AuthDecision, Instant)>,
    reviews: TokenBucket,
}

impl DecisionCache {
    pub(super) fn new(now: Instant) -> Self {
        let reviews = TokenBucket::new(BURST, REFILL, now);
        Self { allowed: HashMap::new(), refused: HashMap::new(), reviews }
    }

    /// The decision about a token, if there is one that still holds.
    pub(super) fn get(&self, token: &TokenHash, now: Instant) -> Option<AuthDecision> {
        if self.allowed.get(token).is_some_and(|until| *until > now) {
            return Some(AuthDecision::Allowed);
        }
        self.refused.get(token).filter(|(_, until)| *until > now).map(|(decision, _)| *decision)
    }

    /// Keeps an answer of the API server.
    pub(super) fn insert(&mut self, token: TokenHash, decision: AuthDecision, now: Instant) {
        self.allowed.remove(&token);
        self.refused.remove(&token);
        if self.allowed.len() + self.refused.len() >= MOST {
            self.allowed.retain(|_, until| *until > now);
            self.refused.retain(|_, (_, until)| *until > now);
        }
        match decision {
            AuthDecision::Allowed if self.allowed.len() < MOST => {
                self.allowed.insert(token, now + ALLOWED);
            }
            AuthDecision::Unauthenticated | AuthDecision::Forbidden if self.refused.len() < MOST => {
                self.refused.insert(token, (decision, now + REFUSED));
            }
            AuthDecision::Allowed
            | AuthDecision::Unauthenticated
            | AuthDecision::Forbidden
            | AuthDecision::Unavailable => {}
        }
    }

    /// Takes the right to ask for one review, if there is one.
    #[must_use]
    pub(super) fn may_ask(&mut self, now: Instant) -> bool {
        let may = self.reviews.has_one(now);
        if may {
            self.reviews.take(now);
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
            cache.insert(token(number), AuthDecision::Allowed, start + REFUSED);
        }
        assert_eq!(cache.allowed.len(), MOST);
    }

    #[test]
    fn the_api_server_is_asked_at_a_bounded_rate() {
        let start = Instant::now();
        let mut cache = DecisionCache::new(start);
        let mut asked = |now| (0..100).filter(|_| cache.may_ask(now)).count();
        assert_eq!(asked(start), BURST as usize);
        assert_eq!(asked(start + REFILL * 3), 3);
    }
}
