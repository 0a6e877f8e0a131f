//! Rate limit of Events: one token bucket for each object and one for all. No I/O; the caller passes the time.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::problem::ObjectRef;
use crate::token_bucket::TokenBucket;

/// Burst for one object, as in client-go's `EventSourceObjectSpamFilter`.
const OBJECT_BURST: u32 = 25;
/// Time for one more Event about the object after the burst.
const OBJECT_REFILL: Duration = Duration::from_secs(300);
/// Burst for all objects together: a cluster where everything fails must not overload its API server.
const TOTAL_BURST: u32 = 200;
/// Time for one more Event after the total burst.
const TOTAL_REFILL: Duration = Duration::from_millis(200);
/// Number of buckets above which full ones are dropped.
const KEPT: usize = 4096;

/// Token buckets of Events.
#[derive(Debug)]
pub(super) struct EventLimits {
    total: TokenBucket,
    objects: HashMap<ObjectRef, TokenBucket>,
}

impl EventLimits {
    pub(super) fn new(now: Instant) -> Self {
        Self { total: TokenBucket::new(TOTAL_BURST, TOTAL_REFILL, now), objects: HashMap::new() }
    }

    /// Takes a token for one Event about the object, if both buckets have one.
    #[must_use]
    pub(super) fn take(&mut self, object: &ObjectRef, now: Instant) -> bool {
        if self.objects.len() > KEPT {
            self.objects.retain(|_, bucket| !bucket.is_full(now));
        }
        if !self.total.has_one(now) {
            return false;
        }
        let bucket = self
            .objects
            .entry(object.clone())
            .or_insert_with(|| TokenBucket::new(OBJECT_BURST, OBJECT_REFILL, now));
        let free = bucket.has_one(now);
        if free {
            bucket.take(now);
            self.total.take(now);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef { kind: "Service", namespace: "shop".into(), name: name.into() }
    }

    fn taken(limits: &mut EventLimits, name: &str, tries: usize, now: Instant) -> usize {
        (0..tries).filter(|_| limits.take(&object(name), now)).count()
    }

    #[test]
    fn one_object_gets_its_burst_and_then_one_per_refill() {
        let start = Instant::now();
        let mut limits = EventLimits::new(start);
        assert_eq!(taken(&mut limits, "a", 40, start), 25);
        assert_eq!(taken(&mut limits, "a", 40, start + Duration::from_secs(299)), 0);
        assert_eq!(taken(&mut limits, "a", 40, start + Duration::from_secs(300)), 1);
        assert_eq!(taken(&mut limits, "b", 40, start + Duration::from_secs(300)), 25);
        assert_eq!(taken(&mut limits, "a", 40, start + Duration::from_secs(300 * 100)), 25);
    }

    #[test]
    fn all_objects_share_the_total() {
        let start = Instant::now();
        let mut limits = EventLimits::new(start);
        let all =
            |limits: &mut EventLimits, now| (0..500).map(|n| taken(limits, &format!("s{n}"), 1, now)).sum();
        let first: usize = all(&mut limits, start);
        let next: usize = all(&mut limits, start + Duration::from_secs(1));
        assert_eq!((first, next), (200, 5));
    }

    #[test]
    fn what_the_total_refuses_costs_the_object_nothing() {
        let start = Instant::now();
        let mut limits = EventLimits::new(start);
        assert_eq!((0..8).map(|n| taken(&mut limits, &format!("s{n}"), 25, start)).sum::<usize>(), 200);
        assert_eq!(taken(&mut limits, "late", 25, start), 0);
        assert_eq!(taken(&mut limits, "late", 25, start + Duration::from_secs(60)), 25);
    }

    #[test]
    fn buckets_that_are_full_again_are_forgotten() {
        let start = Instant::now();
        let mut limits = EventLimits::new(start);
        let mut now = start;
        for n in 0..3 * KEPT {
            now += Duration::from_secs(1);
            assert_eq!(taken(&mut limits, &format!("s{n}"), 1, now), 1);
        }
        assert!(limits.objects.len() <= KEPT + 1, "{}", limits.objects.len());
    }
}
