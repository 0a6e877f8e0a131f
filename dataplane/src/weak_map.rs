//! What all frontends of a Service share, for as long as any of them has it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use sheave_model::{Frontend, FrontendSource};

/// Something of each Service that has frontends.
#[derive(Debug)]
pub(crate) struct OfServices<T> {
    known: HashMap<ServiceId, Weak<T>>,
    /// So many were left when those that are gone were last removed.
    left: usize,
}

type ServiceId = (FrontendSource, Arc<str>, Arc<str>);

impl<T> Default for OfServices<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), left: 0 }
    }
}

impl<T> OfServices<T> {
    /// That of a frontend's Service.
    pub(crate) fn get(&self, frontend: &Frontend) -> Option<Arc<T>> {
        self.known.get(&id(frontend)).and_then(Weak::upgrade)
    }

    /// That of a frontend's Service, made by `new` if there is none.
    pub(crate) fn get_or(&mut self, frontend: &Frontend, new: impl FnOnce() -> T) -> Arc<T> {
        if let Some(known) = self.get(frontend) {
            return known;
        }
        // Not at each of thousands that come together.
        if self.known.len() > 2 * self.left {
            self.known.retain(|_, one| one.strong_count() > 0);
            self.left = self.known.len();
        }
        let made = Arc::new(new());
        self.known.insert(id(frontend), Arc::downgrade(&made));
        made
    }

    /// Whoever asks next gets a new one.
    pub(crate) fn forget(&mut self, frontend: &Frontend) {
        self.known.remove(&id(frontend));
    }
}

fn id(frontend: &Frontend) -> ServiceId {
    let service = &frontend.service;
    (frontend.source, Arc::clone(&service.namespace), Arc::clone(&service.name))
}
