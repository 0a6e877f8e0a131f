//! Leader election: of all candidates the one that holds a `coordination.k8s.io/v1` Lease leads.
//!
//! Two never lead at once as long as clocks tick equally fast: a leader stops [`Timing::deadline`] after it *sent* its last
//! renewal that succeeded, others take over [`Timing::lease`] after they *saw* it. Writes are given up with the term
//! ([`Leadership::remaining`]); the time between the two is for what is on its way to the server by then.
//!
//! It runs on a thread of its own: projecting and publishing tens of thousands of Services may keep the controller's thread
//! busy for longer than a term lasts, and no renewal may wait for that.
//!
//! A machine that is suspended does not count the time, and what it sends on waking may come after the next leader's. A
//! finalizer is then not touched, for the write carries the resourceVersion. A status, which is applied to whatever
//! version there is, may be overwritten; the leader sees that and puts its own back.

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

/// Durations of the election; the defaults are client-go's, which every kube-controller-manager uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait without seeing a renewal before they take over. Whole seconds.
    pub lease: Duration,
    /// How long after sending its last successful renewal a leader stops leading; less than `lease`.
    pub deadline: Duration,
    /// How often the leader renews and candidates read the Lease; candidates wait up to half as long again.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// Of an installation among others on one Karmada control plane. Within it another leader takes over at once, so this is for
    /// installations that are gone, whose MultiClusterServices get to other gateways.
    pub const INSTALLATION: Self = Self {
        lease: Duration::from_secs(60),
        deadline: Duration::from_secs(40),
        retry: Duration::from_secs(10),
    };

    /// A request that hangs must leave time for another one.
    fn patience(&self) -> Duration {
        self.deadline / 2
    }

    /// As the API has it.
    fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX).max(1)
    }
}

/// The state that the elector publishes.
#[derive(Clone, Debug, Default)]
struct LeaderState {
    /// Counts how often this process came to lead.
    term: u64,
    /// This process leads until then, unless it renews.
    until: Option<Instant>,
    /// Who holds the Lease as last seen.
    leader: Option<String>,
    /// The uid of the Lease.
    lease_uid: Option<String>,
}

impl LeaderState {
    fn leads(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// This process's candidacy. Dropped without [`Election::resign`], it ends as if the process had died: nobody leads until
/// the Lease runs out.
#[derive(Debug)]
pub struct Election {
    standing: watch::Receiver<LeaderState>,
    /// The term that `won` returned last.
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

/// The elector has ended by itself, which only a bug brings about: this process never leads again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the leader election has ended by itself")]
pub struct ElectionEnded;

/// The right to write that comes with one term of leadership. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership {
    standing: watch::Receiver<LeaderState>,
    term: u64,
    /// Another one that must hold as well.
    within: Option<Arc<Self>>,
}

/// A name that no other process has: `host` is the Pod's or the machine's name.
pub fn identity(host: &str) -> String {
    format!("{host}_{:016x}", fastrand::u64(..))
}

impl Election {
    /// Becomes a candidate for `lease` under a name that no other process has (see [`identity`]).
    pub fn start(connection: &Connection, lease: &ServiceKey, identity: String, timing: Timing) -> Self {
        let (election, ElectorChannels { publish, resigned, end }) = Self::wired();
        let (connection, lease) = (connection.clone(), lease.clone());
        let spawned = on_a_thread(async move {
            match connection.separate() {
                Ok(connection) => {
                    let remote = ApiLeaseLock::new(&connection, &lease);
                    Elector::new(remote, lease, identity, timing).run(publish, resigned).await;
                    // Nobody may wait for it.
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

    fn wired() -> (Self, ElectorChannels) {
        let (publish, standing) = watch::channel(LeaderState::default());
        let (resign, resigned) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        (Self { standing, term: 0, resign, ended }, ElectorChannels { publish, resigned, end })
    }

    #[cfg(test)]
    fn run<S: lease_lock::LeaseLock>(elector: Elector<S>) -> Self {
        let (election, ElectorChannels { publish, resigned, end }) = Self::wired();
        tokio::spawn(async move {
            elector.run(publish, resigned).await;
            end.send(()).unwrap_or_default();
        });
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

    /// Waits until this process does not lead any more, if only for a moment since [`Election::won`]. Cancel safe.
    ///
    /// # Errors
    /// If the elector has ended: the caller leads for the rest of its term at most, and never again.
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

    /// Who holds the Lease as last seen.
    pub fn leader(&self) -> Option<String> {
        self.standing.borrow().leader.clone()
    }

    /// The uid of the Lease as last seen: no other installation has it.
    pub fn lease_uid(&self) -> Option<String> {
        self.standing.borrow().lease_uid.clone()
    }

    /// What to check before each write of the term that [`Election::won`] returned last: a process that was stopped and
    /// wakes up after others took over must not write.
    pub fn leadership(&self) -> Leadership {
        Leadership { standing: self.standing.clone(), term: self.term, within: None }
    }

    /// Gives the Lease up, so that another one can lead at once, and ends. Takes some seconds at most if the API server
    /// does not answer. The caller has stopped writing.
    pub async fn resign(self) {
        // Fails if the elector has ended already: then there is nothing to give up.
        self.resign.send(()).unwrap_or_default();
        if let Err(error) = self.ended.await.map_err(|_| ElectionEnded) {
            tracing::error!(%error, "the Lease was not given up");
        }
    }
}

/// Carries out `work` on a runtime of its own, beside everything else.
fn on_a_thread(work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("election".to_owned()).spawn(move || runtime.block_on(work))?;
    Ok(())
}

impl Leadership {
    /// One that lasts until then.
    #[cfg(test)]
    pub(crate) fn until(until: Instant) -> Self {
        let standing = LeaderState { term: 1, until: Some(until), ..LeaderState::default() };
        Self { standing: watch::channel(standing).1, term: 1, within: None }
    }

    /// One that holds as long as both do.
    #[must_use]
    pub fn within(self, other: &Self) -> Self {
        Self { within: Some(Arc::new(other.clone())), ..self }
    }

    /// Whether the term still lasts, by the monotonic clock.
    pub fn holds(&self) -> bool {
        self.remaining().is_some()
    }

    /// How long the term lasts unless it is renewed: no write that is sent now may take longer. None if it is over.
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
