//! Problems of objects whose writes an API server keeps rejecting. An Event can be lost or held back by its limits, and a status
//! that is not written cannot report itself.

use std::collections::BTreeMap;

use k8s_openapi::Resource as _;

use crate::api::karmada::MultiClusterService;
use crate::api::problem::{ObjectRef, Problem};
use crate::controller::status_writer::WriteNotice;

/// How many objects are logged individually: if a webhook is down, all of them fail.
const LOGGED: usize = 20;

/// Current failures.
#[derive(Debug, Default)]
pub(super) struct WriteFailures {
    standing: BTreeMap<ObjectRef, Problem>,
}

impl WriteFailures {
    /// Records and logs the start or end of a failure. Returns whether the Problems changed.
    pub(super) fn take(&mut self, notice: &WriteNotice) -> bool {
        match notice {
            WriteNotice::Refused { object, .. } => {
                let problem = Problem {
                    object: object.clone(),
                    reason: notice.reason(),
                    field: String::new(),
                    message: notice.to_string(),
                    port: None,
                };
                match self.standing.len() {
                    0..LOGGED => tracing::error!(%object, reason = problem.reason, "{}", problem.message),
                    LOGGED => tracing::error!(
                        reason = problem.reason,
                        "writes of more than {LOGGED} objects are refused: further ones are not logged one by one (see \
                         `sheave status`)"
                    ),
                    _ => {}
                }
                self.standing.insert(object.clone(), problem);
                true
            }
            WriteNotice::Recovered { object } => {
                let before = self.standing.len();
                let ended = self.standing.remove(object).is_some();
                if ended && before <= LOGGED {
                    tracing::info!(%object, "{notice}");
                }
                ended
            }
            _ => false,
        }
    }

    /// Drops failures of MultiClusterServices, whose writer has ended. Returns the objects.
    pub(super) fn forget_fleet(&mut self) -> Vec<ObjectRef> {
        let of_fleet = |object: &ObjectRef, _: &mut Problem| object.kind == MultiClusterService::KIND;
        self.standing.extract_if(.., of_fleet).map(|(object, _)| object).collect()
    }

    /// The failure of an object.
    pub(super) fn of(&self, object: &ObjectRef) -> Option<&Problem> {
        self.standing.get(object)
    }

    /// Number of objects with failures.
    pub(super) fn count(&self) -> usize {
        self.standing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::store::ServiceKey;

    fn refused(name: &str) -> WriteNotice {
        let object = ServiceKey::new("shop", name).object();
        WriteNotice::Refused { object, what: "status", message: "limit is 3145728".to_owned() }
    }

    #[test]
    fn a_refused_write_is_a_problem_until_it_ends() {
        let mut failures = WriteFailures::default();
        assert!(failures.take(&refused("web")) && failures.take(&refused("api")));
        let told: Vec<String> = failures.standing.values().map(ToString::to_string).collect();
        let text = "WriteRefused: the API server refuses its status: limit is 3145728; it is retried later";
        assert_eq!(told, [format!("Service shop/api: {text}"), format!("Service shop/web: {text}")]);
        let recovered = WriteNotice::Recovered { object: ServiceKey::new("shop", "web").object() };
        assert!(failures.take(&recovered));
        assert!(!failures.take(&recovered), "it is over already");
        assert_eq!(failures.count(), 1);
    }
}
