//! The Karmada control plane's part in a term: its objects come, and writes to them go, by a connection of their own, so that
//! neither API server waits for the other. It must not know what is made of the objects.

use super::Broken;
use crate::connection::Connection;
use crate::controller::publisher::{Publisher, WriteTrouble};
use crate::source::api::{self, ApiWatch, Batch};

/// What is given up with the term.
pub(super) struct FleetSide {
    pub(super) source: ApiWatch,
    pub(super) publisher: Publisher,
    /// Everything was known once.
    pub(super) synced: bool,
}

/// What happens there.
pub(super) enum FleetNews {
    Batch(Batch),
    Trouble(WriteTrouble),
    Broken(Broken),
}

impl FleetSide {
    /// Must be called inside a Tokio runtime. `publisher` is started by the same leadership as the one of the Services.
    pub(super) fn start(connection: &Connection, publisher: Publisher) -> Self {
        Self { source: api::watch_fleet(connection), publisher, synced: false }
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
    }
}
