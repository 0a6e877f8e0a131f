//! Tests that a client that applies all events has the same rows as the gateway.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value;
use sheave_model::Protocol;

use super::*;

/// A row named by a number, with a state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct TestLabel {
    name: u8,
    state: u8,
}

impl Label for TestLabel {
    const EVENT: &'static str = "test";
    const WIDTH: usize = 2;

    fn compare_keys(&self, other: &Self) -> Ordering {
        self.name.cmp(&other.name)
    }
}

/// Row on frontends with these ports.
fn row(name: u8, state: u8, ports: &[u16]) -> LabelledFrontends<TestLabel> {
    let frontends = ports.iter().map(|port| frontend(*port)).collect();
    LabelledFrontends { label: TestLabel { name, state }, frontends }
}

fn frontend(port: u16) -> FrontendAddr {
    FrontendAddr { ip: [192, 0, 2, 1].into(), port, protocol: Protocol::Tcp }
}

/// Rows of a client by number: name, state and counters.
#[derive(Debug, Default, PartialEq)]
struct Client(BTreeMap<u64, (u64, u64, Vec<u64>)>);

impl Client {
    fn take(&mut self, event: &str) {
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        if data["reset"] == true {
            self.0.clear();
        }
        for gone in data["gone"].as_array().unwrap() {
            self.0.remove(&gone.as_u64().unwrap()).unwrap();
        }
        for row in data["rows"].as_array().unwrap() {
            let field = |name: &str| row[name].as_u64().unwrap();
            let known = self.0.entry(field("id")).or_default();
            (known.0, known.1) = (field("name"), field("state"));
        }
        for counted in data["counts"].as_array().unwrap() {
            let counts = counted[1].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
            self.0.get_mut(&counted[0].as_u64().unwrap()).unwrap().2 = counts;
        }
    }

    fn rows(&self) -> BTreeMap<u64, (u64, Vec<u64>)> {
        self.0.values().map(|(name, state, counts)| (*name, (*state, counts.clone()))).collect()
    }
}

/// Rows by name: state, counters and port of the frontend.
type Moment = BTreeMap<u8, (u8, [u64; 2], u16)>;

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let row = (0..3_u8, [0..3_u64, 0..3_u64], 1..3_u16);
    prop::collection::vec(prop::collection::btree_map(0..6_u8, row, 0..6), 1..12)
}

proptest! {
    #[test]
    fn those_who_look_from_any_moment_on_see_the_same(moments in moments(), joins in 0..12_usize) {
        let mut rows = NumberedRows::<TestLabel>::new();
        let (mut first, mut later) = (Client::default(), None);
        for (at, moment) in moments.iter().enumerate() {
            let labels = moment.iter().map(|(&name, &(state, _, port))| row(name, state, &[port])).collect();
            let counts: Vec<u64> = moment.values().flat_map(|(_, counts, _)| *counts).collect();
            let event = rows.advance(at as u64, Some(labels), &counts);
            first.take(&event);
            if let Some(client) = &mut later {
                Client::take(client, &event);
            }
            if at == joins {
                later.insert(Client::default()).take(str::from_utf8(&rows.all()).unwrap());
            }
            let expected: BTreeMap<u64, (u64, Vec<u64>)> = moment
                .iter()
                .map(|(&name, &(state, counts, _))| (name.into(), (state.into(), counts.to_vec())))
                .collect();
            prop_assert_eq!(first.rows(), expected.clone());
            if let Some(client) = &later {
                prop_assert_eq!(client.rows(), expected);
            }
        }
    }
}

#[test]
fn a_second_without_traffic_names_no_row() {
    let mut rows = NumberedRows::new();
    let labels = vec![row(1, 0, &[80]), row(2, 0, &[81])];
    rows.advance(1, Some(labels), &[1, 2, 3, 4]);
    let event = rows.advance(2, None, &[1, 2, 3, 4]);
    assert!(event.contains(r#""rows":[],"counts":[]"#), "{event}");
    let event = rows.advance(3, None, &[1, 2, 3, 5]);
    assert!(event.contains(r#""rows":[],"counts":[[1,[3,5]]]"#), "{event}");
}

#[test]
fn a_row_that_gets_a_frontend_of_another_is_a_new_one() {
    let mut rows = NumberedRows::new();
    rows.advance(1, Some(vec![row(1, 0, &[80, 443]), row(2, 0, &[8080])]), &[1 << 40, 2, 3, 4]);
    let event = rows.advance(2, Some(vec![row(1, 0, &[80]), row(2, 0, &[443, 8080])]), &[1, 2, 1 << 40, 4]);
    assert!(
        event.contains(r#""gone":[0,1],"rows":[{"id":2,"name":1,"state":0},{"id":3,"name":2,"state":0}]"#),
        "{event}"
    );
    // A new state does not change the number.
    let event = rows.advance(3, Some(vec![row(1, 1, &[80]), row(2, 0, &[443, 8080])]), &[1, 2, 1 << 40, 4]);
    assert!(event.contains(r#""gone":[],"rows":[{"id":2,"name":1,"state":1}]"#), "{event}");
}

#[test]
fn those_who_begin_to_look_within_a_second_share_what_they_get() {
    let mut rows = NumberedRows::new();
    rows.advance(1, Some(vec![row(1, 0, &[80])]), &[1, 2]);
    let first = rows.all();
    assert_eq!(first.as_ptr(), rows.all().as_ptr());
    rows.advance(2, None, &[1, 3]);
    assert!(str::from_utf8(&rows.all()).unwrap().contains(r#""counts":[[0,[1,3]]]"#));
}

#[test]
fn several_frontends_of_a_service_share_its_row_and_the_worst_state_counts() {
    let label = |name, state, port| (TestLabel { name, state }, frontend(port));
    let (rows, places) = merged(vec![label(7, 2, 80), label(3, 1, 80), label(7, 0, 443), label(9, 9, 80)]);
    assert_eq!(rows, [row(3, 1, &[80]), row(7, 0, &[80, 443]), row(9, 9, &[80])]);
    assert_eq!(places, [1, 0, 1, 2]);
}
