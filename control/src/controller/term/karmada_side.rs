//! The Karmada control plane's part in a term: its own connection for watches and writes, so that neither API server waits for
//! the other.
//!
//! Several installations may see one control plane, each elected in a cluster of its own. Leases on
//! the control plane decide which of them writes there: one for each class, and one for objects that name no class. An
//! installation holds them under a name that all its processes share, so that a new leader goes on at once.

use std::sync::Arc;

use super::Broken;
use crate::api::problem::{ObjectRef, Problem, reason};
use crate::api::store::{Objects, ServiceKey};
use crate::controller::ControllerOptions;
use crate::controller::desired_status::Desired;
use crate::controller::election::{Election, ElectionEnded, Leadership, Timing};
use crate::controller::events::EventRecorder;
use crate::controller::service_exports::desired_export;
use crate::controller::status_writer::{StatusWriter, WriteNotice};
use crate::projection::Authority;
use crate::sources::api_server::{self, ApiWatch, Batch, FleetWanted};
use crate::sources::connection::Connection;

/// The Lease for objects that name no class. Never changed: other installations look for it.
const UNCLASSIFIED_LEASE: &str = "sheave-unclassified";

/// What ends with the term.
pub(super) struct KarmadaSide {
    connection: Connection,
    pub(super) source: ApiWatch,
    /// Everything was listed once.
    pub(super) synced: bool,
    /// The name of the installation.
    installation: String,
    class: KarmadaLease,
    /// Only requested while the Lease of the class is held, so that two installations never have one each.
    unclassified: Option<KarmadaLease>,
    /// Of the term in this cluster.
    leadership: Leadership,
    /// While the Lease of the class is held.
    pub(super) writer: Option<KarmadaWriter>,
}

/// A Lease, and whether this installation holds it.
struct KarmadaLease {
    lease: ServiceKey,
    election: Election,
    held: bool,
}

/// The writer to the control plane, as long as both terms last.
pub(super) struct KarmadaWriter {
    pub(super) status: StatusWriter,
    /// Whether Karmada is asked to collect endpoints.
    exports: bool,
}

/// What happens on the control plane.
pub(super) enum KarmadaEvent {
    Batch(Batch),
    Notice(WriteNotice),
    /// A Lease was won or lost: another installation is now in charge of some MultiClusterServices, or this one is.
    LeaseChanged,
    Broken(Broken),
}

impl KarmadaSide {
    /// Must be called inside a Tokio runtime. `installation` is the name that all processes of the installation share.
    pub(super) fn start(
        connection: &Connection,
        options: &ControllerOptions,
        installation: &str,
        leadership: &Leadership,
    ) -> Self {
        Self {
            connection: connection.clone(),
            source: api_server::watch_fleet(
                connection,
                FleetWanted { service_works: options.projection.fleet.service_works },
            ),
            synced: false,
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

    /// Which MultiClusterServices this installation is in charge of.
    pub(super) fn authority(&self) -> Authority {
        let own = self.class.held;
        Authority { own, untaken: own && self.unclassified.as_ref().is_some_and(|lease| lease.held) }
    }

    /// Whether the Lease of the class was won or lost since [`Self::restart_writer`].
    pub(super) fn is_to_restart_writer(&self) -> bool {
        self.class.held != self.writer.is_some()
    }

    /// Starts the writer if the Lease of the class is held, or ends it; returns the recorder of Events then.
    pub(super) fn restart_writer(&mut self, options: &ControllerOptions) -> Option<EventRecorder> {
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
        let status =
            StatusWriter::start(connection, options.ownership.clone(), move || may_write.remaining());
        self.writer = Some(KarmadaWriter { status, exports: options.projection.fleet.export_services });
        Some(EventRecorder::start(connection, options.identity.clone(), leadership))
    }

    /// Problems that name the installations in charge in place of this one.
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
    /// Becomes a candidate.
    fn compete_for(
        name: &str,
        installation: &str,
        connection: &Connection,
        options: &ControllerOptions,
    ) -> Self {
        let lease = ServiceKey::of_service(Arc::clone(&options.lease.namespace), name.into());
        let timing = Timing::INSTALLATION;
        let election = Election::start(connection, &lease, installation.to_owned(), timing);
        Self { lease, election, held: false }
    }

    /// Waits until it is won or lost. Cancel safe.
    async fn changed(&mut self) -> Result<(), ElectionEnded> {
        if self.held { self.election.lost().await } else { self.election.won().await }?;
        self.held = !self.held;
        Ok(())
    }

    /// The other installation that holds it, as last seen.
    fn taken_by(&self) -> Option<String> {
        self.election.leader().filter(|_| !self.held)
    }

    fn problem(&self, message: String) -> Problem {
        let ServiceKey { namespace, name, .. } = &self.lease;
        let object = ObjectRef { kind: "Lease", namespace: namespace.clone(), name: name.clone() };
        Problem { object, reason: reason::NOT_SERVED, field: String::new(), message, port: None }
    }
}

impl KarmadaWriter {
    /// Sets the export of a MultiClusterService by what is desired of it; changes nothing while that is not known.
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

/// The next event; never, where there is no Karmada control plane. Cancel safe.
pub(super) async fn next_event(fleet: &mut Option<KarmadaSide>) -> KarmadaEvent {
    let Some(fleet) = fleet else { return std::future::pending().await };
    tokio::select! {
        batch = fleet.source.next() => match batch {
            Some(batch) => KarmadaEvent::Batch(batch),
            None => KarmadaEvent::Broken(Broken("a watch of the Karmada API server has ended")),
        },
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
