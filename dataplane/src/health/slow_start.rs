//! Slow start: the share of a new or recovered endpoint grows over a time that its Service configures.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

use sheave_model::{EndpointAddr, Frontend, ServicePort};

use super::active_checks::endpoints;
use super::reports::EndpointKey;
use crate::select::FULL_SHARE;

/// A Service port with slow start.
#[derive(Debug)]
struct SlowService {
    /// Time from the first part of the share to the full share.
    over: Duration,
    /// Number of its frontends, and of pools of split frontends.
    frontends: usize,
}

/// An endpoint whose share grows.
#[derive(Debug)]
struct Ramp {
    since: Instant,
    over: Duration,
    /// When the share grows next.
    next: Instant,
}

impl Ramp {
    /// Number of parts, out of [`FULL_SHARE`], at `now`.
    fn advance(&mut self, now: Instant) -> u8 {
        let step = self.over / u32::from(FULL_SHARE);
        let passed = now.saturating_duration_since(self.since).as_nanos() / step.as_nanos().max(1);
        let parts = u8::try_from(passed + 1).unwrap_or(FULL_SHARE).min(FULL_SHARE);
        self.next = self.since + step * u32::from(parts);
        parts
    }
}

/// All endpoints whose share grows.
#[derive(Debug, Default)]
pub(super) struct SlowStart {
    services: HashMap<ServicePort, SlowService>,
    ramps: HashMap<EndpointKey, Ramp>,
    /// Whether the duration of a Service has changed since its ramps were updated.
    durations_changed: bool,
    /// Next steps of the ramps; an entry with another time than the ramp's is stale.
    due: BinaryHeap<Reverse<(Instant, EndpointKey)>>,
}

impl SlowStart {
    /// Adds a new frontend, or the new state of a changed one.
    pub(super) fn add(&mut self, frontend: &Frontend) {
        for pool in frontend.pools().filter(|pool| !pool.health.slow_start.is_zero()) {
            let over = pool.health.slow_start;
            let new = || SlowService { over, frontends: 0 };
            let service = self.services.entry(pool.service.clone()).or_insert_with(new);
            self.durations_changed |= std::mem::replace(&mut service.over, over) != over;
            service.frontends += 1;
        }
    }

    /// Removes a departed frontend, or the former state of a changed one.
    pub(super) fn remove(&mut self, frontend: &Frontend) {
        for pool in frontend.pools().filter(|pool| !pool.health.slow_start.is_zero()) {
            let Some(service) = self.services.get_mut(&pool.service) else { continue };
            service.frontends -= 1;
            if service.frontends == 0 {
                self.services.remove(&pool.service);
                self.durations_changed = true;
            }
        }
    }

    /// Starts the ramp of an endpoint, or continues it; returns the number of parts.
    pub(super) fn begin(&mut self, key: &EndpointKey, now: Instant) -> u8 {
        let since = self.began(key).unwrap_or(now);
        self.resume(key, now, since)
    }

    /// Continues a ramp that began at `since`; returns the number of parts.
    pub(super) fn resume(&mut self, key: &EndpointKey, now: Instant, since: Instant) -> u8 {
        let Some(service) = self.services.get(&key.service) else { return FULL_SHARE };
        let mut ramp = Ramp { since, over: service.over, next: since };
        let parts = ramp.advance(now);
        if self.ramps.get(key).is_none_or(|known| known.next != ramp.next) {
            self.due.push(Reverse((ramp.next, key.clone())));
        }
        self.ramps.insert(key.clone(), ramp);
        parts
    }

    /// The endpoints whose share grows.
    pub(super) fn growing(&self) -> impl Iterator<Item = &EndpointKey> {
        self.ramps.keys()
    }

    /// When the share of an endpoint began to grow, if it grows.
    pub(super) fn began(&self, key: &EndpointKey) -> Option<Instant> {
        self.ramps.get(key).map(|ramp| ramp.since)
    }

    /// Ends the ramp of an endpoint that gets no traffic any more; returns whether there was one.
    pub(super) fn end(&mut self, key: &EndpointKey) -> bool {
        self.ramps.remove(key).is_some()
    }

    /// Applies changed durations to the ramps, after frontends were added and removed. Returns the endpoints whose parts may have
    /// changed, with their parts.
    pub(super) fn follow_durations(&mut self, now: Instant) -> Vec<(EndpointKey, u8)> {
        if !std::mem::take(&mut self.durations_changed) {
            return Vec::new();
        }
        let (services, due) = (&self.services, &mut self.due);
        let mut changed = Vec::new();
        self.ramps.retain(|key, ramp| {
            let over = services.get(&key.service).map_or(Duration::ZERO, |service| service.over);
            if over == ramp.over {
                return true;
            }
            ramp.over = over;
            let parts = if over.is_zero() { FULL_SHARE } else { ramp.advance(now) };
            changed.push((key.clone(), parts));
            if parts < FULL_SHARE {
                due.push(Reverse((ramp.next, key.clone())));
            }
            parts < FULL_SHARE
        });
        changed
    }

    /// When to call [`Self::advance`].
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Advances the ramps that are due; returns their endpoints with the number of parts.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<(EndpointKey, u8)> {
        let mut changed = Vec::new();
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now)
            && let Some(Reverse((at, key))) = self.due.pop()
        {
            let Some(ramp) = self.ramps.get_mut(&key).filter(|ramp| ramp.next == at) else { continue };
            let parts = ramp.advance(now);
            if parts == FULL_SHARE {
                self.ramps.remove(&key);
            } else {
                self.due.push(Reverse((ramp.next, key.clone())));
            }
            changed.push((key, parts));
        }
        changed
    }
}

/// Endpoints that a frontend did not have before. None for a new frontend or a new pool of a split one, since all their endpoints start
/// together.
pub(super) fn new_endpoints(frontend: &Frontend, previous: Option<&Frontend>) -> Vec<EndpointKey> {
    let slow = || frontend.pools().filter(|pool| !pool.health.slow_start.is_zero());
    let services: HashSet<&ServicePort> = slow().map(|pool| &pool.service).collect();
    if services.is_empty() {
        return Vec::new();
    }
    // One walk for all services: with server names, there may be thousands of pools.
    let mut known = HashMap::<&ServicePort, HashSet<EndpointAddr>>::new();
    let before = previous.into_iter().flat_map(Frontend::pools);
    for pool in before.filter(|pool| services.contains(&pool.service)) {
        known.entry(&pool.service).or_default().extend(endpoints(pool));
    }
    let mut all = Vec::new();
    for pool in slow() {
        let Some(known) = known.get(&pool.service) else { continue };
        let new = endpoints(pool).filter(|addr| !known.contains(addr));
        all.extend(new.map(|addr| EndpointKey { service: pool.service.clone(), addr }));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sheave_model::{Algorithm, HealthPolicy, test_util};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn frontend(slow_start: Duration, endpoints: &[(u32, u16)]) -> Frontend {
        let frontend = test_util::frontend(1, Algorithm::Random, endpoints);
        Frontend { health: Arc::new(HealthPolicy { slow_start, ..HealthPolicy::default() }), ..frontend }
    }

    #[test]
    fn the_share_grows_by_a_tenth_each_tenth_of_the_time() {
        let (mut slow, start) = (SlowStart::default(), Instant::now());
        let frontend = frontend(30 * SECOND, &[(1, 100)]);
        slow.add(&frontend);
        let key = EndpointKey { service: frontend.service.clone(), addr: test_util::endpoint_addr(1) };
        assert_eq!(slow.begin(&key, start), 1);
        assert_eq!(slow.begin(&key, start + SECOND), 1, "it goes on");
        assert!(slow.advance(start + 2 * SECOND).is_empty());
        for parts in 2..=10 {
            let at = slow.next_due().unwrap();
            assert_eq!(at, start + 3 * SECOND * (u32::from(parts) - 1));
            assert_eq!(slow.advance(at), [(key.clone(), parts)]);
        }
        assert_eq!(slow.next_due(), None);
        let later = start + 7 * SECOND;
        assert_eq!(slow.resume(&key, later, start), 3, "it began in another process");
        assert_eq!((slow.began(&key), slow.next_due()), (Some(start), Some(start + 9 * SECOND)));
        assert_eq!(slow.resume(&key, start + 60 * SECOND, start), FULL_SHARE);
        assert_eq!(slow.advance(start + 60 * SECOND), [(key.clone(), FULL_SHARE)]);
        slow.begin(&key, start);
        slow.end(&key);
        assert!(slow.advance(start + 60 * SECOND).is_empty());
        slow.remove(&frontend);
        assert_eq!(slow.begin(&key, start), FULL_SHARE, "nobody wants that any more");
    }

    #[test]
    fn endpoints_that_come_to_a_frontend_are_new_and_those_that_come_with_it_are_not() {
        let after = frontend(SECOND, &[(1, 100), (2, 100)]);
        assert!(new_endpoints(&after, None).is_empty());
        let new = new_endpoints(&after, Some(&frontend(SECOND, &[(1, 100)])));
        let addresses: Vec<EndpointAddr> = new.into_iter().map(|key| key.addr).collect();
        assert_eq!(addresses, [test_util::endpoint_addr(2)]);
        let at_once = frontend(Duration::ZERO, &[(1, 100), (2, 100)]);
        assert!(new_endpoints(&at_once, Some(&frontend(SECOND, &[]))).is_empty());
    }
}
