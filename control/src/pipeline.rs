//! Way of an object from its source to the projection, the same in gateways and in the controller: a source reads it, its guard
//! admits it, the store keeps it, and the projector computes from it.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::api::store::{Change, Objects, Store};
use crate::projection::{Options, Projection, Projector};
use crate::sources::{SourceUpdate, Sources};
use crate::time;

/// Sources, the objects from them, and the projection of these.
pub struct Pipeline {
    /// Where objects come from.
    pub sources: Sources,
    /// Objects as last known.
    pub store: Store,
    /// Computes the routing table and status from them.
    pub projector: Projector,
    /// Time of the next projection that only the time requires.
    due: Option<Instant>,
    /// Lower limit of the wait before a projection that only the time requires.
    shortest_wait: Duration,
}

impl Pipeline {
    /// Pipeline without objects.
    pub fn new(sources: Sources, options: Options, shortest_wait: Duration) -> Self {
        Self {
            sources,
            store: Store::default(),
            projector: Projector::new(options),
            due: None,
            shortest_wait,
        }
    }

    /// Waits for the next update of the sources. Cancel safe. `None` only at the end of the runtime.
    pub async fn next(&mut self) -> Option<SourceUpdate> {
        self.sources.next(self.store.objects()).await
    }

    /// Applies an update to the store, except for changes that `admit` withholds.
    pub fn take(&mut self, update: SourceUpdate, admit: impl FnMut(Change) -> Option<Change>) {
        self.sources.take(update, &mut self.store, admit);
    }

    /// Projects what has changed in the store, and what the time has changed.
    pub fn project(&mut self) -> Projection {
        let now = Timestamp::now();
        self.projector.set_now(now);
        let dirty = self.store.take_dirty();
        let projection = self.projector.project(self.store.objects(), &dirty);
        let mut classes = self.store.objects().gateway_api.classes.values();
        let is_wanted = classes.any(|class| self.projector.implements(class));
        self.sources.api_servers().for_each(|api| api.watch().set_gateways_wanted(is_wanted));
        self.due =
            projection.due.map(|due| Instant::now() + time::time_until(due, now).max(self.shortest_wait));
        projection
    }

    /// Time of the next projection even without an update.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Objects in the store.
    pub fn objects(&self) -> &Objects {
        self.store.objects()
    }
}

#[cfg(test)]
mod tests;
