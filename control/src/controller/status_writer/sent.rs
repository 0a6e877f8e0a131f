//! Writes of statuses that were sent and that the cache does not show yet, whether they are answered or not. What they publish belongs
//! to their objects, so that no other object is given it meanwhile.
//!
//! Decisions and writes exclude each other. While a term decides, nothing is sent, and before a write is sent, everything that was
//! decided has arrived: otherwise an address could be given away between the decision and a write that was queued before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::next_step::WriteStep;
use super::queue::WriteJob;
use super::target::WriteTarget;
use crate::api::store::{Objects, ServiceKey};
use crate::controller::api_writer::ApiAnswer;
use crate::controller::gateway_status::GatewayApiKey;
use crate::projection::Published;

/// How long after it was sent a write without an answer may take effect: API servers give up after a minute (`--request-timeout`).
pub(super) const LANDS_WITHIN: Duration = Duration::from_secs(60);
/// How often to look whether the cache is newer than that.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Writes of all writers of a term. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct SentStatuses(Arc<SentShared>);

#[derive(Debug, Default)]
struct SentShared {
    state: Mutex<SentLedger>,
    /// Number of complete decisions.
    decided: watch::Sender<u64>,
    /// A write that published something was rejected.
    rejected: Notify,
}

#[derive(Debug, Default)]
struct SentLedger {
    /// Number of decisions under way: one, or none.
    deciding: usize,
    writes: BTreeMap<ServiceKey, Vec<SentWrite>>,
    next: u64,
}

#[derive(Debug)]
struct SentWrite {
    id: WriteId,
    uid: String,
    /// Version of the object in the cache as it was sent.
    base: String,
    published: Published,
    sent: Instant,
    fate: Fate,
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// There is no answer yet, or none will come.
    Unknown,
    /// It resulted in this version.
    Done(String),
}

/// Next action of a writer.
#[derive(Debug)]
#[must_use]
pub(super) enum NextSend {
    /// Send this write; those that publish something have an identity.
    Write(WriteJob, Option<WriteId>),
    /// Hold this write back: until then, an earlier one without an answer may take effect.
    Wait(WriteJob, Instant),
}

/// Identity of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteId(u64);

/// A decision under way, until it is dropped.
#[derive(Debug)]
pub struct Deciding(Arc<SentShared>);

impl Drop for Deciding {
    fn drop(&mut self) {
        self.0.lock().deciding -= 1;
        self.0.decided.send_modify(|decisions| *decisions += 1);
    }
}

impl SentShared {
    fn lock(&self) -> MutexGuard<'_, SentLedger> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SentStatuses {
    /// Starts a decision: until the result is dropped, no status is sent.
    pub fn decide(&self) -> Deciding {
        self.0.lock().deciding += 1;
        Deciding(Arc::clone(&self.0))
    }

    /// What writes publish beyond the objects in the cache. `heard` is when the API server of an object was last heard, and `knows_all`
    /// is whether the cache has all objects of its kind: otherwise one that it lacks may exist, and its writes may take effect.
    pub fn unseen(
        &self,
        objects: &Objects,
        heard: impl Fn(&ServiceKey) -> Option<Instant>,
        knows_all: impl Fn(&ServiceKey) -> bool,
    ) -> BTreeMap<ServiceKey, Published> {
        let mut unseen = BTreeMap::new();
        self.0.lock().writes.retain(|key, writes| {
            let Some((metadata, seen)) = Published::of(key, objects) else { return !knows_all(key) };
            let version = metadata.resource_version.as_deref().unwrap_or_default();
            let heard = || heard(key);
            writes.retain(|write| {
                metadata.uid.as_deref() == Some(&write.uid) && !write.is_over(version, heard)
            });
            let mut all = Published::default();
            writes.iter().for_each(|write| all.add_all(write.published.clone()));
            let beyond = all.beyond(&seen);
            if !beyond.is_empty() {
                unseen.insert(key.clone(), beyond);
            }
            !writes.is_empty()
        });
        unseen
    }

    /// When to call [`Self::unseen`] again although nothing has changed.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let state = self.0.lock();
        let unknown = state.writes.values().flatten().filter(|write| write.fate == Fate::Unknown);
        unknown.map(|write| (write.sent + LANDS_WITHIN).max(now + LOOK_AGAIN)).min()
    }

    /// Waits until a write that published something was rejected. Cancel safe.
    pub async fn rejected(&self) {
        self.0.rejected.notified().await;
    }

    /// Changes with each decision that is complete.
    pub(super) fn decisions(&self) -> watch::Receiver<u64> {
        self.0.decided.subscribe()
    }

    /// The next write, unless a decision is under way. `next` is called with everything decided in its queue.
    pub(super) fn send(&self, now: Instant, next: impl FnOnce() -> Option<WriteJob>) -> Option<NextSend> {
        let mut state = self.0.lock();
        if state.deciding > 0 {
            return None;
        }
        let job = next()?;
        if let Some(until) = state.lands_until(&job, now) {
            return Some(NextSend::Wait(job, until));
        }
        let id = state.note(&job, now);
        Some(NextSend::Write(job, id))
    }

    /// Records the answer to a write.
    pub(super) fn answered(&self, id: Option<WriteId>, target: &WriteTarget, answer: &ApiAnswer) {
        let Some((id, key)) = id.zip(service_key(target)) else { return };
        let mut state = self.0.lock();
        let Some(writes) = state.writes.get_mut(key) else { return };
        match answer {
            ApiAnswer::Done(body) => {
                let version = version_of(body);
                let number = version.as_deref().and_then(|version| version.parse::<u64>().ok());
                // Versions increase, unless the server was restored to a time before those writes.
                let is_lost = |write: &SentWrite| match (&write.fate, number) {
                    (Fate::Done(before), Some(number)) => before.parse::<u64>().is_ok_and(|it| it > number),
                    _ => false,
                };
                writes.retain(|write| write.id == id || !is_lost(write));
                for write in writes.iter_mut().filter(|write| write.id == id) {
                    write.fate = version.clone().map_or(Fate::Unknown, Fate::Done);
                }
            }
            // These may have taken effect.
            ApiAnswer::Failed(_) | ApiAnswer::Busy { .. } | ApiAnswer::Unreachable { .. } => {}
            ApiAnswer::Gone
            | ApiAnswer::Undefined(_)
            | ApiAnswer::Exists
            | ApiAnswer::Stale
            | ApiAnswer::Conflict(_)
            | ApiAnswer::Forbidden(_)
            | ApiAnswer::Refused(_)
            | ApiAnswer::Unauthenticated(_) => {
                writes.retain(|write| write.id != id);
                self.0.rejected.notify_one();
            }
        }
    }
}

impl SentLedger {
    /// Until when another write of the same object may take effect, if the object is released by this one: a status without a finalizer
    /// would never be cleared.
    fn lands_until(&self, job: &WriteJob, now: Instant) -> Option<Instant> {
        let WriteStep::RemoveFinalizer(_) = &job.step else { return None };
        let writes = self.writes.get(service_key(&job.target)?)?;
        let unknown = writes.iter().filter(|write| write.uid == job.uid && write.fate == Fate::Unknown);
        unknown.map(|write| write.sent + LANDS_WITHIN).max().filter(|until| *until > now)
    }

    /// Records a write if it publishes anything.
    fn note(&mut self, job: &WriteJob, sent: Instant) -> Option<WriteId> {
        let key = service_key(&job.target)?;
        let (WriteStep::ApplyStatus(body) | WriteStep::RemoveRest(body)) = &job.step else { return None };
        let published = Published::written(key.source, &body["status"]);
        if published.is_empty() {
            return None;
        }
        self.next += 1;
        let (id, fate) = (WriteId(self.next), Fate::Unknown);
        let (uid, base) = (job.uid.clone(), job.cached.clone());
        let write = SentWrite { id, uid, base, published, sent, fate };
        self.writes.entry(key.clone()).or_default().push(write);
        Some(id)
    }
}

impl SentWrite {
    /// Whether a cache with this version of the object shows the write or a later one, or shows that it has failed.
    fn is_over(&self, cached: &str, heard: impl FnOnce() -> Option<Instant>) -> bool {
        match &self.fate {
            Fate::Unknown => heard().is_some_and(|heard| heard >= self.sent + LANDS_WITHIN),
            Fate::Done(version) => match [cached, version, &self.base].map(str::parse::<u64>) {
                // An older version than before shows that the server was restored to a time before the write.
                [Ok(cached), Ok(version), Ok(base)] => cached >= version || cached < base,
                _ => cached != self.base,
            },
        }
    }
}

fn service_key(target: &WriteTarget) -> Option<&ServiceKey> {
    match target {
        WriteTarget::Service(key) | WriteTarget::GatewayApi(GatewayApiKey::Gateway(key)) => Some(key),
        WriteTarget::Pool(_) | WriteTarget::Export(_) | WriteTarget::GatewayApi(_) => None,
    }
}

fn version_of(body: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(body).ok()?;
    String::deserialize(&object["metadata"]["resourceVersion"]).ok()
}

#[cfg(test)]
mod tests;
