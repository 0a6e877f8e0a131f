//! Interner of node and zone names: a hundred thousand endpoints share the names of a few thousand nodes.

use std::collections::HashSet;
use std::sync::Arc;

/// Number of names below which unused ones are not removed.
const FEW: usize = 1024;

/// Names in use, and some that no longer are.
#[derive(Clone, Debug)]
pub(in crate::projection) struct NameInterner {
    seen: HashSet<Arc<str>>,
    /// Number of names at which unused ones are removed.
    crowd: usize,
}

impl Default for NameInterner {
    fn default() -> Self {
        Self { seen: HashSet::new(), crowd: FEW }
    }
}

impl NameInterner {
    pub(in crate::projection) fn share(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.seen.get(name) {
            return known.clone();
        }
        if self.seen.len() >= self.crowd {
            self.seen.retain(|name| Arc::strong_count(name) > 1);
            self.crowd = FEW.max(2 * self.seen.len());
        }
        let new: Arc<str> = name.into();
        self.seen.insert(new.clone());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_use_are_shared_and_those_of_nodes_long_gone_are_forgotten() {
        let mut names = NameInterner::default();
        let kept = names.share("kept");
        for number in 0..10 * FEW {
            drop(names.share(&format!("node-{number}")));
        }
        assert!(Arc::ptr_eq(&kept, &names.share("kept")));
        assert!(names.seen.len() <= FEW, "{}", names.seen.len());
    }
}
