//! Loop of a candidate: reads the Lease, executes the decision, and publishes whether this process leads.

use k8s_openapi::jiff::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::decide::{Action, ObservedLease, decide, released};
use super::{LeaderState, LeaseTiming};
use crate::api::store::ServiceKey;
use crate::controller::election::lease_lock::{LeaseLock, LeaseWrite};

/// How often a release is attempted if others write to the Lease in between.
const RELEASES: usize = 3;

/// A candidate.
pub(super) struct Elector<S> {
    lock: S,
    name: ServiceKey,
    identity: String,
    timing: LeaseTiming,
    /// The wall clock. Its times are only for users.
    clock: fn() -> Timestamp,
    observed: Option<ObservedLease>,
    /// Whether `observed` may be out of date: a write was refused, or its outcome is unknown.
    stale: bool,
    /// Whether the failure of the API server was logged.
    failing: bool,
}

/// The outcome of one attempt to get or renew the Lease.
#[derive(Debug)]
#[must_use]
enum Attempt {
    /// This process holds it, by a write sent at this time.
    Ours(Instant),
    /// Another process holds it, or none yet.
    NotOurs,
    /// Another process wrote first. The next read shows which; until then a current leader keeps its remaining time.
    Beaten,
    /// The outcome is unknown.
    Unknown(String),
}

impl<S: LeaseLock> Elector<S> {
    pub(super) fn new(lock: S, name: ServiceKey, identity: String, timing: LeaseTiming) -> Self {
        let clock = Timestamp::now;
        Self { lock, name, identity, timing, clock, observed: None, stale: true, failing: false }
    }

    #[cfg(test)]
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    #[cfg(test)]
    pub(super) fn with_clock(self, clock: fn() -> Timestamp) -> Self {
        Self { clock, ..self }
    }

    /// Runs until it should resign, and then releases the Lease. If the sender is dropped, it ends without that.
    pub(super) async fn run(
        mut self,
        publish: watch::Sender<LeaderState>,
        mut resigned: oneshot::Receiver<()>,
    ) {
        let resigned = loop {
            tokio::select! {
                resigned = &mut resigned => break resigned.is_ok(),
                () = self.attempt(&publish) => {}
            }
        };
        publish.send_modify(|standing| standing.until = None);
        if resigned && timeout(self.timing.patience(), self.release()).await.is_err() {
            tracing::warn!(lease = %self.name, "the API server did not take the Lease back: others lead once it has run out");
        }
    }

    /// Makes one attempt and pauses. May be dropped at any point.
    async fn attempt(&mut self, publish: &watch::Sender<LeaderState>) {
        let fresh = !std::mem::replace(&mut self.stale, true);
        let look = timeout(self.timing.patience(), self.look(fresh && self.is_ours())).await;
        let look = look.unwrap_or_else(|_| Attempt::Unknown("no answer".to_owned()));
        self.log_failure(&look);
        self.publish(&look, publish);
        sleep(self.pause()).await;
    }

    /// Jitter for candidates, so that their requests spread out.
    fn pause(&self) -> std::time::Duration {
        let retry = self.timing.retry;
        if self.is_ours() { retry } else { retry.mul_f64(1.0 + fastrand::f64() / 2.0) }
    }

    fn is_ours(&self) -> bool {
        self.observed.as_ref().is_some_and(|it| it.is_held_by(&self.identity))
    }

    /// A leader that knows the Lease renews it without reading it first, which saves a request.
    async fn look(&mut self, known: bool) -> Attempt {
        if !known && let Err(error) = self.read().await {
            return Attempt::Unknown(error);
        }
        let (sent, wall) = (Instant::now(), (self.clock)());
        let action = decide(&self.name, &self.identity, self.observed.as_ref(), sent, wall, &self.timing);
        let written = match action {
            Action::Create(lease) => self.lock.create(&lease).await,
            Action::Replace(lease) => self.lock.replace(&lease).await,
            Action::Wait => return Attempt::NotOurs,
        };
        match written {
            LeaseWrite::Yes(lease) => {
                self.observed = Some(ObservedLease::new(*lease, self.observed.as_ref(), sent));
                self.stale = false;
                Attempt::Ours(sent)
            }
            LeaseWrite::Refused => Attempt::Beaten,
            LeaseWrite::Unknown(error) => Attempt::Unknown(error),
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        self.observed = match self.lock.get().await? {
            Some(lease) => Some(ObservedLease::new(lease, self.observed.as_ref(), Instant::now())),
            None => self.observed.take().map(ObservedLease::deleted),
        };
        Ok(())
    }

    fn publish(&self, look: &Attempt, publish: &watch::Sender<LeaderState>) {
        let now = Instant::now();
        let leader = self.observed.as_ref().and_then(ObservedLease::holder).map(ToOwned::to_owned);
        publish.send_modify(|standing| {
            self.advance(standing, look, now);
            if let Some(leader) = leader.as_deref().filter(|_| standing.leader != leader && !self.is_ours()) {
                tracing::info!(lease = %self.name, leader, "another controller leads");
            }
            standing.leader = leader;
            standing.lease_uid = self.observed.as_ref().and_then(ObservedLease::uid).map(ToOwned::to_owned);
        });
    }

    fn advance(&self, standing: &mut LeaderState, look: &Attempt, now: Instant) {
        let led = standing.leads(now);
        match look {
            Attempt::Ours(sent) => {
                let until = *sent + self.timing.deadline;
                if !led && standing.until.is_some() {
                    self.warn_of_loss("it renewed the Lease too late");
                }
                if !led && now < until {
                    standing.term += 1;
                    tracing::info!(lease = %self.name, identity = self.identity, "this controller leads");
                }
                standing.until = Some(until);
            }
            Attempt::NotOurs => {
                if standing.until.take().is_some() {
                    self.warn_of_loss("another one took the Lease");
                }
            }
            Attempt::Beaten | Attempt::Unknown(_) => {
                if !led && standing.until.take().is_some() {
                    self.warn_of_loss("it could not renew the Lease in time");
                }
            }
        }
    }

    /// Logs the end of leadership. This is the only log line about it, because only here the reason is known.
    fn warn_of_loss(&self, why: &str) {
        tracing::warn!(lease = %self.name, identity = self.identity, "this controller leads no more: {why}");
    }

    /// Logs once when the API server fails.
    fn log_failure(&mut self, look: &Attempt) {
        match look {
            Attempt::Unknown(error) if !self.failing => {
                tracing::warn!(lease = %self.name, error, "the Lease cannot be read or written: trying on");
                self.failing = true;
            }
            Attempt::Unknown(error) => tracing::debug!(lease = %self.name, error, "still no Lease"),
            Attempt::Ours(_) | Attempt::NotOurs | Attempt::Beaten => self.failing = false,
        }
    }

    /// Clears the holder of the Lease if it is ours. A write with an unknown outcome may have made it ours.
    async fn release(&mut self) {
        for _ in 0..RELEASES {
            if self.stale
                && let Err(error) = self.read().await
            {
                tracing::debug!(lease = %self.name, error, "the Lease cannot be read to give it up");
                continue;
            }
            let Some(observed) = self.observed.as_ref().filter(|it| it.is_held_by(&self.identity)) else {
                return;
            };
            match self.lock.replace(&released(observed, (self.clock)())).await {
                LeaseWrite::Yes(_) => return,
                LeaseWrite::Refused | LeaseWrite::Unknown(_) => self.stale = true,
            }
        }
    }
}
