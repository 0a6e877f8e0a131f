//! State that pages were last shown, and the events between two states.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use axum::body::Bytes;
use serde::Serialize;
use sheave_announce::{AddressStatus, Status};
use sheave_control::projection::AnnouncePolicies;
use sheave_dataplane::Observer;
use sheave_dataplane::select::ActiveTable;

use super::breakdown::{TrafficBreakdowns, TrafficBy};
use super::catch_up::ServiceEvents;
use super::event::event;
use crate::http::query::{ObjectFacts, Overview};
use crate::views::gateways::GatewaysView;
use crate::views::services::{self, FindingsView, ServiceFacts};
use crate::views::status::ProcessView;
use crate::views::traffic::TrafficView;

/// Number of past seconds that a new page gets.
const HISTORY: usize = 60;
/// Limit of gateways and addresses in the event; `sheave gateways` shows all.
const LISTED: usize = 200;

/// State of everything that pages show.
pub(super) struct ShownState {
    objects: ObjectFacts,
    revision: Option<u64>,
    /// Weak, so that pages do not keep an old table alive.
    table: Weak<ActiveTable>,
    addresses: Arc<BTreeMap<IpAddr, AddressStatus>>,
    services: ServiceEvents,
    findings: String,
    status: String,
    history: VecDeque<TrafficView>,
    breakdowns: TrafficBreakdowns,
}

/// PageEvents between two states.
pub(super) struct PageEvents {
    plain: Bytes,
    counters: Vec<(TrafficBy, String)>,
}

impl PageEvents {
    /// PageEvents for a page with these counters.
    pub(super) fn of(&self, traffic: &[TrafficBy]) -> Bytes {
        if traffic.is_empty() {
            return self.plain.clone();
        }
        let wanted = self.counters.iter().filter(|(by, _)| traffic.contains(by));
        let counters = wanted.map(|(_, events)| events.as_bytes());
        std::iter::once(&*self.plain).chain(counters).collect::<Vec<_>>().concat().into()
    }
}

/// Event of the process and its gateways.
#[derive(Serialize)]
struct StatusEvent<'a> {
    status: &'a ProcessView,
    /// Problems of the process, as sentences with a remedy.
    wrong: Vec<String>,
    /// Gateways, with the addresses that are not simply announced.
    gateways: Option<GatewaysView>,
}

impl ShownState {
    /// Empty state.
    pub(super) fn new() -> Self {
        Self {
            objects: ObjectFacts::default(),
            revision: None,
            table: Weak::new(),
            addresses: Arc::default(),
            services: ServiceEvents::new(),
            findings: String::new(),
            status: String::new(),
            history: VecDeque::new(),
            breakdowns: TrafficBreakdowns::default(),
        }
    }

    /// Revision of the shown objects.
    pub(super) fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Applies the current state, and returns the events with the changes. Without an answer the control loop is stuck, so only
    /// counters are updated: the totals and those that are `wanted`.
    pub(super) fn advance(
        &mut self,
        answer: Option<Overview>,
        observer: &Observer,
        uptime: u64,
        wanted: &[TrafficBy],
    ) -> PageEvents {
        let mut events = match answer {
            Some(overview) => self.take(overview, observer),
            None => event(
                "stuck",
                None,
                &"its control loop does not answer: connections go on, and nothing changes; if that lasts, restart the process",
            ),
        };
        let traffic = TrafficView::of_all(uptime, observer);
        events += &event("traffic", None, &traffic);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(traffic);
        let counters = self.breakdowns.advance(wanted, observer, uptime);
        PageEvents { plain: events.into(), counters }
    }

    fn take(&mut self, overview: Overview, observer: &Observer) -> String {
        let Overview { status, announcements, revision, objects } = overview;
        let table = observer.table();
        let addresses = announcements.as_ref().map(|it| Arc::clone(&it.addresses)).unwrap_or_default();
        let same_table = self.table.ptr_eq(&Arc::downgrade(&table));
        let changed = objects.is_some() || !same_table || self.addresses != addresses;
        if let Some(objects) = objects {
            (self.objects, self.revision) = (objects, Some(revision));
        }
        (self.table, self.addresses) = (Arc::downgrade(&table), addresses);
        let mut events = String::new();
        if changed {
            events += &self.compare(&table, announcements.as_deref());
        }
        let gateways = announcements.as_deref().map(|status| gateways(status, &self.objects.policies));
        let wrong = status.wrong_with_process();
        self.status = event("status", None, &StatusEvent { status: &status, wrong, gateways });
        events + &self.status
    }

    /// PageEvents of the Services and their Problems, as far as they changed.
    fn compare(&mut self, table: &ActiveTable, announcements: Option<&Status>) -> String {
        let ObjectFacts { problems, not_served, obstacles, .. } = &self.objects;
        let rows = services::rows(ServiceFacts { active: table, problems, obstacles, announcements });
        let findings = event("findings", None, &FindingsView::new(&rows, problems, not_served));
        let mut events = self.services.advance(rows);
        if self.findings != findings {
            events += &findings;
            self.findings = findings;
        }
        events
    }

    /// PageEvents that a page is missing after its last event, or all if it has none.
    pub(super) fn since(&mut self, last_event: Option<&str>) -> VecDeque<Bytes> {
        let retry = "retry: 1000\n\n".to_owned();
        let history = event("history", None, &self.history);
        let head = retry + &self.status + &self.findings + &history;
        let mut events = self.services.since(last_event);
        events.push_front(head.into());
        events
    }

    /// Current counters for a page.
    pub(super) fn all_traffic(&mut self, by: TrafficBy, observer: &Observer, uptime: u64) -> Bytes {
        self.breakdowns.all(by, observer, uptime)
    }
}

fn gateways(status: &Status, policies: &AnnouncePolicies) -> GatewaysView {
    let mut view = GatewaysView::new(status, policies);
    view.addresses.retain(|address| address.message.is_some());
    view.addresses.truncate(LISTED);
    view.members.truncate(LISTED);
    view
}
