//! Health of endpoints: outlier detection from real connections (`outlier`), active checks (`active_checks`), and the verdict from both.
//!
//! If an endpoint is checked, the checks decide when it is healthy again. Otherwise it is tried after a time, and returns once the trial
//! has succeeded: a connection of the health task for a TCP endpoint, one flow of a client for a UDP endpoint (`trial`).
//!
//! A failure is a TCP connection that is not established, an ICMP error for a datagram, or datagrams of a client without an answer
//! although the endpoint has answered others and another endpoint answers. The fate of an established connection does not count, not
//! even a reset before the first byte: that may be the endpoint's reaction to what its client sent, or to the number of a client's
//! connections, and no client may deprive others of an endpoint. (HAProxy's `observe layer4` and Envoy's TCP proxy count the same.)
//! Checks find such endpoints.

mod active_checks;
mod confirm;
mod endpoint_failures;
mod grpc;
mod handover;
mod log;
mod outlier;
mod probe;
mod reports;
mod serving;
mod slots;
mod slow_start;
mod success_watch;
mod suspect;
mod table_changes;
#[cfg(test)]
mod tests;
mod trial;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use sheave_model::{EndpointAddr, Protocol, ServicePort};
use tokio::sync::mpsc;

use self::active_checks::{ActiveChecks, CheckVerdict};
use self::confirm::{Confirmations, SecondOpinion};
use self::log::Log;
use self::outlier::Transition;
use self::reports::{EndpointKey, Report, Suspects};
use self::serving::Serving;
use self::slow_start::SlowStart;
use self::suspect::{FailureMoment, Suspect};
use crate::paths::Paths;
use crate::select::{ActiveTable, EndpointHealth};

pub use self::endpoint_failures::{EndpointCounts, EndpointFailures};
pub(crate) use self::reports::{ConnectedFrom, Reports};
pub(crate) use self::slots::ProbeBudget;

/// Maximum number of reports processed in one batch.
const BATCH: usize = 256;

/// Maximum pause after a new verdict was applied. The pause is as long as applying took: a whole cluster that fails must not keep the
/// thread busy.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// An endpoint that new traffic avoids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhealthyEndpoint {
    /// Service port that avoids it.
    pub service: ServicePort,
    /// Address of the endpoint.
    pub addr: EndpointAddr,
    /// Text of the error.
    pub why: Arc<str>,
    /// When it became unhealthy.
    pub since: Instant,
    /// Whether an active check fails. Every gateway with the endpoint in its table detects that, whether it uses the endpoint or not.
    pub checked: bool,
}

/// Health counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounts {
    /// Endpoints ejected because connections to them failed.
    pub ejections: u64,
    /// Checks that an endpoint passed.
    pub checks_passed: u64,
    /// Checks that an endpoint failed.
    pub checks_failed: u64,
}

/// Health of all endpoints.
#[derive(Debug)]
pub(crate) struct Health {
    reports: Arc<Reports>,
    inbox: mpsc::Receiver<Report>,
    paths: Arc<Paths>,
    suspects: HashMap<EndpointKey, Suspect>,
    /// Number of suspects so far, from which each gets the number of its watch.
    watches: u32,
    /// Next deadlines of suspects; an entry with another time than the suspect's is stale.
    deadlines: BinaryHeap<Reverse<(Instant, EndpointKey)>>,
    checks: ActiveChecks,
    confirmations: Confirmations,
    serving: Serving,
    known: EndpointHealth,
    slow_start: SlowStart,
    /// When each unhealthy endpoint became unhealthy.
    since: HashMap<EndpointKey, Instant>,
    ejections: u64,
    failures: Arc<EndpointFailures>,
    /// Whether `known` has changed since it was last taken.
    changed: bool,
    /// Whether suspects were added or removed since they were last published to the workers.
    suspects_changed: bool,
    rest_until: Instant,
    jitter: RandomState,
    log: Log,
}

impl Health {
    /// Creates the state without endpoints.
    pub(crate) fn new(paths: Arc<Paths>, probes: ProbeBudget) -> Self {
        let (reports, inbox) = Reports::new();
        Self {
            reports,
            inbox,
            confirmations: Confirmations::new(probes.opinions, Arc::clone(&paths)),
            paths,
            suspects: HashMap::new(),
            watches: 0,
            deadlines: BinaryHeap::new(),
            checks: ActiveChecks::new(probes.checks),
            serving: Serving::default(),
            known: EndpointHealth::default(),
            slow_start: SlowStart::default(),
            since: HashMap::new(),
            ejections: 0,
            failures: Arc::default(),
            changed: false,
            suspects_changed: false,
            rest_until: now(),
            jitter: RandomState::new(),
            log: Log::default(),
        }
    }

    /// The handle with which workers report.
    pub(crate) fn reports(&self) -> Arc<Reports> {
        Arc::clone(&self.reports)
    }

    /// Live failure counts of each endpoint.
    pub(crate) fn failures(&self) -> Arc<EndpointFailures> {
        Arc::clone(&self.failures)
    }

    /// Waits until the verdict on any endpoint changes, and runs the checks meanwhile. Returns at once while a change has not been
    /// taken. Cancel safe.
    pub(crate) async fn changed(&mut self, table: &ArcSwap<ActiveTable>) {
        loop {
            if self.changed {
                tokio::time::sleep_until(self.rest_until.into()).await;
                return;
            }
            self.checks.start_due(now(), &self.paths);
            let next = self
                .deadlines
                .peek()
                .map(|Reverse((at, _))| *at)
                .into_iter()
                .chain(self.checks.next_due())
                .chain(self.slow_start.next_due())
                .min();
            let wake = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(report) = self.inbox.recv() => self.receive(report, &table.load()),
                Some(verdicts) = self.checks.next() => {
                    verdicts.into_iter().for_each(|verdict| self.apply_verdict(verdict));
                }
                Some(opinion) = self.confirmations.next() => self.apply_opinion(opinion),
                () = wake => self.expire(now()),
            }
            self.publish_suspects();
        }
    }

    /// Takes the health of all endpoints if it changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Option<EndpointHealth> {
        std::mem::take(&mut self.changed).then(|| self.known.clone())
    }

    /// Records how long it took to apply the verdict.
    pub(crate) fn rest(&mut self, took: Duration) {
        self.rest_until = now() + took.min(LONGEST_PAUSE);
    }

    /// Processes a report and those queued behind it.
    fn receive(&mut self, first: Report, active: &ActiveTable) {
        let mut reports = vec![first];
        while reports.len() < BATCH
            && let Ok(report) = self.inbox.try_recv()
        {
            reports.push(report);
        }
        for report in reports {
            match report {
                Report::Answered(key) => self.answered(key),
                Report::Failed { key, frontend, from, error, moment } => {
                    // The endpoint may have left since.
                    if !active.get(frontend).is_some_and(|it| it.is_judge(&key.service, key.addr)) {
                        continue;
                    }
                    let silent =
                        key.service.protocol == Protocol::Udp && error.kind() == io::ErrorKind::TimedOut;
                    match from {
                        ConnectedFrom::Gateway => {
                            self.failed(key.clone(), &error, moment);
                            if let Some(suspect) = self.suspects.get_mut(&key) {
                                suspect.set_silent(silent);
                            }
                        }
                        ConnectedFrom::Client => {
                            if let Some(suspect) = self.suspects.get_mut(&key) {
                                suspect.set_sees_clients();
                            }
                            self.confirmations.ask_for_client(key, now());
                        }
                        ConnectedFrom::ByClient => self.confirmations.ask_for_client(key, now()),
                    }
                }
            }
        }
    }

    fn apply_opinion(&mut self, SecondOpinion { key, result }: SecondOpinion) {
        match result {
            // The endpoint may have left since.
            _ if !self.serving.contains(&key) => {}
            Ok(()) => self.answered(key),
            Err(error) if error.is_own() => {
                if let Some(suspect) = self.suspects.get_mut(&key) {
                    suspect.postpone_opinion(now());
                    self.watch(key);
                }
            }
            Err(error) => {
                let watch = self.suspects.get(&key).map(|suspect| suspect.watch().state());
                self.failed(key, &error, FailureMoment { at: Instant::now(), watch });
            }
        }
    }

    fn failed(&mut self, key: EndpointKey, error: &impl Display, moment: FailureMoment) {
        if self.since.contains_key(&key) && !self.is_on_trial(&key) {
            return;
        }
        let now = now();
        let jitter = self.jitter.hash_one((&key, now));
        let suspect = self.suspects.entry(key.clone()).or_insert_with(|| {
            self.suspects_changed = true;
            self.watches += 1;
            Suspect::new(self.watches, now)
        });
        self.failures.add_failure(&key);
        if suspect.failed(moment, now, jitter) == Transition::Ejected {
            self.ejections += 1;
            self.failures.add_ejection(&key);
            self.set_unhealthy(&key, error.to_string());
            if self.checks.eject(&key) {
                self.forget(&key);
            }
        }
        self.watch(key);
    }

    fn answered(&mut self, key: EndpointKey) {
        let Some(suspect) = self.suspects.get_mut(&key) else { return };
        match suspect.succeeded() {
            Transition::Forgotten => self.forget(&key),
            Transition::Returned => {
                self.reassess(&key);
                self.watch(key);
            }
            Transition::None | Transition::Ejected | Transition::Trial => self.watch(key),
        }
    }

    fn apply_verdict(&mut self, CheckVerdict { key, failure }: CheckVerdict) {
        match failure {
            Some(failure) => self.set_unhealthy(&key, failure),
            None => self.reassess(&key),
        }
    }

    /// Handles the deadlines that are due by `now`.
    fn expire(&mut self, now: Instant) {
        for (key, parts) in self.slow_start.advance(now) {
            self.show_slow_start(&key, parts);
        }
        while self.deadlines.peek().is_some_and(|Reverse((at, _))| *at <= now)
            && let Some(Reverse((at, key))) = self.deadlines.pop()
        {
            let Some(suspect) = self.suspects.get_mut(&key) else { continue };
            if !suspect.takes_turn(at) {
                continue;
            }
            if suspect.takes_opinion(&key.service, now) {
                self.confirmations.ask(key.clone(), now);
            }
            match suspect.expire(now) {
                Transition::Trial => self.try_again(&key, now),
                Transition::Forgotten => self.forget(&key),
                Transition::None | Transition::Ejected | Transition::Returned => {}
            }
            self.watch(key);
        }
    }

    /// Schedules the suspect's next deadline.
    fn watch(&mut self, key: EndpointKey) {
        let due = self.suspects.get_mut(&key).and_then(Suspect::schedule);
        self.deadlines.extend(due.map(|at| Reverse((at, key))));
    }

    fn forget(&mut self, key: &EndpointKey) {
        self.suspects_changed |= self.suspects.remove(key).is_some();
        self.reassess(key);
    }

    fn set_unhealthy(&mut self, key: &EndpointKey, why: String) {
        if !self.since.contains_key(key) {
            self.changed = true;
            self.log.unhealthy(key, &why);
            self.slow_start.end(key);
            self.known.set_unhealthy(&key.service, key.addr, why.into());
            self.since.insert(key.clone(), now());
        } else if self.known.trial(&key.service, key.addr).is_some() {
            self.changed = true;
            self.known.set_unhealthy(&key.service, key.addr, why.into());
        }
    }

    /// Marks the endpoint as healthy again, unless it is still ejected or fails a check.
    fn reassess(&mut self, key: &EndpointKey) {
        let ejected = self.suspects.get(key).is_some_and(Suspect::is_ejected);
        if !ejected
            && !self.checks.is_failing(key)
            && let Some(since) = self.since.remove(key)
        {
            self.changed = true;
            self.known.set_healthy(&key.service, key.addr);
            let parts = self.slow_start.begin(key, now());
            self.show_slow_start(key, parts);
            self.log.healthy(key, now().saturating_duration_since(since));
        }
    }

    fn publish_suspects(&mut self) {
        if std::mem::take(&mut self.suspects_changed) {
            let mut suspects = Suspects::default();
            for (key, suspect) in &self.suspects {
                let watched = (key.service.clone(), Arc::clone(suspect.watch()));
                suspects.entry(key.addr).or_default().push(watched);
            }
            self.reports.set_suspects(suspects);
        }
    }

    /// The unhealthy endpoints, sorted by Service port and address.
    pub(crate) fn unhealthy(&self) -> impl Iterator<Item = UnhealthyEndpoint> {
        let mut keys: Vec<_> = self.since.iter().collect();
        keys.sort_unstable();
        keys.into_iter().filter_map(|(key, since)| {
            let EndpointKey { service, addr } = key;
            let checked = self.checks.is_failing(key);
            let why = Arc::clone(self.known.of(service)?.reason(*addr)?);
            Some(UnhealthyEndpoint { service: service.clone(), addr: *addr, why, since: *since, checked })
        })
    }

    /// Counts since the start.
    pub(crate) fn counts(&self) -> HealthCounts {
        let (checks_passed, checks_failed) = self.checks.counts();
        HealthCounts { ejections: self.ejections, checks_passed, checks_failed }
    }
}

/// Current time of the runtime's clock.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
