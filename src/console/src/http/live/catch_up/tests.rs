//! Tests that pages that join, follow and return have the same rows in the end.

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::views::services::ServiceState;

fn row(number: u32, state: ServiceState) -> ServiceRow {
    ServiceRow { service: format!("shop/s{number:05}"), source: "Service", state, ..ServiceRow::default() }
}

/// Page that applies events like `services.js`.
#[derive(Default)]
struct Page {
    rows: BTreeMap<String, String>,
    last: Option<String>,
    taken: usize,
}

impl Page {
    fn take(&mut self, events: &str) {
        for event in events.split("\n\n").filter(|event| !event.is_empty()) {
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            if data["reset"] == true {
                self.rows.clear();
            }
            for gone in data["removed"].as_array().unwrap() {
                self.rows.remove(gone["service"].as_str().unwrap());
            }
            for row in data["rows"].as_array().unwrap() {
                self.taken += 1;
                self.rows.insert(row["service"].as_str().unwrap().to_owned(), row["state"].to_string());
            }
            let id = event.lines().find_map(|line| line.strip_prefix("id: "));
            self.last = id.map(str::to_owned).or(self.last.take());
        }
    }

    fn catch_up(&mut self, events: &mut ServiceEvents) {
        let last = self.last.clone();
        for part in events.since(last.as_deref()) {
            self.take(std::str::from_utf8(&part).unwrap());
        }
    }

    fn expect(&self, events: &ServiceEvents) {
        let now: Vec<&str> = events.rows.iter().map(|row| row.service.as_str()).collect();
        assert_eq!(self.rows.keys().map(String::as_str).collect::<Vec<_>>(), now);
    }
}

#[test]
fn pages_get_everything_once_and_then_what_changes() {
    let mut events = ServiceEvents::new();
    let mut rows: Vec<ServiceRow> = (0..1_234).map(|number| row(number, ServiceState::Serving)).collect();
    events.advance(rows.clone());
    let mut page = Page::default();
    page.catch_up(&mut events);
    page.expect(&events);
    assert_eq!((page.taken, events.since(None).len()), (1_234, 3));

    rows[7].state = ServiceState::Broken;
    rows.remove(3);
    rows.push(row(9_999, ServiceState::Serving));
    let change = events.advance(rows.clone());
    page.take(&change);
    page.expect(&events);
    assert_eq!(page.taken, 1_236);
    assert_eq!(events.advance(rows), "");

    // The page is up to date, so it gets nothing when it returns.
    page.catch_up(&mut events);
    assert_eq!(page.taken, 1_236);
}

#[test]
fn a_page_that_comes_back_gets_what_it_lacks() {
    let mut events = ServiceEvents::new();
    events.advance((0..100).map(|number| row(number, ServiceState::Serving)).collect());
    let mut page = Page::default();
    page.catch_up(&mut events);
    for end in (90..100).rev() {
        events.advance((0..end).map(|number| row(number, ServiceState::Serving)).collect());
    }
    page.catch_up(&mut events);
    page.expect(&events);
    assert_eq!(page.taken, 100);
}

#[test]
fn a_page_that_lacks_too_much_or_comes_from_elsewhere_begins_again() {
    let (mut events, mut other) = (ServiceEvents::new(), ServiceEvents::new());
    let all = |state| (0..5_000).map(|number| row(number, state)).collect::<Vec<_>>();
    events.advance(all(ServiceState::Serving));
    other.advance(all(ServiceState::Serving));
    let (mut page, mut stranger) = (Page::default(), Page::default());
    page.catch_up(&mut events);
    stranger.catch_up(&mut other);
    for turn in 0..12 {
        events.advance(all(if turn % 2 == 0 { ServiceState::Broken } else { ServiceState::Degraded }));
    }
    let kept: usize = events.changes.iter().map(|(_, events)| events.len()).sum();
    assert!(kept <= KEPT, "{kept}");
    for page in [&mut page, &mut stranger] {
        page.catch_up(&mut events);
        page.expect(&events);
        assert!(page.rows.values().all(|state| state == "\"degraded\""));
        assert_eq!(page.taken, 10_000);
    }
}

#[test]
fn a_page_that_misses_the_end_of_everything_begins_again() {
    let mut events = ServiceEvents::new();
    events.advance((0..1_000).map(|number| row(number, ServiceState::Serving)).collect());
    let mut page = Page::default();
    let first = events.since(None).pop_front().unwrap();
    page.take(std::str::from_utf8(&first).unwrap());
    assert_eq!(page.last, None);
    page.catch_up(&mut events);
    page.expect(&events);
}
