//! Leader election: the candidate that holds a `coordination.k8s.io/v1` Lease is the leader.
//!
//! There is never more than one leader if all clocks run at the same rate: a leader stops [`LeaseTiming::deadline`] after it *sent*
//! its last successful renewal, and others take over [`LeaseTiming::lease`] after they *saw* it. Writes are limited to the term
//! ([`Leadership::remaining`]); the time between deadline and lease is for requests that are then still in flight.
//!
//! The election has its own thread. Projecting and publishing tens of thousands of Services can keep the controller's thread busy
//! for longer than a term, and renewals must not wait for that.
//!
//! A suspended machine does not count the time, and its requests after waking up can arrive after the next leader's. That never
//! affects a finalizer, because the write carries the resourceVersion. A status, which is applied to any version, may be
//! overwritten; the leader notices and restores its own.

mod decide;
mod elector;
mod lease_lock;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};

use self::elector::Elector;
pub(super) use self::lease_lock::ApiLeaseLock;

use crate::api::store::ServiceKey;
use crate::sources::connection::Connection;

/// Durations of the election. The defaults are those of client-go, which every kube-controller-manager uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long other candidates wait after the last renewal that they saw before they take over. Whole seconds.
    pub lease: Duration,
    /// How long after sending its last successful renewal a leader stops leading; less than `lease`.
    pub deadline: Duration,
    /// Interval of the leader's renewals and of the candidates' reads; candidates wait up to half as long again.
    pub retry: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl LeaseTiming {
    /// Timing between installations that share one Karmada control plane. Within an installation another leader takes over at
    /// once, so this only delays the takeover of an installation that is gone, whose MultiClusterServices move to other gateways.
    pub const INSTALLATION: Self = Self {
        lease: Duration::from_secs(60),
        deadline: Duration::from_secs(40),
        retry: Duration::from_secs(10),
    };

    /// Timeout of one request: a request that hangs must leave time for another.
    fn patience(&self) -> Duration {
        self.deadline / 2
    }

    /// The lease duration in seconds, as the API stores it.
    fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX).max(1)
    }
}

/// The state that the elector publishes.
#[derive(Clone, Debug, Default)]
struct LeaderState {
    /// Number of terms that this process has led.
    term: u64,
    /// End of the current term unless it is renewed, if this process leads.
    until: Option<Instant>,
    /// Holder of the Lease, as last seen.
    leader: Option<String>,
    /// Uid of the Lease.
    lease_uid: Option<String>,
}

impl LeaderState {
    fn leads(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// The candidacy of this process. If dropped without [`Election::resign`], it ends as if the process had died: there is no leader
/// until the Lease expires.
#[derive(Debug)]
pub struct Election {
    /// Name of the candidate in the Lease.
    identity: String,
    standing: watch::Receiver<LeaderState>,
    /// The term of the last [`Election::won`].
    term: u64,
    resign: oneshot::Sender<()>,
    /// Resolves when the elector has ended.
    ended: oneshot::Receiver<()>,
}

/// The elector's ends of the channels of an [`Election`].
struct ElectorChannels {
    publish: watch::Sender<LeaderState>,
    resigned: oneshot::Receiver<()>,
    end: oneshot::Sender<()>,
}

/// The elector ended unexpectedly, which only a bug can cause: this process never leads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the leader election has ended by itself")]
pub struct ElectionEnded;

/// Permission to write during one term of leadership. Cheap to clone and to check.
#[derive(Clone, Debug)]
pub struct Leadership {
    standing: watch::Receiver<LeaderState>,
    term: u64,
    /// Another leadership that must hold as well.
    within: Option<Arc<Self>>,
}

/// A unique name for this process. `host` is the name of the Pod or the machine.
pub fn identity(host: &str) -> String {
    format!("{host}_{:016x}", fastrand::u64(..))
}

impl Election {
    /// Becomes a candidate for `lease` under a unique name (see [`identity`]).
    pub fn start(connection: &Connection, lease: &ServiceKey, identity: String, timing: LeaseTiming) -> Self {
        let (election, ElectorChannels { publish, resigned, end }) = Self::wired(identity.clone());
        let (connection, lease) = (connection.clone(), lease.clone());
        let spawned = on_a_thread(async move {
            match connection.separate() {
                Ok(connection) => {
                    let remote = ApiLeaseLock::new(&connection, &lease);
                    Elector::new(remote, lease, identity, timing).run(publish, resigned).await;
                    // Fails if the receiver is gone.
                    end.send(()).unwrap_or_default();
                }
                Err(error) => {
                    tracing::error!(%error, "the leader election has no connection to the API server");
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "the leader election has no thread");
        }
        election
    }

    fn wired(identity: String) -> (Self, ElectorChannels) {
        let (publish, standing) = watch::channel(LeaderState::default());
        let (resign, resigned) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        (Self { identity, standing, term: 0, resign, ended }, ElectorChannels { publish, resigned, end })
    }

    #[cfg(test)]
    fn run<S: lease_lock::LeaseLock>(elector: Elector<S>) -> Self {
        let identity = elector.identity().to_owned();
        let (election, ElectorChannels { publish, resigned, end }) = Self::wired(identity);
        tokio::spawn(async move {
            elector.run(publish, resigned).await;
            end.send(()).unwrap_or_default();
        });
        election
    }

    /// The candidacy of one that has seen this holder of the Lease.
    #[cfg(test)]
    pub(super) fn that_has_seen(identity: &str, leader: Option<&str>) -> Self {
        let (election, ElectorChannels { publish, .. }) = Self::wired(identity.to_owned());
        publish.send_modify(|standing| standing.leader = leader.map(str::to_owned));
        election
    }

    /// Waits until this process leads. Cancel safe.
    ///
    /// # Errors
    /// If the elector has ended.
    pub async fn won(&mut self) -> Result<(), ElectionEnded> {
        let won = self.standing.wait_for(|standing| standing.leads(Instant::now())).await;
        self.term = won.map_err(|_| ElectionEnded)?.term;
        Ok(())
    }

    /// Waits until this process no longer leads, or did not for a moment since [`Election::won`]. Cancel safe.
    ///
    /// # Errors
    /// If the elector has ended: the caller leads at most until the end of its term, and never again.
    pub async fn lost(&mut self) -> Result<(), ElectionEnded> {
        loop {
            let standing = self.standing.borrow_and_update().clone();
            let Some(until) = standing.until.filter(|_| standing.term == self.term) else { return Ok(()) };
            tokio::select! {
                changed = self.standing.changed() => changed.map_err(|_| ElectionEnded)?,
                () = sleep_until(until) => return Ok(()),
            }
        }
    }

    /// Holder of the Lease, as last seen; `None` if that is this candidate, whose name stays in a Lease that it cannot renew, and its
    /// term is over.
    pub fn leader(&self) -> Option<String> {
        let standing = self.standing.borrow();
        let leads = |leader: &String| *leader != self.identity || standing.leads(Instant::now());
        standing.leader.clone().filter(leads)
    }

    /// Holder of the Lease with another name, as last seen.
    pub fn other_leader(&self) -> Option<String> {
        self.leader().filter(|leader| *leader != self.identity)
    }

    /// Uid of the Lease as last seen. It is unique to the installation.
    pub fn lease_uid(&self) -> Option<String> {
        self.standing.borrow().lease_uid.clone()
    }

    /// Permission to check before each write in the term of the last [`Election::won`]: a process that was stopped and wakes up
    /// after others took over must not write.
    pub fn leadership(&self) -> Leadership {
        Leadership { standing: self.standing.clone(), term: self.term, within: None }
    }

    /// Releases the Lease, so that another candidate can lead at once, and ends. Takes a few seconds at most if the API server
    /// does not answer. The caller must have stopped writing.
    pub async fn resign(self) {
        // Fails if the elector has already ended, and then there is nothing to release.
        self.resign.send(()).unwrap_or_default();
        if let Err(error) = self.ended.await.map_err(|_| ElectionEnded) {
            tracing::error!(%error, "the Lease was not given up");
        }
    }
}

/// Runs `work` on a thread and runtime of its own.
fn on_a_thread(work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("election".to_owned()).spawn(move || runtime.block_on(work))?;
    Ok(())
}

impl Leadership {
    /// A leadership that lasts until this time.
    #[cfg(test)]
    pub(crate) fn until(until: Instant) -> Self {
        let standing = LeaderState { term: 1, until: Some(until), ..LeaderState::default() };
        Self { standing: watch::channel(standing).1, term: 1, within: None }
    }

    /// A leadership that holds only while both hold.
    #[must_use]
    pub fn within(self, other: &Self) -> Self {
        Self { within: Some(Arc::new(other.clone())), ..self }
    }

    /// Whether the term still lasts, by the monotonic clock.
    pub fn holds(&self) -> bool {
        self.remaining().is_some()
    }

    /// Time until the term ends unless it is renewed, or `None` if it is over. A write that is sent now may not take longer.
    pub fn remaining(&self) -> Option<Duration> {
        let standing = self.standing.borrow();
        let until = standing.until.filter(|_| standing.term == self.term)?;
        let rest = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())?;
        match &self.within {
            Some(other) => other.remaining().map(|others| others.min(rest)),
            None => Some(rest),
        }
    }
}
