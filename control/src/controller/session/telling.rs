//! Which Events there are in a term of leadership. It must not know how they are sent, nor what is published.

use std::collections::BTreeSet;

use super::super::events::{self, EventType, EventWriter};
use super::super::publication::Exposed;
use super::super::publisher;
use super::lookup::{publishes, uid};
use crate::problem::Problem;
use crate::projection::LoadBalancerStatus;
use crate::store::{Objects, ServiceKey};

/// The action of Events about writes that did not go as they should.
const PUBLISH: &str = "Publish";

/// The Events of one term.
pub(super) struct Telling {
    events: EventWriter,
    /// Services that have addresses which their status did not have yet when they were last looked at.
    unserved: BTreeSet<ServiceKey>,
}

impl Telling {
    pub(super) fn new(events: EventWriter) -> Self {
        Self { events, unserved: BTreeSet::new() }
    }

    /// An Event for each Problem that is new, or that the limits have held back until now.
    pub(super) fn problems(&mut self, problems: &[Problem], objects: &Objects) {
        self.events.problems(problems, |object| uid(objects, object));
    }

    /// Ends when Events can be written no more. Cancel safe.
    pub(super) async fn ended(&self) {
        self.events.ended().await;
    }

    /// An Event of the object, or a line of the log where there is none.
    pub(super) fn trouble(&mut self, trouble: &publisher::WriteTrouble, objects: &Objects) {
        let object = trouble.object().and_then(|object| Some((object, uid(objects, object)?)));
        match (object, trouble.object()) {
            (Some((object, uid)), _) => self.events.tell(&events::Occurrence {
                object: object.clone(),
                uid,
                r#type: EventType::Warning,
                reason: trouble.reason(),
                action: PUBLISH,
                note: trouble.to_string(),
            }),
            (None, Some(object)) => tracing::error!(%object, reason = trouble.reason(), "{trouble}"),
            (None, None) => tracing::error!(reason = trouble.reason(), "{trouble}"),
        }
    }

    /// An Event once a Service's status has come to have the addresses that it was given. `status` is what it is to say, if it
    /// is ours.
    pub(super) fn assigned(
        &mut self,
        key: &ServiceKey,
        status: Option<&LoadBalancerStatus>,
        objects: &Objects,
    ) {
        let object = Exposed::find(objects, key);
        let (Some(object), Some(status)) = (object, status.filter(|status| !status.ingress.is_empty()))
        else {
            self.unserved.remove(key);
            return;
        };
        if !publishes(&object, status) {
            self.unserved.insert(key.clone());
            return;
        }
        let object = key.object();
        let Some(uid) = uid(objects, &object).filter(|_| self.unserved.remove(key)) else { return };
        let addresses: Vec<String> = status.ingress.iter().map(|ingress| ingress.ip.to_string()).collect();
        self.events.tell(&events::Occurrence {
            object,
            uid,
            r#type: EventType::Normal,
            reason: "AddressesAssigned",
            action: "Assign",
            note: format!("served at {}", addresses.join(", ")),
        });
    }
}
