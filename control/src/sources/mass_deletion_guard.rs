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
//! Held back are Services, EndpointSlices and Nodes, and of a Karmada control plane MultiClusterServices, their templates,
//! Works and Clusters. Namespaces and pools are believed: without them nothing that is published is taken away. So are
//! imported slices and bindings, which tell again what Works tell. It must not know how the objects are used; time is given
//! to it.

mod kinds;
mod pending;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use self::kinds::{CollectedWorks, Guarded, ServiceWorks, Templates};
use self::pending::Doubt;
use crate::api::karmada::{Cluster, MultiClusterService};
use crate::api::store::{Change, Delta, Objects};

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
    /// As `Service`, or which Services.
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
    /// By kind.
    doubts: BTreeMap<&'static str, Doubt>,
}

impl Guard {
    /// Doubts a list for as long as `hold`.
    pub fn new(hold: Duration) -> Self {
        Self { hold, doubts: BTreeMap::new() }
    }

    /// Judges what the source says, given what the store has. The answer is to be applied to the store before the next
    /// change is judged.
    pub fn admit(&mut self, change: Change, objects: &Objects, now: Instant) -> Admitted {
        match change {
            Change::Services(delta) => self.judge::<Service>(delta, objects, now),
            Change::Slices(delta) => self.judge::<EndpointSlice>(delta, objects, now),
            Change::Nodes(delta) => self.judge::<Node>(delta, objects, now),
            Change::MultiClusterServices(delta) => self.judge::<MultiClusterService>(delta, objects, now),
            Change::Templates(delta) => self.judge::<Templates>(delta, objects, now),
            Change::CollectedWorks(delta) => self.judge::<CollectedWorks>(delta, objects, now),
            Change::ServiceWorks(delta) => self.judge::<ServiceWorks>(delta, objects, now),
            Change::Clusters(delta) => self.judge::<Cluster>(delta, objects, now),
            believed @ (Change::Namespaces(_)
            | Change::Pools(_)
            | Change::Imported(_)
            | Change::Bindings(_)) => Admitted::Whole(believed),
        }
    }

    /// When [`release`](Self::release) has something to say, if nothing else happens before.
    pub fn due(&self) -> Option<Instant> {
        self.doubts.values().map(|doubt| doubt.until).min()
    }

    /// Believes the lists whose time is up: what they lack is gone, object by object.
    pub fn release(&mut self, now: Instant) -> Vec<Change> {
        let up = self.doubts.extract_if(.., |_, doubt| doubt.until <= now);
        up.flat_map(|(_, doubt)| doubt.believe()).collect()
    }

    /// What is held back now, by kind.
    pub fn holding(&self) -> Vec<Held> {
        self.doubts.values().map(Doubt::held).collect()
    }

    fn judge<T: Guarded>(&mut self, delta: Delta<T::Object>, objects: &Objects, now: Instant) -> Admitted {
        let mut doubt = self.doubts.remove(T::KIND);
        let admitted = admitted::<T>(delta, &mut doubt, objects, (self.hold, now));
        self.doubts.extend(doubt.map(|doubt| (T::KIND, doubt)));
        admitted
    }
}

fn admitted<T: Guarded>(
    delta: Delta<T::Object>,
    doubt: &mut Option<Doubt>,
    objects: &Objects,
    (hold, now): (Duration, Instant),
) -> Admitted {
    let listed = match delta {
        Delta::All(listed) => listed,
        Delta::Put(_) | Delta::Gone { .. } => {
            pending::settle::<T>(doubt, &delta);
            return Admitted::Whole(T::change(delta));
        }
    };
    let kept = pending::judge::<T>(doubt, &listed, objects, hold, now);
    if kept.is_empty() {
        return Admitted::Whole(T::change(Delta::All(listed)));
    }
    Admitted::Completed(T::change(Delta::All(listed.into_iter().chain(kept).collect())))
}

#[cfg(test)]
mod tests;
