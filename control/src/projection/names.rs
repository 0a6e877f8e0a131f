//! Shares the text of node and zone names between endpoints: a hundred thousand endpoints name a few thousand nodes.

use std::collections::HashSet;
use std::sync::Arc;

/// Every name seen so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    seen: HashSet<Arc<str>>,
}

impl Names {
    pub(super) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.seen.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.seen.insert(new.clone());
        new
    }

    /// Forgets the names, so that those of nodes long gone do not stay for ever.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }
}
