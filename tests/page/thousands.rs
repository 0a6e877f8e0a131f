//! Tests with many Services: the document contains only the visible ones, and all can be found.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::browser::{Browser, Look, key};
use crate::scene::{Gateway, Service, host};

/// Rows of a tall list, including those beyond its edges.
const MOST_ROWS: u64 = 60;

/// Script that records when the first rows appear, and each task that blocks the page for 50 ms (Long Tasks API).
const WATCH: &str = "
    window.watched = {tasks: []};
    const note = (list) => list.getEntries().forEach(({startTime, duration}) => watched.tasks.push({startTime, duration}));
    new PerformanceObserver(note).observe({type: 'longtask', buffered: true});
    const look = () => {
      if (document.querySelector('#rows .disclose')) watched.rows = performance.now();
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look)";

/// Times of the page so far, and of a change at `changed`.
fn figures(browser: &Browser<'_>, changed: &Value) -> String {
    let number = |value: Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no time"));
    let paint = number(browser.value("performance.getEntriesByName('first-contentful-paint')[0]?.startTime"));
    let rows = number(browser.value("watched.rows"));
    let tasks = browser.value("watched.tasks");
    let tasks: Vec<(f64, f64)> = tasks
        .as_array()
        .expect("a list")
        .iter()
        .map(|task| (number(task["startTime"].clone()), number(task["duration"].clone())))
        .collect();
    let changed = number(changed.clone());
    let long = |wanted: &dyn Fn(f64) -> bool| {
        let durations: Vec<f64> =
            tasks.iter().filter(|(start, _)| wanted(*start)).map(|(_, took)| *took).collect();
        let longest = durations.iter().copied().fold(0.0, f64::max);
        format!("{} tasks of 50 ms or more, the longest of {longest:.0} ms", durations.len())
    };
    format!(
        "first contentful paint {paint:.0} ms, first rows {rows:.0} ms; {} until a change; {} after it",
        long(&|start| start < changed),
        long(&|start| start >= changed),
    )
}

fn services(count: u16) -> Vec<Service> {
    let one = |number: u16| {
        let [high, low] = number.to_be_bytes();
        Service {
            namespace: ["blog", "data", "ops", "shop"][usize::from(number % 4)],
            address: Some(Ipv4Addr::new(10, 200, high, low)),
            endpoints: vec![
                (Ipv4Addr::new(127, 1, high, low), true),
                (Ipv4Addr::new(127, 2, high, low), true),
            ],
            ..Service::new(&format!("service-{number:05}"), 1)
        }
    };
    (1..=count).map(one).collect()
}

fn rows(browser: &Browser<'_>) -> u64 {
    browser.value("document.querySelectorAll('#rows .disclose').length").as_u64().expect("a number")
}

fn searched(browser: &Browser<'_>, text: &str, matches: &str) {
    browser.run(&format!(
        "const box = document.querySelector('#search'); box.value = {text:?}; box.dispatchEvent(new Event('input'))"
    ));
    browser.until_text("#matches", matches);
    browser.until_drawn();
}

fn are_found_and_followed(count: u16) {
    let host = host();
    let mut services = services(count);
    let gateway = Gateway::start(&host, &services, "");
    let browser = Browser::open(&host, Look::default());
    browser.run_first(WATCH);
    browser.visit(&gateway.url("/"));
    let all = format!("{},000", count / 1000);
    browser.until(&format!("document.querySelector('#states .all b')?.innerText === {all:?}"));
    browser
        .until(&format!("document.querySelector('#list').getAttribute('aria-rowcount') === '{}'", count + 1));
    browser.until("document.querySelectorAll('#rows .disclose').length > 10");
    browser.picture(&format!("{count}"));
    assert!(rows(&browser) < MOST_ROWS);

    let last = format!("shop/service-{:05}", count - 1);
    browser.run("document.querySelector('#rows .disclose').focus()");
    browser.press(key::END);
    browser.until(&format!("document.activeElement.innerText.trim() === {last:?}"));
    assert!(rows(&browser) < MOST_ROWS);
    assert_eq!(
        browser.value("document.activeElement.closest('tr').ariaRowIndex"),
        json!((count + 1).to_string())
    );

    searched(&browser, &format!("service-{:05}", count - 1), "1 match");
    assert_eq!(rows(&browser), 1);
    searched(&browser, "shop service-000", "25 matches");
    searched(&browser, "10.200.0.7:80", "1 match");
    browser.until("document.querySelector('#rows .name').innerText.includes('service-00007')");
    searched(&browser, "", "");

    // Changes arrive on their own, without unchanged rows.
    browser.run(
        "window.received = []; const parse = JSON.parse; JSON.parse = (text) => { const value = parse(text); \
         if (value?.removed) window.received.push(value); return value; }",
    );
    services.remove(0);
    services[0].endpoints.clear();
    let changed = browser.value("performance.now()");
    gateway.apply(&services);
    browser.until("document.querySelector('#states .broken b').innerText === '1'");
    browser.until("document.querySelector('#rows .name').innerText === 'ops/service-00002'");
    let received = browser.value("window.received");
    let events: &Vec<Value> = received.as_array().expect("a list");
    let rows: usize = events.iter().filter_map(|event| event["rows"].as_array()).map(Vec::len).sum();
    let removed: usize = events.iter().filter_map(|event| event["removed"].as_array()).map(Vec::len).sum();
    assert_eq!((rows, removed), (1, 1), "{received:#}");
    browser.expect_well_behaved();
    println!("{count} Services: {}", figures(&browser, &changed));
}

#[test]
fn a_thousand_are_found_and_followed() {
    are_found_and_followed(1_000);
}

#[test]
fn ten_thousand_are_found_and_followed() {
    are_found_and_followed(10_000);
}
