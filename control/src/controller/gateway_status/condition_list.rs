//! Conditions in a list that other controllers share.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::condition::DesiredCondition;
use crate::api::names::{ANNOUNCED, CONDITIONS, PORTS_PUBLISHED};
use crate::controller::status_writer::next_step::Urgency;

/// Largest number of conditions in one list, which the API server enforces.
const MOST: usize = 8;

/// The desired conditions of a list, standard ones first.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConditionList<'a> {
    /// The list as it is.
    pub(super) before: &'a [Condition],
    /// The desired conditions.
    pub(super) desired: &'a [DesiredCondition],
    /// Generation that they were computed from.
    pub(super) generation: Option<i64>,
}

impl<'a> ConditionList<'a> {
    /// The conditions to write. A condition of a later generation is repeated, not overwritten.
    pub(super) fn written(self, now: Timestamp) -> Vec<Condition> {
        let written = |desired: &DesiredCondition| match self.later(desired) {
            Some(later) => later.clone(),
            None => desired.clone().stamped(self.before, self.generation, now),
        };
        self.fitting().map(written).collect()
    }

    /// Whether the list has exactly the desired conditions among those of our names, apart from the times.
    pub(super) fn stands(self) -> bool {
        self.fitting().all(|it| self.later(it).is_some() || it.stands_in(self.before, self.generation))
    }

    /// When the list has to be written: at once for another generation, soon for another status or reason, and later for texts.
    pub(super) fn urgency(self) -> Urgency {
        let mut status = false;
        let mut texts = false;
        let mut announcement = false;
        for desired in self.fitting().filter(|it| self.later(it).is_none()) {
            if desired.stands_in(self.before, self.generation) {
                continue;
            }
            let stands = self.before.iter().find(|it| it.type_ == desired.kind);
            if stands.and_then(|it| it.observed_generation) != self.generation {
                return Urgency::Now;
            }
            // Processes read the message of that one.
            status |= desired.kind == PORTS_PUBLISHED || !desired.is_meant_by(self.before, self.generation);
            if desired.kind == ANNOUNCED { announcement = true } else { texts = true }
        }
        if status {
            return Urgency::Status;
        }
        if announcement && !texts { Urgency::Settled } else { Urgency::Minor }
    }

    /// The desired conditions that fit in the list: all standard ones, and as many of our own as others leave room for.
    fn fitting(self) -> impl Iterator<Item = &'a DesiredCondition> {
        let is_ours = |it: &&Condition| {
            is_own(&it.type_) || self.desired.iter().any(|desired| desired.kind == it.type_)
        };
        let others = self.before.iter().filter(|it| !is_ours(it)).count();
        let room = MOST.saturating_sub(others);
        let fits = move |(index, it): &(usize, &DesiredCondition)| *index < room || !is_own(it.kind);
        self.desired.iter().enumerate().filter(fits).map(|(_, it)| it)
    }

    /// The condition of this type, if it is of a later generation.
    fn later(self, desired: &DesiredCondition) -> Option<&'a Condition> {
        self.before.iter().find(|it| {
            it.type_ == desired.kind
                && it.observed_generation.is_some()
                && it.observed_generation > self.generation
        })
    }
}

/// Whether a condition has one of our names, which no standard has.
pub(super) fn is_own(kind: &str) -> bool {
    CONDITIONS.contains(&kind)
}

/// Orders urgencies: the more urgent of two.
pub(super) fn more_urgent(one: Urgency, other: Urgency) -> Urgency {
    let rank = |urgency: Urgency| match urgency {
        Urgency::Now => 0,
        Urgency::Status => 1,
        Urgency::Minor => 2,
        Urgency::Settled => 3,
    };
    if rank(one) <= rank(other) { one } else { other }
}
