//! Active checks: runs each endpoint's check at its interval, a limited number at a time, and turns results into verdicts. Checks
//! only run while [`ActiveChecks::next`] is polled.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{Check, CheckKind, EndpointAddr, Frontend, Protocol, ServicePort};
use tokio::task::AbortHandle;

use super::probe::{self, ProbeError};
use super::reports::EndpointKey;
use super::slots::{ProbeSlots, SlotLimits};
use crate::paths::Paths;

/// Verdict of a check, with the latest results to the contrary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    serves: bool,
    /// Number of consecutive results to the contrary.
    against: u8,
}

impl Streak {
    /// Starts with a verdict. A new endpoint serves until a check fails. One that another check found unhealthy stays so until
    /// this check succeeds: otherwise editing a check would send clients to every endpoint that is down.
    fn new(serves: bool) -> Self {
        Self { serves, against: 0 }
    }

    /// Adds one result; returns whether it changed the verdict.
    fn add(&mut self, serves: bool, check: &Check) -> bool {
        if serves == self.serves {
            self.against = 0;
            return false;
        }
        self.against = self.against.saturating_add(1);
        let enough = if serves { check.successes } else { check.failures };
        let turned = self.against >= enough;
        if turned {
            *self = Self { serves, against: 0 };
        }
        turned
    }
}

/// A Service port that requests a check.
#[derive(Debug)]
struct CheckUser {
    /// Number of its frontends that request the check.
    frontends: usize,
    /// Results since the request: earlier results do not override the findings of the Service's own connections.
    streak: Streak,
}

/// One check of one address, shared by all Service ports that request exactly this check.
#[derive(Debug)]
struct Probe {
    addr: EndpointAddr,
    check: Check,
    users: BTreeMap<ServicePort, CheckUser>,
    running: Option<AbortHandle>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

/// A changed verdict of a check.
#[derive(Debug)]
pub(super) struct CheckVerdict {
    pub(super) key: EndpointKey,
    /// Why the endpoint is unhealthy; `None` = it is healthy again.
    pub(super) failure: Option<String>,
}

/// All active checks.
#[derive(Debug)]
pub(super) struct ActiveChecks {
    probes: HashMap<u64, Probe>,
    by_address: HashMap<EndpointAddr, Vec<u64>>,
    /// One entry for each probe that neither runs nor waits for a slot; entries of removed probes are stale.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    slots: ProbeSlots<u64, (u64, Instant, Result<(), ProbeError>)>,
    next_id: u64,
    jitter: RandomState,
    passed: u64,
    failed: u64,
}

impl ActiveChecks {
    /// Creates the state without checks.
    pub(super) fn new(limits: SlotLimits) -> Self {
        Self {
            probes: HashMap::new(),
            by_address: HashMap::new(),
            due: BinaryHeap::new(),
            slots: ProbeSlots::new(limits),
            next_id: 0,
            jitter: RandomState::new(),
            passed: 0,
            failed: 0,
        }
    }

    /// Starts checking the endpoints of a frontend, if it has a check.
    pub(super) fn add(&mut self, frontend: &Frontend, now: Instant) {
        frontend.pools().for_each(|pool| self.add_pool(pool, now));
    }

    fn add_pool(&mut self, frontend: &Frontend, now: Instant) {
        let Some(check) = check_of(frontend) else { return };
        let service = &frontend.service;
        for addr in endpoints(frontend) {
            let serves = !self.is_failing(&EndpointKey { service: service.clone(), addr });
            let id = self.find(addr, check).unwrap_or_else(|| self.create(addr, check, now));
            let Some(probe) = self.probes.get_mut(&id) else { continue };
            let new = || CheckUser { frontends: 0, streak: Streak::new(serves) };
            probe.users.entry(service.clone()).or_insert_with(new).frontends += 1;
        }
    }

    fn create(&mut self, addr: EndpointAddr, check: &Check, now: Instant) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.by_address.entry(addr).or_default().push(id);
        // Spread over the first period, so that endpoints that are added together are not checked together.
        let first = now + check.interval.mul_f64(self.random(!id, now) * self.periods(id, now));
        self.due.push(Reverse((first, id)));
        let probe = Probe { addr, check: check.clone(), users: BTreeMap::new(), running: None };
        self.probes.insert(id, probe);
        id
    }

    /// Stops the checks of a frontend; returns the endpoints that lost a check.
    pub(super) fn remove(&mut self, frontend: &Frontend) -> Vec<EndpointKey> {
        frontend.pools().flat_map(|pool| self.remove_pool(pool)).collect()
    }

    fn remove_pool(&mut self, frontend: &Frontend) -> Vec<EndpointKey> {
        let Some(check) = check_of(frontend) else { return Vec::new() };
        let service = &frontend.service;
        let mut left = Vec::new();
        for addr in endpoints(frontend) {
            let Some(id) = self.find(addr, check) else { continue };
            let Some(probe) = self.probes.get_mut(&id) else { continue };
            let Some(user) = probe.users.get_mut(service) else { continue };
            user.frontends -= 1;
            if user.frontends > 0 {
                continue;
            }
            probe.users.remove(service);
            left.push(EndpointKey { service: service.clone(), addr });
            if probe.users.is_empty() {
                self.probes.remove(&id);
                if let Some(ids) = self.by_address.get_mut(&addr) {
                    ids.retain(|other| *other != id);
                }
                if self.by_address.get(&addr).is_some_and(Vec::is_empty) {
                    self.by_address.remove(&addr);
                }
            }
        }
        left
    }

    fn find(&self, addr: EndpointAddr, check: &Check) -> Option<u64> {
        let mut ids = self.by_address.get(&addr)?.iter().copied();
        ids.find(|id| self.probes.get(id).is_some_and(|probe| probe.check == *check))
    }

    /// A random number from 0 to 1.
    fn random(&self, id: u64, now: Instant) -> f64 {
        (self.jitter.hash_one((id, now)) % 1024) as f64 / 1024.0
    }

    /// Random time between two checks, in intervals: from 0.9 to 1.1.
    fn periods(&self, id: u64, now: Instant) -> f64 {
        0.9 + 0.2 * self.random(id, now)
    }

    /// Starts the checks that are due while slots are free; the others wait for one. Must be called inside a runtime.
    pub(super) fn start_due(&mut self, now: Instant, paths: &Arc<Paths>) {
        while let Some(id) = self.take_due(now) {
            let Some(probe) = self.probes.get(&id) else { continue };
            // Of several namespaces that share the probe, the one with the least load: a namespace with thousands of checks must
            // not delay others.
            let namespaces = probe.users.keys().map(|service| &service.namespace);
            if let Some(namespace) = namespaces.min_by_key(|namespace| self.slots.load(namespace)) {
                self.slots.enqueue(namespace, id);
            }
        }
        while let Some((slot, id)) = self.slots.dequeue() {
            let Some(probe) = self.probes.get_mut(&id) else {
                self.slots.release(slot);
                continue;
            };
            let (addr, check, paths) = (probe.addr, probe.check.clone(), Arc::clone(paths));
            let run = async move { (id, now, probe::run(addr, &check, &paths).await) };
            probe.running = Some(self.slots.run(slot, run));
        }
    }

    fn take_due(&mut self, now: Instant) -> Option<u64> {
        let next = self.due.peek_mut().filter(|next| next.0.0 <= now)?;
        Some(PeekMut::pop(next).0.1)
    }

    /// When to call [`Self::start_due`] again, if no check ends before.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Waits until a check ends; returns the verdicts that it changed. `None` at once if none runs. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Vec<CheckVerdict>> {
        // An aborted check belonged to a removed endpoint.
        let ended = self.slots.ended().await?;
        Some(ended.map(|(id, began, answer)| self.finish(id, began, answer)).unwrap_or_default())
    }

    fn finish(&mut self, id: u64, began: Instant, answer: Result<(), ProbeError>) -> Vec<CheckVerdict> {
        let next = self.periods(id, began);
        let Some(probe) = self.probes.get_mut(&id) else { return Vec::new() };
        probe.running = None;
        self.due
            .push(Reverse((began + probe.check.interval.mul_f64(next).max(Duration::from_millis(1)), id)));
        if answer.as_ref().is_err_and(ProbeError::is_own) {
            return Vec::new();
        }
        let serves = answer.is_ok();
        if serves {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        let failure = answer.err().map(|error| error.to_string());
        let Probe { addr, check, users, .. } = probe;
        let turned = users.iter_mut().filter_map(|(service, user)| {
            let key = || EndpointKey { service: service.clone(), addr: *addr };
            let turned = user.streak.add(serves, check);
            turned.then(|| CheckVerdict { key: key(), failure: failure.clone() })
        });
        turned.collect()
    }

    /// Makes the endpoint's checks decide when it is healthy again, after outlier detection ejected it. Returns whether it has
    /// any.
    pub(super) fn eject(&mut self, key: &EndpointKey) -> bool {
        let mut any = false;
        for id in self.by_address.get(&key.addr).into_iter().flatten() {
            let user = self.probes.get_mut(id).and_then(|probe| probe.users.get_mut(&key.service));
            if let Some(user) = user {
                user.streak = Streak::new(false);
                any = true;
            }
        }
        any
    }

    /// Whether any check of the endpoint fails.
    pub(super) fn is_failing(&self, key: &EndpointKey) -> bool {
        let ids = self.by_address.get(&key.addr).into_iter().flatten();
        let mut users = ids.filter_map(|id| self.probes.get(id)?.users.get(&key.service));
        users.any(|user| !user.streak.serves)
    }

    /// Number of checks that passed and failed since the start.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.passed, self.failed)
    }
}

/// The check of a frontend's endpoints. A check without a port number only applies to endpoints of its own protocol, since the
/// same port of the other protocol may not be served.
fn check_of(frontend: &Frontend) -> Option<&Check> {
    let check = frontend.health.check.as_ref()?;
    let protocol = match check.kind {
        CheckKind::Tcp | CheckKind::Http { .. } | CheckKind::Grpc { .. } => Protocol::Tcp,
        CheckKind::Udp { .. } => Protocol::Udp,
    };
    (check.port.is_some() || frontend.addr.protocol == protocol).then_some(check)
}

/// Addresses of all endpoints of a frontend that is not split, or of a pool.
pub(super) fn endpoints(frontend: &Frontend) -> impl Iterator<Item = EndpointAddr> {
    frontend.backends.iter().flat_map(|backend| &backend.endpoints).map(|endpoint| endpoint.addr)
}

#[cfg(test)]
mod tests;
