//! Exports in the queue: when to list what is there, and what follows from the answer to a write.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use crate::api::store::ServiceKey;
use crate::backoff::Backoff;
use crate::controller::api_writer::ApiAnswer;
use crate::controller::karmada_export::{ExportDiff, ExportList, ExportObject, ExportStep};
use crate::controller::status_writer::write_notice::WriteNotice;

/// What others changed or deleted of ours is seen after this at the latest.
const LIST_AGAIN: Duration = Duration::from_secs(600);
/// What was refused is tried again after this at the latest: a definition or a right may be there by then.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// What is being deleted is looked at again after this: Karmada has finalizers of its own there.
const GOING: Duration = Duration::from_secs(5);

/// All exports that are desired, and what is known of those that are there.
pub(super) struct Exports {
    pub(super) diff: ExportDiff,
    /// When to list the next time; none before the first.
    list_at: Option<Instant>,
    listing: bool,
    /// Whether a list has succeeded.
    listed: bool,
    /// A list and writes are never under way together, so that the list shows what was written.
    writing: HashSet<ServiceKey>,
    backoff: Backoff,
    /// What was reported, and has not gone since.
    reported: BTreeSet<String>,
    /// What was met since the last list.
    met: BTreeSet<String>,
    pub(super) notices: Vec<WriteNotice>,
}

impl Default for Exports {
    fn default() -> Self {
        Self {
            diff: ExportDiff::default(),
            list_at: None,
            listing: false,
            listed: false,
            writing: HashSet::new(),
            backoff: Backoff::new(Duration::from_secs(1), TRY_AGAIN),
            reported: BTreeSet::new(),
            met: BTreeSet::new(),
            notices: Vec::new(),
        }
    }
}

impl Exports {
    pub(super) fn start_list(&mut self, now: Instant) -> bool {
        let start = self.may_list() && self.is_list_due(now);
        self.listing |= start;
        start
    }

    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.list_at.filter(|_| self.may_list())
    }

    fn may_list(&self) -> bool {
        !self.listing && self.writing.is_empty() && self.diff.keys().next().is_some()
    }

    fn is_list_due(&self, now: Instant) -> bool {
        self.list_at.is_none_or(|at| at <= now)
    }

    pub(super) fn on_list(&mut self, listed: ExportList, manager: &str, now: Instant) {
        self.listing = false;
        match listed {
            Ok(all) => {
                self.diff.replace(all, manager);
                self.listed = true;
                self.list_at = Some(now + LIST_AGAIN);
                // What was not met again has gone.
                self.reported = std::mem::take(&mut self.met);
                return;
            }
            Err((part, ApiAnswer::Forbidden(message))) => self.report(WriteNotice::ExportForbidden {
                verb: "list",
                resource: part.definition(),
                message,
            }),
            Err((part, ApiAnswer::Undefined(_) | ApiAnswer::Gone)) => {
                self.report(WriteNotice::ExportUndefined { definition: part.definition() });
            }
            Err((part, answer)) => {
                tracing::debug!(resource = part.definition(), %answer, "could not be listed: tried again later");
            }
        }
        self.list_at = Some(now + self.backoff.pause(None));
    }

    /// The next write for this MultiClusterService, which is then under way; none if there is none, or a list comes first,
    /// after which all are looked at again.
    pub(super) fn start_write(&mut self, key: &ServiceKey, now: Instant) -> Option<ExportStep> {
        if !self.listed || self.listing || self.is_list_due(now) || self.writing.contains(key) {
            return None;
        }
        match self.diff.next_step(key) {
            ExportStep::Nothing => self.diff.close(key),
            ExportStep::Wait => self.give_up(key, GOING, now),
            ExportStep::Taken(part) => {
                self.report(WriteNotice::ExportTaken { object: key.object(), what: what(part, key) });
                self.give_up(key, TRY_AGAIN, now);
            }
            step => {
                self.writing.insert(key.clone());
                return Some(step);
            }
        }
        None
    }

    /// When to look at it again, if not after a list.
    pub(super) fn on_answer(
        &mut self,
        key: &ServiceKey,
        step: &ExportStep,
        answer: ApiAnswer,
        manager: &str,
        now: Instant,
    ) -> Option<Instant> {
        self.writing.remove(key);
        let (part, verb) = step.write()?;
        let deleted = verb == "delete";
        match answer {
            ApiAnswer::Done(_) | ApiAnswer::Gone | ApiAnswer::Undefined(_) if deleted => {
                self.diff.remove(key, part);
                self.backoff.reset();
                return Some(now);
            }
            ApiAnswer::Done(body) => {
                self.backoff.reset();
                if let Ok(object) = serde_json::from_slice(&body) {
                    self.diff.put(part, object, manager);
                    return Some(now);
                }
            }
            ApiAnswer::Failed(why) => {
                tracing::debug!(object = %key.object(), why, "an export could not be written: retrying later");
                return Some(now + self.backoff.pause(None));
            }
            // The whole queue pauses.
            ApiAnswer::Unreachable { .. } => return Some(now),
            ApiAnswer::Forbidden(message) => {
                self.report(WriteNotice::ExportForbidden { verb, resource: part.definition(), message });
                self.give_up(key, TRY_AGAIN, now);
                return None;
            }
            ApiAnswer::Refused(message) => {
                let (object, what) = (key.object(), what(part, key));
                self.report(WriteNotice::ExportRefused { object, what, message });
                self.give_up(key, TRY_AGAIN, now);
                return None;
            }
            // Another object, none, or no such kind any more.
            _ => {}
        }
        // A list shows what exists.
        let pause = self.backoff.pause(None);
        self.give_up(key, pause, now);
        None
    }

    /// Leaves it as it is until the next list, which comes within `pause`.
    fn give_up(&mut self, key: &ServiceKey, pause: Duration, now: Instant) {
        self.diff.close(key);
        self.list_at = self.list_at.map(|at| at.min(now + pause));
    }

    /// Reports what is new.
    fn report(&mut self, notice: WriteNotice) {
        // Messages of API servers may name versions and times: what differs in them alone is the same.
        let about = match &notice {
            WriteNotice::ExportUndefined { definition } => definition.clone(),
            WriteNotice::ExportForbidden { verb, resource, .. } => format!("{verb} {resource}"),
            WriteNotice::ExportRefused { object, what, .. } => format!("{object} {what}"),
            WriteNotice::ExportTaken { object, what } => format!("{object} {what} taken"),
            other => other.to_string(),
        };
        self.met.insert(about.clone());
        if self.reported.insert(about) {
            self.notices.push(notice);
        }
    }
}

/// Kind and name.
fn what(part: ExportObject, key: &ServiceKey) -> String {
    format!("{} {}", part.kind(), part.name(key))
}
