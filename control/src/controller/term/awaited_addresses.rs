//! Objects that a new leader has to read before it may allocate addresses. Until then, objects keep what their statuses publish. No I/O.

use crate::api::kinds::Gateways;
use crate::api::problem::{Problem, reason};
use crate::api::store::ServiceKey;
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::term::awaiting_karmada;
use crate::sources::Source;

/// Objects whose addresses are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitedAddresses {
    /// MultiClusterServices.
    OfKarmada,
    /// Gateways.
    OfGateways,
}

impl AwaitedAddresses {
    /// Warning for the log when it takes long.
    pub(super) fn warning(self) -> &'static str {
        match self {
            Self::OfKarmada => {
                "the Karmada API server has not been read yet, and MultiClusterServices may have any address: until then Services \
                 keep their addresses, and none is allocated"
            }
            Self::OfGateways => {
                "the Gateways cannot be listed yet, and they may have any address: until then Services keep their addresses, and \
                 none is allocated"
            }
        }
    }

    /// The Problem of an object that gets no address yet.
    pub(super) fn problem(self, key: &ServiceKey) -> Problem {
        match self {
            Self::OfKarmada => awaiting_karmada::problem(key),
            Self::OfGateways => Problem {
                object: key.object(),
                reason: reason::NO_ADDRESS,
                field: String::new(),
                message:
                    "no address is allocated until the Gateways have been listed: they may have any of them"
                        .to_owned(),
                port: None,
            },
        }
    }

    /// Has a desired state name this as the reason why there is no address.
    pub(super) fn explain(self, key: &ServiceKey, desired: Desired) -> Desired {
        let Desired::Published(status) = desired else { return desired };
        let generic = awaiting_karmada::problem(key);
        let own = |problem: Problem| if problem == generic { self.problem(key) } else { problem };
        let problems = status.problems.into_iter().map(own).collect();
        Desired::Published(DesiredStatus { problems, ..status })
    }
}

/// Knowledge of the Gateways in a term. It never returns to `Unknown`: where definitions come later, addresses were allocated without
/// them, and are not withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KnownGateways {
    /// There may be some.
    #[default]
    Unknown,
    /// The API server lacks or refuses them.
    None,
    /// They are in the store.
    Listed,
}

impl KnownGateways {
    /// Updates it after a batch of the source. Returns whether it differs.
    pub(super) fn update(&mut self, local: &Source) -> bool {
        let before = *self;
        if local.has_listed::<Gateways>() {
            *self = Self::Listed;
        } else if before == Self::Unknown && !local.awaits::<Gateways>() {
            *self = Self::None;
        }
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::tests::objects::desired_status;

    #[test]
    fn the_problem_names_what_is_awaited() {
        let key = ServiceKey::new("shop", "web");
        let waits = DesiredStatus { problems: vec![awaiting_karmada::problem(&key)], ..desired_status() };
        for (awaited, named) in [
            (AwaitedAddresses::OfKarmada, "until the Karmada API server has been read: "),
            (AwaitedAddresses::OfGateways, "until the Gateways have been listed: "),
        ] {
            let Desired::Published(status) = awaited.explain(&key, Desired::Published(waits.clone())) else {
                panic!()
            };
            assert_eq!(status.problems, [awaited.problem(&key)]);
            assert!(status.problems[0].message.contains(named), "{}", status.problems[0].message);
        }
    }
}
