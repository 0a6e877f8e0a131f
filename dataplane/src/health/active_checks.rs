//! Active checks: runs each endpoint's check at its interval, a limited number at once, and turns results into verdicts. They
//! run only while [`ActiveChecks::next`] is polled.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_model::{Check, Frontend};
use tokio::task::{AbortHandle, JoinSet};

use super::probe::{self, ProbeError};
use super::reports::EndpointKey;
use crate::paths::Paths;

/// How many checks run at once.
const CONCURRENT: usize = 64;

/// The verdict of a check by its latest results.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streak {
    serves: bool,
    /// Consecutive results to the contrary.
    against: u8,
}

impl Streak {
    /// A new endpoint serves until a check fails. One that another check found unhealthy stays so until this check succeeds:
    /// otherwise editing a check would send clients to everything that is down.
    fn new(serves: bool) -> Self {
        Self { serves, against: 0 }
    }

    /// Adds one result; whether it changed the verdict.
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

/// One check of one endpoint.
#[derive(Debug)]
struct Probe {
    key: EndpointKey,
    check: Check,
    cluster: Arc<str>,
    /// The number of frontends that request it.
    users: usize,
    streak: Streak,
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
    pub(super) cluster: Arc<str>,
    /// Why the endpoint is unhealthy; `None` = it is healthy again.
    pub(super) failure: Option<ProbeError>,
}

/// All checks.
#[derive(Debug, Default)]
pub(super) struct ActiveChecks {
    probes: HashMap<u64, Probe>,
    by_endpoint: HashMap<EndpointKey, Vec<u64>>,
    /// One entry for each probe that does not run; entries of removed probes are stale.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    running: JoinSet<(u64, Instant, Result<(), ProbeError>)>,
    next_id: u64,
    jitter: RandomState,
    passed: u64,
    failed: u64,
}

impl ActiveChecks {
    /// Starts checking the remote endpoints of a frontend, if it has a check.
    pub(super) fn add(&mut self, frontend: &Frontend, now: Instant) {
        for (key, cluster, check) in wanted(frontend) {
            if let Some(probe) = self.find(key, check) {
                probe.users += 1;
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            let streak = Streak::new(!self.is_failing(key));
            self.by_endpoint.entry(key).or_default().push(id);
            let (check, cluster) = (check.clone(), Arc::clone(cluster));
            // Spread over the interval, so that endpoints that come together are not checked together.
            let first = now + check.interval.mul_f64(self.random(id, now));
            self.due.push(Reverse((first, id)));
            let probe = Probe { key, check, cluster, users: 1, streak, running: None };
            self.probes.insert(id, probe);
        }
    }

    /// Stops the checks of a frontend; returns the endpoints that lost a check.
    pub(super) fn remove(&mut self, frontend: &Frontend) -> Vec<EndpointKey> {
        let mut left = Vec::new();
        for (key, _, check) in wanted(frontend) {
            let Some(probe) = self.find(key, check) else { continue };
            probe.users -= 1;
            if probe.users > 0 {
                continue;
            }
            left.push(key);
            let probes = &mut self.probes;
            let Some(ids) = self.by_endpoint.get_mut(&key) else { continue };
            ids.retain(|id| {
                let used = probes.get(id).is_some_and(|probe| probe.users > 0);
                if !used {
                    probes.remove(id);
                }
                used
            });
            if ids.is_empty() {
                self.by_endpoint.remove(&key);
            }
        }
        left
    }

    fn find(&mut self, key: EndpointKey, check: &Check) -> Option<&mut Probe> {
        let probes = &self.probes;
        let ids = self.by_endpoint.get(&key)?;
        let id = *ids.iter().find(|id| probes.get(id).is_some_and(|probe| probe.check == *check))?;
        self.probes.get_mut(&id)
    }

    /// From 0 to 1.
    fn random(&self, id: u64, now: Instant) -> f64 {
        (self.jitter.hash_one((id, now)) % 1024) as f64 / 1024.0
    }

    /// Starts the checks that are due, as far as there is room. Must be called inside a runtime.
    pub(super) fn start_due(&mut self, now: Instant, paths: &Arc<Paths>) {
        while self.running.len() < CONCURRENT
            && let Some(&Reverse((at, id))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            let Some(probe) = self.probes.get_mut(&id) else { continue };
            let ((_, endpoint), check, paths) = (probe.key, probe.check.clone(), Arc::clone(paths));
            probe.running = Some(
                self.running.spawn(async move { (id, now, probe::run(endpoint, &check, &paths).await) }),
            );
        }
    }

    /// When to call [`Self::start_due`] again, if no check ends before.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let Reverse((at, _)) = self.due.peek()?;
        (self.running.len() < CONCURRENT).then_some(*at)
    }

    /// Waits until a check ends; returns its verdict if that changed. Cancel safe; `None` at once if none runs.
    pub(super) async fn next(&mut self) -> Option<Option<CheckVerdict>> {
        // An aborted one belonged to a removed endpoint.
        Some(
            self.running
                .join_next()
                .await?
                .ok()
                .and_then(|(id, began, answer)| self.finish(id, began, answer)),
        )
    }

    fn finish(&mut self, id: u64, began: Instant, answer: Result<(), ProbeError>) -> Option<CheckVerdict> {
        // Between nine and eleven tenths of the interval.
        let next = 0.9 + 0.2 * self.random(id, began);
        let probe = self.probes.get_mut(&id)?;
        probe.running = None;
        self.due
            .push(Reverse((began + probe.check.interval.mul_f64(next).max(Duration::from_millis(1)), id)));
        if answer.as_ref().is_err_and(ProbeError::is_own) {
            return None;
        }
        let serves = answer.is_ok();
        if serves {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        let turned = probe.streak.add(serves, &probe.check);
        turned.then(|| CheckVerdict {
            key: probe.key,
            cluster: Arc::clone(&probe.cluster),
            failure: answer.err(),
        })
    }

    /// Outlier detection ejected the endpoint: its checks, if there are any, decide when it is healthy again. Whether there
    /// are any.
    pub(super) fn eject(&mut self, key: EndpointKey) -> bool {
        let Some(ids) = self.by_endpoint.get(&key) else { return false };
        for id in ids {
            if let Some(probe) = self.probes.get_mut(id) {
                probe.streak = Streak::new(false);
            }
        }
        true
    }

    /// Whether any check of the endpoint fails.
    pub(super) fn is_failing(&self, key: EndpointKey) -> bool {
        let ids = self.by_endpoint.get(&key).into_iter().flatten();
        ids.filter_map(|id| self.probes.get(id)).any(|probe| !probe.streak.serves)
    }

    /// How many checks passed and failed since the start.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.passed, self.failed)
    }
}

/// The endpoints of remote backends with their clusters, if the frontend has a check.
fn wanted(frontend: &Frontend) -> impl Iterator<Item = (EndpointKey, &Arc<str>, &Check)> {
    let check = frontend.failover.as_ref().and_then(|failover| failover.check.as_ref());
    check.into_iter().flat_map(move |check| {
        let remote = frontend.backends.iter().filter(|backend| backend.remote);
        remote.flat_map(move |backend| {
            let key = |addr| (frontend.addr.protocol, addr);
            backend.endpoints.iter().map(move |endpoint| (key(endpoint.addr), &backend.cluster, check))
        })
    })
}

#[cfg(test)]
mod tests {

    use sheave_model::{Algorithm, CheckKind, Failover, Spread, test_util};

    use super::*;

    fn check(failures: u8, successes: u8) -> Check {
        let second = Duration::from_secs(1);
        Check { kind: CheckKind::Tcp, port: None, interval: second, timeout: second, failures, successes }
    }

    fn frontend(number: u32, remote: bool, check: Option<Check>) -> Frontend {
        let mut frontend = test_util::frontend(number, Algorithm::Random, &[(1, 100), (2, 100)]);
        let mut backend = test_util::backend("member1", 100, &[(1, 100), (2, 100)]);
        backend.remote = remote;
        frontend.backends = Arc::new([backend]);
        let spread = Spread::Endpoints;
        frontend.failover =
            Some(Arc::new(Failover { spread, overprovisioning: 140, panic_threshold: 50, check }));
        frontend
    }

    #[test]
    fn so_many_answers_in_a_row_turn_the_verdict() {
        let (mut streak, check) = (Streak::new(true), check(3, 2));
        let mut said = |answers: &str| -> Vec<bool> {
            answers.chars().map(|answer| streak.add(answer == '+', &check)).collect()
        };
        assert_eq!(said("--+--"), [false; 5]);
        assert_eq!(said("-"), [true]);
        assert_eq!(said("+-+"), [false; 3]);
        assert_eq!(said("+"), [true]);
        assert_eq!(said("--"), [false; 2]);
    }

    #[test]
    fn one_endpoint_has_each_check_once_however_many_frontends_request_it() {
        let (mut checks, now) = (ActiveChecks::default(), Instant::now());
        let frontends = [1, 2].map(|number| frontend(number, true, Some(check(3, 2))));
        let other = frontend(3, true, Some(check(2, 2)));
        for frontend in frontends.iter().chain([&other]) {
            checks.add(frontend, now);
        }
        assert_eq!((checks.probes.len(), checks.by_endpoint.len()), (4, 2));
        assert!(checks.remove(&frontends[0]).is_empty());
        assert_eq!(checks.remove(&frontends[1]).len(), 2);
        assert_eq!(checks.remove(&other).len(), 2);
        assert!(checks.probes.is_empty() && checks.by_endpoint.is_empty());
    }

    #[test]
    fn nothing_is_checked_without_a_check_or_in_the_own_cluster() {
        let (mut checks, now) = (ActiveChecks::default(), Instant::now());
        checks.add(&frontend(1, true, None), now);
        checks.add(&frontend(2, false, Some(check(3, 2))), now);
        checks.add(&test_util::frontend(3, Algorithm::Random, &[(1, 100)]), now);
        assert!(checks.probes.is_empty() && checks.next_due().is_none());
    }

    #[test]
    fn a_check_that_is_edited_does_not_bring_back_what_the_one_before_took_out() {
        let (mut checks, now) = (ActiveChecks::default(), Instant::now());
        let [before, after] = [check(3, 2), check(2, 2)].map(|check| frontend(1, true, Some(check)));
        checks.add(&before, now);
        let keys: Vec<EndpointKey> = wanted(&before).map(|(key, ..)| key).collect();
        assert!(checks.eject(keys[0]));
        checks.add(&after, now);
        checks.remove(&before);
        assert_eq!([0, 1].map(|at| checks.is_failing(keys[at])), [true, false]);
    }

    #[test]
    fn what_real_connections_found_is_undone_by_answers() {
        let (mut checks, now) = (ActiveChecks::default(), Instant::now());
        let check = check(3, 2);
        checks.add(&frontend(1, true, Some(check)), now);
        let (id, key) = checks.probes.iter().map(|(id, probe)| (*id, probe.key)).next().unwrap();
        assert!(checks.eject(key) && checks.is_failing(key));
        assert!(checks.finish(id, now, Ok(())).is_none() && checks.is_failing(key));
        assert!(checks.finish(id, now, Ok(())).is_some_and(|verdict| verdict.failure.is_none()));
        assert!(!checks.is_failing(key));
    }
}
