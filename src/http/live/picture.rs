//! What pages were last shown, and the events that lead from one moment to the next.

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

/// Moments that a page which opens sees of the past.
const HISTORY: usize = 60;
/// Gateways and addresses that a page gets; `sheave gateways` has all.
const LISTED: usize = 200;

/// The state of everything that pages show.
pub(super) struct Picture {
    objects: ObjectFacts,
    revision: Option<u64>,
    /// Weak, so that no table is kept for pages.
    table: Weak<ActiveTable>,
    addresses: Arc<BTreeMap<IpAddr, AddressStatus>>,
    services: ServiceEvents,
    findings: String,
    status: String,
    history: VecDeque<TrafficView>,
    breakdowns: TrafficBreakdowns,
}

/// What leads from one moment to the next.
pub(super) struct Events {
    plain: Bytes,
    /// The same, followed by counters.
    with_traffic: Vec<(TrafficBy, Bytes)>,
}

impl Events {
    /// For a page that wants these counters.
    pub(super) fn of(&self, traffic: Option<TrafficBy>) -> Bytes {
        let wanted = self.with_traffic.iter().find(|(by, _)| Some(*by) == traffic);
        wanted.map_or(&self.plain, |(_, events)| events).clone()
    }
}

/// The process and its gateways, as an event has it.
#[derive(Serialize)]
struct StatusEvent<'a> {
    status: &'a ProcessView,
    /// What is wrong with the process, as sentences with a remedy.
    wrong: Vec<String>,
    /// The gateways, with the addresses that are not simply announced.
    gateways: Option<GatewaysView>,
}

impl Picture {
    /// Of nothing.
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

    /// Of the objects that it shows.
    pub(super) fn revision(&self) -> Option<u64> {
        self.revision
    }

    /// Takes in what there is now, and gives the events that say what changed. Without an answer the control loop is stuck, and only
    /// the counters are known: the totals, and those that are `wanted`.
    pub(super) fn advance(
        &mut self,
        answer: Option<Overview>,
        observer: &Observer,
        uptime: u64,
        wanted: &[TrafficBy],
    ) -> Events {
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
        let with_traffic = self.breakdowns.advance(wanted, observer, uptime);
        let joined = |(by, counters): (TrafficBy, String)| (by, Bytes::from(events.clone() + &counters));
        let with_traffic = with_traffic.into_iter().map(joined).collect();
        Events { plain: events.into(), with_traffic }
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

    /// The Services and what is wrong with them, where that differs from before.
    fn compare(&mut self, table: &ActiveTable, announcements: Option<&Status>) -> String {
        let ObjectFacts { problems, not_served, closed, .. } = &self.objects;
        let rows = services::rows(ServiceFacts { active: table, problems, closed, announcements });
        let findings = event("findings", None, &FindingsView::new(&rows, problems, not_served));
        let mut events = self.services.advance(rows);
        if self.findings != findings {
            events += &findings;
            self.findings = findings;
        }
        events
    }

    /// What a page lacks that has all up to this event, or nothing.
    pub(super) fn since(&mut self, last_event: Option<&str>) -> VecDeque<Bytes> {
        let retry = "retry: 1000\n\n".to_owned();
        let history = event("history", None, &self.history);
        let head = retry + &self.status + &self.findings + &history;
        let mut events = self.services.since(last_event);
        events.push_front(head.into());
        events
    }

    /// The counters that a page wants, as they are.
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
