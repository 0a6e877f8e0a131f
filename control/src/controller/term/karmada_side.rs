//! Leases and writes of a term on the Karmada control plane. It has its own connection, so that neither API server delays the other.
//!
//! Several installations may share one control plane, each with an election in its own cluster. Leases on the control plane
//! decide which of them writes there: one for each class, and one for objects without a class. An installation holds them under a
//! name that all its processes share, so that a new leader continues at once.

use std::sync::Arc;

use super::Broken;
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::store::{Objects, ServiceKey};
use crate::controller::ControllerOptions;
use crate::controller::desired_status::Desired;
use crate::controller::election::{Election, ElectionEnded, Leadership, LeaseTiming};
use crate::controller::events::EventRecorder;
use crate::controller::service_exports::desired_export;
use crate::controller::status_writer::{SentStatuses, StatusWriter, WriteNotice};
use crate::projection::Authority;
use crate::sources::connection::Connection;

/// Name of the Lease for objects without a class. Other installations use it, too, so it never changes.
const UNCLASSIFIED_LEASE: &str = "sheave-unclassified";

/// State of one term for the control plane.
pub(super) struct KarmadaSide {
    connection: Connection,
    /// Name of the installation.
    installation: String,
    class: KarmadaLease,
    /// The Lease for objects without a class. Requested only while the Lease of the class is held, so that two installations
    /// never hold one each.
    unclassified: Option<KarmadaLease>,
    /// Leadership of the term in this cluster.
    leadership: Leadership,
    /// The writer, while the Lease of the class is held.
    pub(super) writer: Option<KarmadaWriter>,
}

/// A Lease, and whether this installation holds it.
struct KarmadaLease {
    lease: ServiceKey,
    election: Election,
    held: bool,
}

/// Writer to the control plane, for as long as both terms last.
pub(super) struct KarmadaWriter {
    pub(super) status: StatusWriter,
    /// Whether Karmada should collect endpoints.
    exports: bool,
}

/// An event on the control plane.
pub(super) enum KarmadaEvent {
    Notice(WriteNotice),
    /// A Lease was won or lost, so another installation is now in charge of some MultiClusterServices.
    LeaseChanged,
    Broken(Broken),
}

impl KarmadaSide {
    /// Starts the candidacy. Must be called within a Tokio runtime. `installation` is the name that all processes
    /// of the installation share.
    pub(super) fn start(
        connection: &Connection,
        options: &ControllerOptions,
        installation: &str,
        leadership: &Leadership,
    ) -> Self {
        Self {
            connection: connection.clone(),
            class: KarmadaLease::compete_for(
                options.ownership.field_manager(),
                installation,
                connection,
                options,
            ),
            unclassified: None,
            installation: installation.to_owned(),
            leadership: leadership.clone(),
            writer: None,
        }
    }

    /// The MultiClusterServices that this installation is in charge of.
    pub(super) fn authority(&self) -> Authority {
        let own = self.class.held;
        Authority { own, untaken: own && self.unclassified.as_ref().is_some_and(|lease| lease.held) }
    }

    /// Whether the Lease of the class was won or lost since [`Self::restart_writer`].
    pub(super) fn is_to_restart_writer(&self) -> bool {
        self.class.held != self.writer.is_some()
    }

    /// Starts the writer if the Lease of the class is held, and otherwise stops it. Returns the recorder of Events for a new
    /// writer.
    pub(super) fn restart_writer(
        &mut self,
        options: &ControllerOptions,
        sent: &SentStatuses,
    ) -> Option<EventRecorder> {
        (self.writer, self.unclassified) = (None, None);
        if !self.class.held {
            return None;
        }
        self.unclassified = options.projection.fleet.handle_unclassified.then(|| {
            KarmadaLease::compete_for(UNCLASSIFIED_LEASE, &self.installation, &self.connection, options)
        });
        let leadership = self.class.election.leadership().within(&self.leadership);
        let may_write = leadership.clone();
        let connection = &self.connection;
        let (ownership, may_write) = (options.ownership.clone(), move || may_write.remaining());
        let status = StatusWriter::start(connection, ownership, sent.clone(), may_write);
        self.writer = Some(KarmadaWriter { status, exports: options.projection.fleet.export_services });
        Some(EventRecorder::start(connection, options.identity.clone(), leadership))
    }

    /// Problems that report which installations are in charge in place of this one.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let class = (!self.class.held).then(|| {
            self.class.problem(match self.class.taken_by() {
                Some(leader) => format!(
                    "installation {leader} writes the MultiClusterServices of this class; this one leaves them alone. Give one \
                     of them another loadBalancerClass if both are to serve some"
                ),
                None => "this installation does not hold the Lease yet, and leaves MultiClusterServices as they are. If that \
                         lasts, apply deploy/karmada, which has the right to it, and see the log"
                    .to_owned(),
            })
        });
        let unclassified = self.unclassified.as_ref().and_then(|lease| {
            let message = format!(
                "installation {} takes new MultiClusterServices that name no class; this one leaves them alone. Name a class \
                 in each, or set karmada.handleUnclassified to false in one of them",
                lease.taken_by()?
            );
            Some(lease.problem(message))
        });
        class.into_iter().chain(unclassified)
    }
}

impl KarmadaLease {
    /// Becomes a candidate for the Lease.
    fn compete_for(
        name: &str,
        installation: &str,
        connection: &Connection,
        options: &ControllerOptions,
    ) -> Self {
        let lease = ServiceKey::of_service(Arc::clone(&options.lease.namespace), name.into());
        let timing = LeaseTiming::INSTALLATION;
        let election = Election::start(connection, &lease, installation.to_owned(), timing);
        Self { lease, election, held: false }
    }

    /// Waits until the Lease is won or lost. Cancel safe.
    async fn changed(&mut self) -> Result<(), ElectionEnded> {
        if self.held { self.election.lost().await } else { self.election.won().await }?;
        self.held = !self.held;
        Ok(())
    }

    /// The other installation that holds it, as last seen.
    fn taken_by(&self) -> Option<String> {
        self.election.other_leader().filter(|_| !self.held)
    }

    fn problem(&self, message: String) -> Problem {
        let ServiceKey { namespace, name, .. } = &self.lease;
        let object = ObjectRef { kind: "Lease", namespace: namespace.clone(), name: name.clone() };
        Problem { object, reason: reason::NOT_SERVED, field: String::new(), message, port: None }
    }
}

impl KarmadaWriter {
    /// Sets the export that follows from the desired state; no change while that is unknown.
    pub(super) fn export(&mut self, key: &ServiceKey, objects: &Objects, desired: Option<&Desired>) {
        match desired {
            _ if !self.exports => {}
            _ if !objects.fleet.services.contains_key(key) => self.status.forget_export(key),
            Some(desired) => {
                let desired = desired_export(objects, key, matches!(desired, Desired::Published(_)));
                self.status.set_export(key, desired);
            }
            None => {}
        }
    }
}

/// The next event; without a Karmada control plane it never resolves. Cancel safe.
pub(super) async fn next_event(fleet: &mut Option<KarmadaSide>) -> KarmadaEvent {
    let Some(fleet) = fleet else { return std::future::pending().await };
    tokio::select! {
        changed = fleet.class.changed() => lease_changed(changed),
        changed = unclassified(&mut fleet.unclassified) => lease_changed(changed),
        news = written(&mut fleet.writer) => news,
    }
}

fn lease_changed(changed: Result<(), ElectionEnded>) -> KarmadaEvent {
    match changed {
        Ok(()) => KarmadaEvent::LeaseChanged,
        Err(ElectionEnded) => KarmadaEvent::Broken(Broken("an election on the Karmada API server has ended")),
    }
}

async fn unclassified(lease: &mut Option<KarmadaLease>) -> Result<(), ElectionEnded> {
    match lease {
        Some(lease) => lease.changed().await,
        None => std::future::pending().await,
    }
}

async fn written(writer: &mut Option<KarmadaWriter>) -> KarmadaEvent {
    let Some(writer) = writer else { return std::future::pending().await };
    match writer.status.next_notice().await {
        Some(notice) => KarmadaEvent::Notice(notice),
        None => KarmadaEvent::Broken(Broken("the writer of status to the Karmada API server has ended")),
    }
}

#[cfg(test)]
mod tests;
