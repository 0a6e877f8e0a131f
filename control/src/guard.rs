//! Doubts lists that lack nearly everything that was there, between the source and the store.
//!
//! An API server may answer with an empty list although nobody deleted anything: one that came back before its storage
//! did, one behind the wrong address, one whose permissions or selectors were changed by mistake. To believe it takes every
//! address away at once; to wait a minute costs little. So what such a list has is believed at once, and what it lacks stays
//! for a while: until a newer list or event has it again, until it is deleted by name, or until the time is up and the
//! newest list still lacks it.
//!
//! Deletions by name are believed, however many come at once. Each says that the server had the object, knows its last
//! content and was told to delete it: that is no slip of a cache, and no list that comes a minute later takes it back. A
//! namespace that is deleted, or a CRD, is meant; a controller that has gone wild is not stopped by a gateway which looks
//! away for a minute, while endpoints that are gone in truth would be sent clients meanwhile.
//!
//! Held back are Services, EndpointSlices and Nodes. Namespaces and pools are believed: without them nothing that is
//! published is taken away. It must not know how the objects are used; time is given to it.

mod doubt;
mod kinds;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use self::doubt::Doubt;
use self::kinds::Guarded;
use crate::store::{Change, Delta, Objects};

/// What to do with a change. Either way it is to be applied to the store.
#[derive(Clone, Debug)]
#[must_use]
pub enum Admitted {
    /// The change as it came.
    Whole(Change),
    /// The list, completed by the objects that it lacks and that stay for now.
    Completed(Change),
}

impl Admitted {
    /// What is to be applied.
    pub fn into_change(self) -> Change {
        match self {
            Self::Whole(change) | Self::Completed(change) => change,
        }
    }
}

/// One kind whose newest list is doubted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// `Service`, `EndpointSlice` or `Node`.
    pub kind: &'static str,
    /// Objects that there were when the newest list came.
    pub there: usize,
    /// Objects that the newest list had.
    pub listed: usize,
    /// Objects that are kept although no list has them.
    pub kept: usize,
    /// When the doubt began.
    pub since: Instant,
    /// When the list is believed.
    pub until: Instant,
}

/// The guard of one source.
#[derive(Debug)]
pub struct Guard {
    hold: Duration,
    services: Option<Doubt>,
    slices: Option<Doubt>,
    nodes: Option<Doubt>,
}

impl Guard {
    /// Doubts a list for as long as `hold`.
    pub fn new(hold: Duration) -> Self {
        Self { hold, services: None, slices: None, nodes: None }
    }

    /// Judges what the source says, given what the store has. The answer is to be applied to the store before the next
    /// change is judged.
    pub fn admit(&mut self, change: Change, objects: &Objects, now: Instant) -> Admitted {
        match change {
            Change::Services(delta) => {
                admitted(delta, &mut self.services, objects, (self.hold, now), Change::Services)
            }
            Change::Slices(delta) => {
                admitted(delta, &mut self.slices, objects, (self.hold, now), Change::Slices)
            }
            Change::Nodes(delta) => {
                admitted(delta, &mut self.nodes, objects, (self.hold, now), Change::Nodes)
            }
            believed => Admitted::Whole(believed),
        }
    }

    /// When [`release`](Self::release) has something to say, if nothing else happens before.
    pub fn due(&self) -> Option<Instant> {
        [&self.services, &self.slices, &self.nodes].into_iter().flatten().map(|doubt| doubt.until).min()
    }

    /// Believes the lists whose time is up: what they lack is gone, object by object.
    pub fn release(&mut self, now: Instant) -> Vec<Change> {
        let mut changes = Vec::new();
        release::<Service>(&mut self.services, now, Change::Services, &mut changes);
        release::<EndpointSlice>(&mut self.slices, now, Change::Slices, &mut changes);
        release::<Node>(&mut self.nodes, now, Change::Nodes, &mut changes);
        changes
    }

    /// What is held back now, by kind.
    pub fn holding(&self) -> Vec<Held> {
        let held = [
            self.services.as_ref().map(Doubt::held::<Service>),
            self.slices.as_ref().map(Doubt::held::<EndpointSlice>),
            self.nodes.as_ref().map(Doubt::held::<Node>),
        ];
        held.into_iter().flatten().collect()
    }
}

fn admitted<T: Guarded>(
    delta: Delta<T>,
    doubt: &mut Option<Doubt>,
    objects: &Objects,
    (hold, now): (Duration, Instant),
    change: fn(Delta<T>) -> Change,
) -> Admitted {
    let listed = match delta {
        Delta::All(listed) => listed,
        Delta::Put(_) | Delta::Gone { .. } => {
            doubt::settle(doubt, &delta);
            return Admitted::Whole(change(delta));
        }
    };
    let kept = doubt::judge(doubt, &listed, objects, hold, now);
    if kept.is_empty() {
        return Admitted::Whole(change(Delta::All(listed)));
    }
    Admitted::Completed(change(Delta::All(listed.into_iter().chain(kept).collect())))
}

fn release<T: Guarded>(
    doubt: &mut Option<Doubt>,
    now: Instant,
    change: fn(Delta<T>) -> Change,
    changes: &mut Vec<Change>,
) {
    if let Some(believed) = doubt.take_if(|doubt| doubt.until <= now) {
        believed.tell_believed::<T>();
        let gone = |(namespace, name)| change(Delta::Gone { namespace, name });
        changes.extend(believed.missing.into_iter().map(gone));
    }
}

#[cfg(test)]
mod tests;
