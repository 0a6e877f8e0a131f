//! Ownership of marks on objects: which finalizers and conditions belong to this installation, and their names.

use std::sync::Arc;

use k8s_openapi::api::core::v1::LoadBalancerIngress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::service_object::ServiceObject;
use crate::api::names::{
    self, ANNOUNCED, CONDITIONS, FIELD_MANAGER, FINALIZER, OUR_CLASS, SHARED_FINALIZER, sets_shared_finalizer,
};

/// Marks of one installation on Services. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    finalizer: Arc<str>,
    field_manager: Arc<str>,
    gateway_field_manager: Arc<str>,
    shared_finalizer: bool,
}

impl Ownership {
    /// Marks of the installation with this `loadBalancerClass`. With `shared_finalizer` it also sets the finalizer of cloud
    /// providers' service controllers, for tools that look for it; without, it removes that finalizer only if this installation
    /// set it, under an earlier configuration.
    pub fn new(class: &str, shared_finalizer: bool) -> Self {
        let named = |plain: &str| names::of_class(plain, class).into();
        Self {
            finalizer: named(FINALIZER),
            field_manager: named(FIELD_MANAGER),
            gateway_field_manager: FIELD_MANAGER.into(),
            shared_finalizer,
        }
    }

    /// The same with the field manager of a controller of GatewayClasses.
    #[must_use]
    pub fn with_gateway_controller(self, controller: &str) -> Self {
        Self { gateway_field_manager: names::of_gateway_controller(FIELD_MANAGER, controller).into(), ..self }
    }

    /// The finalizer that keeps a Service until its addresses are released and marks it as managed by this installation.
    pub fn finalizer(&self) -> &str {
        &self.finalizer
    }

    /// The installation's field manager in `metadata.managedFields` of Services and AddressPools.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// The field manager of the statuses of the Gateway API.
    pub fn gateway_field_manager(&self) -> &str {
        &self.gateway_field_manager
    }

    /// The finalizers for this object. The shared one is only for Services, where tools look for it.
    pub(in crate::controller) fn finalizers_of(&self, object: &ServiceObject) -> impl Iterator<Item = &str> {
        let (own, all) = (self.finalizer(), matches!(object, ServiceObject::Service(_)));
        self.finalizers().filter(move |finalizer| all || *finalizer == own)
    }

    /// All finalizers of the installation's Services.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        [self.finalizer()].into_iter().chain(self.shared_finalizer.then_some(SHARED_FINALIZER))
    }

    /// The object's finalizers plus those of ours that it lacks; `None` if it has them all.
    pub(super) fn with_our_finalizers(&self, object: &ServiceObject) -> Option<Vec<String>> {
        let missing = self.finalizers_of(object).filter(|finalizer| !object.has_finalizer(finalizer));
        let missing: Vec<String> = missing.map(str::to_owned).collect();
        (!missing.is_empty()).then(|| [object.finalizers(), &missing].concat())
    }

    /// The object's finalizers without any copy of ours (API servers keep duplicates); `None` if it has none of ours. The shared
    /// finalizer alone counts as ours only if the API server records that this installation set it.
    pub(super) fn without_our_finalizers(&self, object: &ServiceObject) -> Option<Vec<String>> {
        let others = object.finalizers().iter().filter(|held| !self.goes(object, held)).cloned();
        let others: Vec<String> = others.collect();
        (others.len() < object.finalizers().len()).then_some(others)
    }

    /// Whether this finalizer is removed when the object is released.
    pub(super) fn goes(&self, object: &ServiceObject, finalizer: &str) -> bool {
        let held = object.has_finalizer(self.finalizer());
        held && self.finalizers_of(object).any(|own| own == finalizer)
            || finalizer == SHARED_FINALIZER && self.has_set_shared(object)
    }

    /// Whether the API server records that this installation set the shared finalizer.
    fn has_set_shared(&self, object: &ServiceObject) -> bool {
        object.metadata().managed_fields.iter().flatten().any(|entry| {
            entry.manager.as_deref() == Some(self.field_manager())
                && entry.fields_v1.as_ref().is_some_and(|fields| sets_shared_finalizer(&fields.0))
        })
    }

    /// The object's conditions without those with our names, whichever manager wrote them; `None` if there are none of ours. On
    /// an object with another installation's finalizer they belong to that installation.
    pub(super) fn other_conditions<'o>(&self, object: &'o ServiceObject) -> Option<Vec<&'o Condition>> {
        self.conditions_without(object, Self::names_condition)
    }

    /// Like [`Self::other_conditions`], but removes only conditions for which `goes` is true.
    fn conditions_without<'o>(
        &self,
        object: &'o ServiceObject,
        goes: impl Fn(&Condition) -> bool,
    ) -> Option<Vec<&'o Condition>> {
        let conditions = object.conditions();
        let theirs = object.finalizers().iter().any(|held| self.is_neighbours(held));
        let ours = conditions.iter().any(&goes) && !theirs;
        ours.then(|| conditions.iter().filter(|condition| !goes(condition)).collect())
    }

    /// The status of a published object without the outdated condition about announcements; `None` if it has none.
    pub(super) fn outlived_announcement<'o>(&self, object: &'o ServiceObject) -> Option<OutlivedEntries<'o>> {
        let conditions = self.conditions_without(object, |condition| condition.type_ == ANNOUNCED)?;
        Some(OutlivedEntries { conditions: Some(conditions), ingress: None })
    }

    /// The status without what would lock the object or outlive the finalizer; `None` if it can stay as it is.
    pub(super) fn rest<'o>(&self, object: &'o ServiceObject) -> Option<OutlivedEntries<'o>> {
        let locks: Vec<usize> = object.locks().map(|(place, _)| place).collect();
        let kept = object.ingress().iter().enumerate().filter(|(place, _)| !locks.contains(place));
        let rest = OutlivedEntries {
            conditions: self.other_conditions(object),
            ingress: (!locks.is_empty()).then(|| kept.map(|(_, entry)| entry).collect()),
        };
        (rest.conditions.is_some() || rest.ingress.is_some()).then_some(rest)
    }

    /// Whether the condition has one of our names.
    pub(super) fn names_condition(condition: &Condition) -> bool {
        CONDITIONS.contains(&condition.type_.as_str())
    }

    /// Whether the finalizer belongs to another installation.
    fn is_neighbours(&self, finalizer: &str) -> bool {
        finalizer != self.finalizer() && names::is_finalizer(finalizer)
    }
}

/// The remaining entries of status lists that have to shrink; `None` for a list that can stay as it is.
pub(super) struct OutlivedEntries<'o> {
    pub(super) conditions: Option<Vec<&'o Condition>>,
    pub(super) ingress: Option<Vec<&'o LoadBalancerIngress>>,
}

/// Marks of an installation with the default class.
impl Default for Ownership {
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
        let options = Ownership::new(&projection::Options::default().load_balancer_class, false);
        assert_eq!(options, Ownership::default());
        assert_eq!(options.finalizer(), "sheave.dev/load-balancer-cleanup");
        assert_eq!(options.field_manager(), "sheave");
        assert_eq!(options.finalizers().collect::<Vec<_>>(), [FINALIZER]);
        assert_eq!(
            Ownership::new(OUR_CLASS, true).finalizers().collect::<Vec<_>>(),
            [FINALIZER, SHARED_FINALIZER]
        );
    }

    #[test]
    fn another_class_has_names_that_never_change() {
        let options = Ownership::new("foobar", false);
        assert_eq!(options.finalizer(), "sheave.dev/load-balancer-cleanup-bf9cf968");
        assert_eq!(options.field_manager(), "sheave-bf9cf968");
    }

    #[test]
    fn installations_know_each_other() {
        let (one, other) = (Ownership::new(OUR_CLASS, true), Ownership::new("example.com/inside", true));
        assert!(one.is_neighbours(other.finalizer()) && other.is_neighbours(one.finalizer()));
        for options in [&one, &other] {
            assert!(!options.is_neighbours(options.finalizer()) && !options.is_neighbours(SHARED_FINALIZER));
            assert!(!options.is_neighbours("sheave.dev/load-balancer-cleanups"));
        }
    }
}
