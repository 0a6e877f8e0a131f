//! Which endpoints are healthy, as far as frontends with rules between their clusters ask for it: what real connections
//! find out (`record`), what checks find out (`checks`), and the one verdict of both.
//!
//! Where an endpoint is checked, the checks say when it serves again; else time does, and real traffic tries it. It must not
//! know what the verdict is used for.

mod active_checks;
mod log;
mod outlier;
mod probe;
mod reports;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use sheave_model::{EndpointAddr, FrontendAddr, FrontendChange, Protocol, RoutingTable};
use tokio::sync::mpsc;

use self::active_checks::{ActiveChecks, CheckVerdict};
use self::log::{DetectedBy, Log};
use self::outlier::{Outlier, Transition};
use self::reports::{EndpointKey, Report};
use crate::paths::Paths;
use crate::select::{ActiveTable, Unhealthy};

pub(crate) use self::reports::Reports;

/// Reports taken in together, before anything is done about them.
const TOGETHER: usize = 256;

/// After a new verdict was put in force, the next waits for as long as that took, up to this: a whole cluster that falls
/// ill must not keep its owner busy.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// An endpoint that new traffic avoids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhealthyEndpoint {
    /// Where it serves.
    pub addr: EndpointAddr,
    /// What it serves there.
    pub protocol: Protocol,
    /// What it failed with, for people.
    pub why: String,
    /// Since when it is avoided.
    pub since: Instant,
}

/// What health has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounts {
    /// Endpoints ejected because connections to them failed.
    pub ejections: u64,
    /// Checks that an endpoint passed.
    pub checks_passed: u64,
    /// Checks that one did not pass.
    pub checks_failed: u64,
}

/// One that connections failed to.
#[derive(Debug)]
struct Suspect {
    outlier: Outlier,
    /// The frontend whose client it failed last; the suspicion ends when that frontend no longer has the endpoint.
    frontend: FrontendAddr,
    /// Workers tell of its next answer.
    report_next: Arc<AtomicBool>,
}

/// Why one is unhealthy.
#[derive(Debug)]
struct Diagnosis {
    why: String,
    since: Instant,
    by: DetectedBy,
}

/// All that is known of endpoints' health.
#[derive(Debug)]
pub(crate) struct Health {
    reports: Arc<Reports>,
    inbox: mpsc::Receiver<Report>,
    paths: Arc<Paths>,
    suspects: HashMap<EndpointKey, Suspect>,
    /// When to look at a suspect; an entry with another moment than the record's is stale.
    deadlines: BinaryHeap<Reverse<(Instant, EndpointKey)>>,
    checks: ActiveChecks,
    unhealthy: BTreeMap<EndpointKey, Diagnosis>,
    ejections: u64,
    /// `unhealthy` has others than when it was last taken.
    changed: bool,
    /// Suspects came or went since the workers were told.
    suspects_changed: bool,
    rest_until: Instant,
    jitter: RandomState,
    log: Log,
}

impl Health {
    /// Of no endpoint yet.
    pub(crate) fn new(paths: Arc<Paths>) -> Self {
        let (reports, inbox) = Reports::new();
        Self {
            reports,
            inbox,
            paths,
            suspects: HashMap::new(),
            deadlines: BinaryHeap::new(),
            checks: ActiveChecks::default(),
            unhealthy: BTreeMap::new(),
            ejections: 0,
            changed: false,
            suspects_changed: false,
            rest_until: now(),
            jitter: RandomState::new(),
            log: Log::default(),
        }
    }

    /// For workers to report with.
    pub(crate) fn reports(&self) -> Arc<Reports> {
        Arc::clone(&self.reports)
    }

    /// Follows a change of the table.
    pub(crate) fn follow(
        &mut self,
        previous: &RoutingTable,
        changes: &[FrontendChange],
        active: &ActiveTable,
    ) {
        let now = now();
        // All that come before any that go: what is merely handed over keeps its state.
        for frontend in changes.iter().filter_map(|change| change.frontend.as_ref()) {
            self.checks.add(frontend, now);
        }
        for frontend in changes.iter().filter_map(|change| previous.get(change.addr)) {
            for key in self.checks.remove(frontend) {
                self.reassess(key);
            }
        }
        if !self.suspects.is_empty() {
            let changed: BTreeSet<FrontendAddr> = changes.iter().map(|change| change.addr).collect();
            self.forget_removed(&changed, active);
        }
        self.publish_suspects();
    }

    fn forget_removed(&mut self, changed: &BTreeSet<FrontendAddr>, active: &ActiveTable) {
        let stays = |addr: FrontendAddr, endpoint| {
            let frontend = active.get(addr).filter(|frontend| frontend.spec().failover.is_some());
            frontend.is_some_and(|frontend| frontend.serves(endpoint))
        };
        let removed: Vec<EndpointKey> = self
            .suspects
            .iter()
            .filter(|(key, suspect)| changed.contains(&suspect.frontend) && !stays(suspect.frontend, key.1))
            .map(|(key, _)| *key)
            .collect();
        for key in removed {
            self.forget(key);
        }
    }

    /// Waits until the verdict on any endpoint changes; runs the checks meanwhile. Cancel safe. Returns at once until the
    /// change was taken.
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
                .min();
            let wake = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(report) = self.inbox.recv() => self.receive(report, &table.load()),
                Some(verdict) = self.checks.next() => {
                    if let Some(verdict) = verdict {
                        self.apply_verdict(verdict);
                    }
                }
                () = wake => self.pass(now()),
            }
            self.publish_suspects();
        }
    }

    /// The unhealthy endpoints, if they are others than when this was last asked.
    pub(crate) fn take_changed(&mut self) -> Option<Unhealthy> {
        std::mem::take(&mut self.changed).then(|| self.unhealthy.keys().copied().collect())
    }

    /// The verdict is in force, which took so long.
    pub(crate) fn rest(&mut self, took: Duration) {
        self.rest_until = now() + took.min(LONGEST_PAUSE);
    }

    /// Takes in what workers said, with what waits behind it.
    fn receive(&mut self, first: Report, active: &ActiveTable) {
        let mut next = Some(first);
        for _ in 0..TOGETHER {
            match next {
                Some(Report::Failed(key, frontend, error)) => self.failed(key, frontend, &error, active),
                Some(Report::Answered(key)) => self.answered(key),
                None => return,
            }
            next = self.inbox.try_recv().ok();
        }
    }

    fn failed(&mut self, key: EndpointKey, frontend: FrontendAddr, error: &io::Error, active: &ActiveTable) {
        // It may have left since.
        let serves = active.get(frontend).is_some_and(|frontend| frontend.serves(key.1));
        if !serves || self.unhealthy.contains_key(&key) {
            return;
        }
        let now = now();
        let suspect = self.suspects.entry(key).or_insert_with(|| {
            self.suspects_changed = true;
            Suspect { outlier: Outlier::new(now), frontend, report_next: Arc::default() }
        });
        suspect.frontend = frontend;
        suspect.report_next.store(true, Ordering::Relaxed);
        let turn = suspect.outlier.failed(now, self.jitter.hash_one((key, now)));
        if turn == Transition::Ejected {
            self.ejections += 1;
            self.unhealthy_for(key, error.to_string(), DetectedBy::Frontend(frontend));
            if self.checks.eject(key) {
                self.forget(key);
            }
        }
        self.watch(key);
    }

    fn answered(&mut self, key: EndpointKey) {
        let Some(suspect) = self.suspects.get_mut(&key) else { return };
        match suspect.outlier.succeeded() {
            Transition::Forgotten => self.forget(key),
            Transition::None | Transition::Ejected | Transition::Returned => self.watch(key),
        }
    }

    fn apply_verdict(&mut self, CheckVerdict { key, cluster, failure }: CheckVerdict) {
        match failure {
            Some(failure) => self.unhealthy_for(key, failure.to_string(), DetectedBy::Cluster(cluster)),
            None => self.reassess(key),
        }
    }

    /// Looks at the suspects whose time has come.
    fn pass(&mut self, now: Instant) {
        while let Some(&Reverse((at, key))) = self.deadlines.peek()
            && at <= now
        {
            self.deadlines.pop();
            let Some(suspect) = self.suspects.get_mut(&key) else { continue };
            match suspect.outlier.pass(now) {
                Transition::Returned => {
                    suspect.report_next.store(true, Ordering::Relaxed);
                    self.reassess(key);
                    self.watch(key);
                }
                Transition::Forgotten => self.forget(key),
                Transition::None | Transition::Ejected => {}
            }
        }
    }

    /// Looks at the suspect again when its record says.
    fn watch(&mut self, key: EndpointKey) {
        let due = self.suspects.get(&key).and_then(|suspect| suspect.outlier.due());
        self.deadlines.extend(due.map(|at| Reverse((at, key))));
    }

    fn forget(&mut self, key: EndpointKey) {
        self.suspects_changed |= self.suspects.remove(&key).is_some();
        self.reassess(key);
    }

    fn unhealthy_for(&mut self, key: EndpointKey, why: String, by: DetectedBy) {
        if !self.unhealthy.contains_key(&key) {
            self.changed = true;
            self.log.unhealthy(key, &by, &why);
            self.unhealthy.insert(key, Diagnosis { why, since: now(), by });
        }
    }

    /// Healthy again, unless something still speaks against it.
    fn reassess(&mut self, key: EndpointKey) {
        let ejected = self.suspects.get(&key).is_some_and(|suspect| suspect.outlier.is_ejected());
        if !ejected
            && !self.checks.is_failing(key)
            && let Some(diagnosis) = self.unhealthy.remove(&key)
        {
            self.changed = true;
            self.log.healthy(key, &diagnosis.by, now().saturating_duration_since(diagnosis.since));
        }
    }

    fn publish_suspects(&mut self) {
        if std::mem::take(&mut self.suspects_changed) {
            let doubt = |(key, suspect): (&EndpointKey, &Suspect)| (*key, Arc::clone(&suspect.report_next));
            self.reports.watch(self.suspects.iter().map(doubt).collect());
        }
    }

    /// Every endpoint that is to be avoided, sorted by protocol and address.
    pub(crate) fn unhealthy(&self) -> impl Iterator<Item = UnhealthyEndpoint> {
        self.unhealthy.iter().map(|(&(protocol, addr), diagnosis)| UnhealthyEndpoint {
            addr,
            protocol,
            why: diagnosis.why.clone(),
            since: diagnosis.since,
        })
    }

    /// What was done since the start.
    pub(crate) fn counts(&self) -> HealthCounts {
        let (checks_passed, checks_failed) = self.checks.counts();
        HealthCounts { ejections: self.ejections, checks_passed, checks_failed }
    }
}

/// The runtime's clock.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
