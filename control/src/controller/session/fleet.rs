//! The Karmada control plane's part in a term: its objects come, and writes to them go, by a connection of their own, so that
//! neither API server waits for the other. It must not know what is made of the objects.

use super::Broken;
use crate::connection::Connection;
use crate::controller::exports::{ExportTrouble, Exporter, wish};
use crate::controller::publication::Desired;
use crate::controller::publisher::{Publisher, WriteTrouble};
use crate::source::api::{self, ApiWatch, Batch};
use crate::store::{Objects, ServiceKey};

/// What is given up with the term.
pub(super) struct FleetSide {
    pub(super) source: ApiWatch,
    pub(super) publisher: Publisher,
    /// If Karmada is to be asked to collect endpoints.
    exporter: Option<Exporter>,
    /// Everything was known once.
    pub(super) synced: bool,
}

/// What happens there.
pub(super) enum FleetNews {
    Batch(Batch),
    Trouble(WriteTrouble),
    ExportTrouble(ExportTrouble),
    Broken(Broken),
}

impl FleetSide {
    /// Must be called inside a Tokio runtime. `publisher` and `exporter` are started by the same leadership as the publisher of
    /// the Services.
    pub(super) fn start(connection: &Connection, publisher: Publisher, exporter: Option<Exporter>) -> Self {
        Self { source: api::watch_fleet(connection), publisher, exporter, synced: false }
    }

    /// What becomes of the exports of a MultiClusterService of which this is desired; nothing as long as that is not known.
    pub(super) fn export(&self, key: &ServiceKey, objects: &Objects, desired: Option<&Desired>) {
        let Some(exporter) = &self.exporter else { return };
        match desired {
            _ if !objects.fleet.services.contains_key(key) => exporter.forget(key),
            Some(desired) => {
                exporter.wish(key, wish(objects, key, matches!(desired, Desired::Published(_))));
            }
            None => {}
        }
    }
}

/// The next thing that happens there; never, where there is no Karmada control plane. Cancel safe.
pub(super) async fn news(fleet: &mut Option<FleetSide>) -> FleetNews {
    let Some(fleet) = fleet else { return std::future::pending().await };
    tokio::select! {
        batch = fleet.source.next() => match batch {
            Some(batch) => FleetNews::Batch(batch),
            None => FleetNews::Broken(Broken("a watch of the Karmada API server has ended")),
        },
        trouble = fleet.publisher.happened() => match trouble {
            Some(trouble) => FleetNews::Trouble(trouble),
            None => FleetNews::Broken(Broken("the part that writes status to the Karmada API server has ended")),
        },
        trouble = troubles(&mut fleet.exporter) => match trouble {
            Some(trouble) => FleetNews::ExportTrouble(trouble),
            None => FleetNews::Broken(Broken("the part that exports Services has ended")),
        },
    }
}

async fn troubles(exporter: &mut Option<Exporter>) -> Option<ExportTrouble> {
    match exporter {
        Some(exporter) => exporter.happened().await,
        None => std::future::pending().await,
    }
}
