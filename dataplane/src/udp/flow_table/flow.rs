//! One flow: where its datagrams go, how it is, and what it has had.

use std::time::Instant;

use sheave_model::{ClientSource, EndpointAddr, FrontendAddr};

use super::budget::Slot;
use super::silence::Silence;
use crate::client_traffic::Meter;
use crate::limits::service::Permit;
use crate::select::{ActiveFrontend, Picked};

/// One client's way to one endpoint.
pub(in crate::udp) struct Flow<L> {
    /// What the caller keeps for it.
    pub(in crate::udp) link: L,
    pub(super) picked: Picked,
    /// What the endpoint sees of the client.
    pub(super) source: ClientSource,
    /// When a datagram last passed, in either direction.
    pub(super) touched: Instant,
    /// When the queue looks at this flow next; an entry with another moment is stale.
    pub(super) check_at: Instant,
    /// When it ends at the latest, since its endpoint serves no more.
    pub(super) ends_by: Option<Instant>,
    /// The frontend's revision for which the endpoint was found good.
    pub(super) revision: u64,
    /// The endpoint was reported unreachable.
    pub(super) suspect: bool,
    /// An endpoint has answered.
    pub(super) answered: bool,
    pub(super) silence: Silence,
    /// By which it came.
    pub(super) frontend: FrontendAddr,
    pub(super) meter: Meter,
    pub(super) slot: Slot,
    pub(super) _permit: Option<Box<Permit>>,
}

impl<L> Flow<L> {
    /// Where its datagrams go.
    pub(in crate::udp) fn endpoint(&self) -> EndpointAddr {
        self.picked.addr()
    }

    /// So many bytes were passed on.
    pub(in crate::udp) fn add_bytes(&mut self, from_client: usize, from_endpoint: usize) {
        self.meter.add_bytes(from_client as u64, from_endpoint as u64);
    }

    /// Has a watch know what it has.
    pub(super) fn collect(&mut self) {
        self.slot.tally().collect_open(&mut self.meter, self.frontend, Some(&self.picked));
    }

    /// Gives it another endpoint.
    pub(super) fn set_endpoint(&mut self, picked: Picked, link: L, source: ClientSource) {
        self.collect_last();
        (self.picked, self.link, self.source) = (picked, link, source);
        self.ends_by = None;
        self.silence.end();
    }

    /// Its client sends: whether its endpoint turns out to have fallen silent. Not if that sees the client's own address, which a
    /// firewall may refuse; nor if it has never been answered: a server may answer nothing that this client sends.
    pub(super) fn finds_silence(&mut self, now: Instant, frontend: &ActiveFrontend) -> bool {
        if !self.answered {
            return false;
        }
        let Some(since) = self.silence.asked(now, self.touched) else { return false };
        let found =
            self.source != ClientSource::Transparent && frontend.has_fallen_silent(self.endpoint(), since);
        if found {
            self.silence.was_told();
        }
        found
    }

    /// What its endpoint has had is known from now on.
    fn collect_last(&mut self) {
        self.slot.tally().collect(&mut self.meter, self.frontend, Some(&self.picked));
    }
}

impl<L> Drop for Flow<L> {
    fn drop(&mut self) {
        self.collect_last();
    }
}
