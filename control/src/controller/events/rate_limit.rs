//! How many Events may be written: token buckets, one per object and one for all. Pure; the time is given.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::problem::ObjectRef;
use crate::token_bucket::TokenBucket;

/// As client-go's `EventSourceObjectSpamFilter`: the burst about one object ...
const OBJECT_BURST: u32 = 25;
/// ... and the time per Event after it.
const OBJECT_REFILL: Duration = Duration::from_secs(300);
/// The burst about all objects together: a cluster where everything fails must not drown its API server ...
const TOTAL_BURST: u32 = 200;
/// ... and the time per Event after it.
const TOTAL_REFILL: Duration = Duration::from_millis(200);
/// Full buckets are forgotten when there are more than this.
const KEPT: usize = 4096;

/// What may still be written.
#[derive(Debug)]
pub(super) struct EventLimits {
    total: TokenBucket,
    objects: HashMap<ObjectRef, TokenBucket>,
}

impl EventLimits {
    pub(super) fn new(now: Instant) -> Self {
        Self { total: TokenBucket::new(TOTAL_BURST, TOTAL_REFILL, now), objects: HashMap::new() }
    }

    /// Takes the right to write one Event about the object, if there is one.
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
