//! Which Events there are in a term of leadership. It must not know how they are sent, nor what is published.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::Resource as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::super::events::{self, EventType, EventWriter};
use super::super::exports::ExportTrouble;
use super::super::publication::Exposed;
use super::super::publisher;
use super::lookup::{publishes, uid};
use crate::bounded::first_few;
use crate::karmada::{Cluster, MultiClusterService, ResourceBinding, Work};
use crate::problem::{ObjectRef, Problem, ProblemChanges};
use crate::projection::LoadBalancerStatus;
use crate::store::{Objects, ServiceKey};

/// The action of Events about writes that did not go as they should.
const PUBLISH: &str = "Publish";
/// So many of a Service's addresses are named in an Event.
const LISTED: usize = 8;

/// So many Problems of one moment are logged one by one: where Karmada or a whole cluster is at fault, it is all of them.
const LOGGED: usize = 20;

/// Kinds of the Karmada control plane that carry what others said.
const CARRIERS: [&str; 4] = [Work::KIND, Cluster::KIND, ResourceBinding::KIND, EndpointSlice::KIND];

/// The Events of one term.
pub(super) struct Telling {
    events: EventWriter,
    /// To the Karmada API server.
    fleet_events: Option<EventWriter>,
    /// Problems of objects that get no Events, which the log has.
    logged: BTreeSet<Arc<Problem>>,
    /// Services that have addresses which their status did not have yet when they were last looked at.
    unserved: BTreeSet<ServiceKey>,
}

impl Telling {
    pub(super) fn new(events: EventWriter) -> Self {
        Self { events, fleet_events: None, logged: BTreeSet::new(), unserved: BTreeSet::new() }
    }

    /// Events go where their objects are: those about MultiClusterServices from now on with `events`, or not at all. `all`
    /// are the Problems that there are by now.
    pub(super) fn set_fleet_events<'a>(
        &mut self,
        events: Option<EventWriter>,
        all: impl Iterator<Item = &'a Arc<Problem>>,
        objects: &Objects,
    ) {
        self.fleet_events = events;
        self.fleet_problems(&ProblemChanges { came: all.cloned().collect(), gone: Vec::new() }, objects);
    }

    /// An Event for each Problem that came.
    pub(super) fn problems(&mut self, changes: &ProblemChanges, objects: &Objects) {
        if !changes.is_empty() {
            self.events
                .problems(&changes.about(|object| !is_of_fleet(object)), |object| uid(objects, object));
            self.fleet_problems(changes, objects);
        }
    }

    fn fleet_problems(&mut self, changes: &ProblemChanges, objects: &Objects) {
        if let Some(events) = &mut self.fleet_events {
            events.problems(&changes.about(is_of_fleet), |object| uid(objects, object));
            self.log(changes);
        }
    }

    /// Events for the Problems that the limits have held back until now.
    pub(super) fn again(&mut self, objects: &Objects) {
        for events in std::iter::once(&mut self.events).chain(&mut self.fleet_events) {
            events.again(|object| uid(objects, object));
        }
    }

    /// These are Problems of an object that may be another of its name than before.
    pub(super) fn offer<'a>(
        &mut self,
        object: &ObjectRef,
        problems: impl Iterator<Item = &'a Arc<Problem>>,
        objects: &Objects,
    ) {
        let events = if is_of_fleet(object) { self.fleet_events.as_mut() } else { Some(&mut self.events) };
        if let Some(events) = events {
            events.offer(problems, |object| uid(objects, object));
        }
    }

    /// What is wrong with Works, Clusters and the like is nothing that their owners, controllers of Karmada, would look for
    /// in Events.
    fn log(&mut self, changes: &ProblemChanges) {
        let ProblemChanges { came, gone } = changes.about(|object| CARRIERS.contains(&object.kind));
        for problem in gone {
            self.logged.remove(&problem);
        }
        let new: BTreeSet<Arc<Problem>> =
            came.into_iter().filter(|problem| self.logged.insert(problem.clone())).collect();
        let (new, more) = one_by_one(new.iter().map(|problem| &**problem));
        for problem in new {
            tracing::warn!(object = %problem.object, reason = problem.reason, field = problem.field, "{}", problem.message);
        }
        if more > 0 {
            tracing::warn!(
                more,
                "more Problems of objects that Karmada keeps, at the same time; see `sheave status`"
            );
        }
    }

    /// Ends when Events can be written no more. Cancel safe.
    pub(super) async fn ended(&self) {
        let fleet = async {
            match &self.fleet_events {
                Some(events) => events.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.events.ended() => {}
            () = fleet => {}
        }
    }

    /// How many Events were left out since the term began.
    pub(super) fn events_dropped(&self) -> u64 {
        self.writers().map(EventWriter::dropped).sum()
    }

    /// That API servers refuse Events, which no Event can report.
    pub(super) fn refused(&self) -> impl Iterator<Item = Problem> + '_ {
        self.writers().filter_map(EventWriter::refused)
    }

    fn writers(&self) -> impl Iterator<Item = &EventWriter> {
        std::iter::once(&self.events).chain(&self.fleet_events)
    }

    fn tell(&mut self, occurrence: &events::Occurrence) {
        if !is_of_fleet(&occurrence.object) {
            self.events.tell(occurrence);
        } else if let Some(events) = &mut self.fleet_events {
            events.tell(occurrence);
        }
    }

    /// An Event if Karmada would refuse every change of the object for what its status says. It is taken away.
    pub(super) fn locked(&mut self, key: &ServiceKey, object: &Exposed, objects: &Objects) {
        let Some((place, entry)) = object.locks().next() else { return };
        let reference = key.object();
        let Some(uid) = uid(objects, &reference) else { return };
        let value =
            [entry.hostname.as_deref(), entry.ip.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        self.tell(&events::Occurrence {
            object: reference,
            uid,
            r#type: EventType::Warning,
            reason: "StatusInvalid",
            action: PUBLISH,
            note: format!(
                "status.loadBalancer.ingress[{place}] ({}) is no address or DNS name, and Karmada would refuse every change \
                 of the object for it; it is taken away",
                value.join(", ")
            ),
        });
    }

    /// What a write of status met.
    pub(super) fn trouble(&mut self, trouble: &publisher::WriteTrouble, objects: &Objects) {
        self.warn(trouble.object(), trouble.reason(), trouble.to_string(), objects);
    }

    /// What kept endpoints from being collected.
    pub(super) fn export_trouble(&mut self, trouble: &ExportTrouble, objects: &Objects) {
        self.warn(trouble.object(), trouble.reason(), trouble.to_string(), objects);
    }

    /// An Event of the object, or a line of the log where there is none.
    fn warn(&mut self, object: Option<&ObjectRef>, reason: &'static str, note: String, objects: &Objects) {
        match object.map(|object| (object, uid(objects, object))) {
            Some((object, Some(uid))) => self.tell(&events::Occurrence {
                object: object.clone(),
                uid,
                r#type: EventType::Warning,
                reason,
                action: PUBLISH,
                note,
            }),
            Some((object, None)) => tracing::error!(%object, reason, "{note}"),
            None => tracing::error!(reason, "{note}"),
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
        let addresses = status.ingress.iter().map(|ingress| ingress.ip.to_string());
        self.tell(&events::Occurrence {
            object,
            uid,
            r#type: EventType::Normal,
            reason: "AddressesAssigned",
            action: "Assign",
            note: format!("served at {}", first_few(addresses, ", ", LISTED)),
        });
    }
}

/// The first few of the Problems, and how many more there are.
fn one_by_one<'a>(mut problems: impl Iterator<Item = &'a Problem>) -> (Vec<&'a Problem>, usize) {
    (problems.by_ref().take(LOGGED).collect(), problems.count())
}

/// Whether it is at the Karmada API server.
fn is_of_fleet(object: &ObjectRef) -> bool {
    object.kind == MultiClusterService::KIND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_works_that_are_wrong_alike_are_a_few_lines() {
        let problem = |number: usize| Problem {
            object: ObjectRef { kind: Work::KIND, namespace: "m".into(), name: number.to_string().into() },
            reason: crate::problem::reason::INVALID_MANIFEST,
            field: String::new(),
            message: "cannot be read".to_owned(),
            port: None,
        };
        let problems: BTreeSet<Problem> = (0..10_000).map(problem).collect();
        let (told, more) = one_by_one(problems.iter());
        assert_eq!((told.len(), more), (LOGGED, 10_000 - LOGGED));
        assert_eq!(one_by_one(problems.iter().take(3)).1, 0);
    }
}
