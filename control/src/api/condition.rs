//! A condition of an API object, and how it is updated.

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::text::{MAX_MESSAGE_BYTES, cut_end};

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredCondition {
    /// The condition's type.
    pub kind: &'static str,
    /// Its status: `True` or `False`.
    pub holds: bool,
    /// A CamelCase token.
    pub reason: &'static str,
    /// Message for users. Equal states have equal messages, so that a condition does not change without cause.
    pub message: String,
}

impl DesiredCondition {
    /// A condition that is true.
    pub(crate) fn yes(kind: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind, holds: true, reason, message }.bounded()
    }

    /// A condition that is false.
    pub(crate) fn no(kind: &'static str, reason: &'static str, message: String) -> Self {
        Self { kind, holds: false, reason, message }.bounded()
    }

    /// API servers accept 32768 bytes, but an object has room for only a few such messages.
    fn bounded(mut self) -> Self {
        cut_end(&mut self.message, MAX_MESSAGE_BYTES);
        self
    }

    /// The status as the API spells it.
    pub fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }

    /// Whether `conditions` contain exactly this one of its type, apart from the time. `generation` is the object's.
    pub fn stands_in(&self, conditions: &[Condition], generation: Option<i64>) -> bool {
        let named = |condition: &&Condition| condition.type_ == self.kind;
        self.is_meant_by(conditions, generation)
            && conditions.iter().filter(named).all(|stands| stands.message == self.message)
    }

    /// Like [`Self::stands_in`], but ignores the message.
    pub fn is_meant_by(&self, conditions: &[Condition], generation: Option<i64>) -> bool {
        let mut same_type = conditions.iter().filter(|condition| condition.type_ == self.kind);
        let Some(stands) = same_type.next() else { return false };
        same_type.next().is_none()
            && stands.status == self.status()
            && stands.reason == self.reason
            && (generation.is_none() || stands.observed_generation == generation)
    }

    /// The condition to write; its time changes only with its status. API servers store whole seconds in a Service's conditions,
    /// so the time is truncated to seconds: a repeated write must be identical.
    pub fn stamped(self, before: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
        let status = self.status();
        let since = before
            .iter()
            .find(|condition| condition.type_ == self.kind && condition.status == status)
            .map_or(now, |condition| condition.last_transition_time.0);
        Condition {
            type_: self.kind.into(),
            status: status.into(),
            reason: self.reason.into(),
            message: self.message,
            observed_generation: generation,
            last_transition_time: Time(whole_seconds(since)),
        }
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    let rounding = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor);
    time.round(rounding).unwrap_or(time)
}
