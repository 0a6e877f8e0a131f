//! By which names an installation knows what is its own. It must not know what is published.

use std::sync::Arc;

use super::Exposed;
use crate::controller::names::{self, FIELD_MANAGER, FINALIZER, OUR_CLASS, SHARED_FINALIZER};

/// How Services are marked as one installation's. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishOptions {
    finalizer: Arc<str>,
    field_manager: Arc<str>,
    shared_finalizer: bool,
}

impl PublishOptions {
    /// Those of the installation with this `loadBalancerClass`. With `shared_finalizer` it also holds the finalizer of cloud
    /// providers' service controllers, for tools that look for it; without, that one is never touched, not even where
    /// an earlier configuration of ours has left it.
    pub fn new(class: &str, shared_finalizer: bool) -> Self {
        let named = |plain: &str| names::of_class(plain, class).into();
        Self { finalizer: named(FINALIZER), field_manager: named(FIELD_MANAGER), shared_finalizer }
    }

    /// Keeps a Service until its addresses are free again, and says that it is this installation's.
    pub fn finalizer(&self) -> &str {
        &self.finalizer
    }

    /// Who the installation is in `metadata.managedFields` of Services and AddressPools.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Those that the object may have: the shared one is for Services, where tools look for it.
    pub(in crate::controller) fn finalizers_of(&self, object: &Exposed) -> impl Iterator<Item = &str> {
        let (own, all) = (self.finalizer(), matches!(object, Exposed::Service(_)));
        self.finalizers().filter(move |finalizer| all || *finalizer == own)
    }

    /// All finalizers that its Services have.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        [self.finalizer()].into_iter().chain(self.shared_finalizer.then_some(SHARED_FINALIZER))
    }

    /// Whether the finalizer is another installation's.
    pub(super) fn is_neighbours(&self, finalizer: &str) -> bool {
        finalizer != self.finalizer() && names::is_finalizer(finalizer)
    }
}

/// Those of the class that an installation has if it was not given another.
impl Default for PublishOptions {
    fn default() -> Self {
        Self::new(OUR_CLASS, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::projection;

    #[test]
    fn the_default_class_has_the_plain_names() {
        let options = PublishOptions::new(&projection::Options::default().load_balancer_class, false);
        assert_eq!(options, PublishOptions::default());
        assert_eq!(options.finalizer(), "sheave.dev/load-balancer-cleanup");
        assert_eq!(options.field_manager(), "sheave");
        assert_eq!(options.finalizers().collect::<Vec<_>>(), [FINALIZER]);
        assert_eq!(
            PublishOptions::new(OUR_CLASS, true).finalizers().collect::<Vec<_>>(),
            [FINALIZER, SHARED_FINALIZER]
        );
    }

    #[test]
    fn another_class_has_names_that_never_change() {
        let options = PublishOptions::new("foobar", false);
        assert_eq!(options.finalizer(), "sheave.dev/load-balancer-cleanup-bf9cf968");
        assert_eq!(options.field_manager(), "sheave-bf9cf968");
    }

    #[test]
    fn installations_know_each_other() {
        let (one, other) =
            (PublishOptions::new(OUR_CLASS, true), PublishOptions::new("example.com/inside", true));
        assert!(one.is_neighbours(other.finalizer()) && other.is_neighbours(one.finalizer()));
        for options in [&one, &other] {
            assert!(!options.is_neighbours(options.finalizer()) && !options.is_neighbours(SHARED_FINALIZER));
            assert!(!options.is_neighbours("sheave.dev/load-balancer-cleanups"));
        }
    }
}
