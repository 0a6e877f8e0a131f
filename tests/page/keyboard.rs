//! Tests of the page without a mouse: everything can be reached, in order, and the focus is visible.

use serde_json::json;

use crate::browser::{Browser, Look, key};
use crate::scene::{Gateway, Service, host};

pub(crate) fn focused(browser: &Browser<'_>) -> String {
    let name = "(document.activeElement.ariaLabel || document.activeElement.innerText || document.activeElement.value || \
                document.activeElement.name || document.activeElement.id).trim().split('\\n')[0]";
    browser.value(name).as_str().expect("a text").to_owned()
}

pub(crate) fn expect_seen(browser: &Browser<'_>) {
    let seen = "((it) => [it, it.nextElementSibling].some((one) => one && getComputedStyle(one).outlineStyle !== 'none'))\
                (document.activeElement)";
    assert_eq!(browser.value(seen), json!(true), "the focus on {:?} is not seen", focused(browser));
}

/// Tab stops after the first one. The list is one, whatever its length, as is each chart.
const STOPS: [&str; 26] = [
    "Traffic",
    "Problems",
    "Services",
    "Explain",
    "This gateway",
    "hour",
    "Connections",
    "To clients",
    "To endpoints",
    "Errors",
    "Connect time",
    "Search Services",
    "all",
    "Service",
    "State",
    "Addresses",
    "Endpoints",
    "Connections/s",
    "Bytes/s",
    "Errors/s",
    "shop/service-10",
    "asked",
    "client",
    "Explain",
    "Trace",
    "Trace and capture 10 s",
];

#[test]
fn everything_is_reached_by_the_keyboard() {
    let host = host();
    let many: Vec<Service> = (10..60).map(|last| Service::new(&format!("service-{last}"), last)).collect();
    let gateway = Gateway::start(&host, &many, "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelectorAll('#rows .disclose').length > 10");

    browser.press(key::TAB);
    assert_eq!(focused(&browser), "Skip to Services");
    expect_seen(&browser);
    let mut reached = Vec::new();
    for _ in STOPS {
        browser.press(key::TAB);
        expect_seen(&browser);
        reached.push(focused(&browser));
    }
    let named: Vec<&str> = reached.iter().map(|it| if it == "explain" { "asked" } else { it }).collect();
    assert_eq!(named, STOPS);

    // From anywhere to the search, and from there into the list.
    browser.run("document.activeElement.blur()");
    browser.press("/");
    assert_eq!(focused(&browser), "Search Services");
    browser.press("service-3");
    browser.until_text("#matches", "10 matches");
    browser.press(key::DOWN);
    assert_eq!(focused(&browser), "shop/service-30");
    browser.press(key::DOWN);
    assert_eq!(focused(&browser), "shop/service-31");
    browser.press(key::ENTER);
    browser.until_text("tr.detail", "127.0.1.31:8080");
    assert_eq!(browser.value("document.activeElement.ariaExpanded"), json!("true"));
    browser.press(key::TAB);
    assert_eq!(browser.value("document.activeElement.closest('tr.detail') !== null"), json!(true));
    browser.run("document.querySelector('[aria-expanded=true]').focus()");
    browser.press(key::ENTER);
    browser.until("document.querySelector('tr.detail') === null");
    browser.press(key::END);
    assert_eq!(focused(&browser), "shop/service-39");
    browser.press("/");
    browser.press(key::ESCAPE);
    browser.until("document.querySelector('#search').value === ''");
    browser.press(key::DOWN);
    browser.press(&key::PAGE_DOWN.repeat(2));
    browser.until("scrollY > 0");
    assert_ne!(focused(&browser), "shop/service-10");
    expect_seen(&browser);
    browser.expect_well_behaved();
}

/// Checks that everything has a name, that these are the headings, and that there are no constant announcements.
pub(crate) fn expect_names(browser: &Browser<'_>, headings: &[&str]) {
    let nameless = "[...document.querySelectorAll('button, input, select, section, table, th')].filter((it) => \
                    !(it.innerText.trim() || it.ariaLabel || it.getAttribute('aria-labelledby') || it.labels?.length || \
                    it.caption)).map((it) => it.outerHTML)";
    assert_eq!(browser.value(nameless), json!([]));
    let found = "[...document.querySelectorAll('h1, h2')].map((it) => it.innerText)";
    assert_eq!(browser.value(found), json!(headings));
    let live =
        "[...document.querySelectorAll('[role=status], [aria-live=polite]')].map((it) => it.id).sort()";
    assert_eq!(browser.value(live), json!(["answer", "connection", "matches", "verdict"]));
}

/// Output for screen readers: a table with its size, headers and states in words, and no constant announcements.
#[test]
fn the_page_has_names_and_roles() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 1");
    expect_names(
        &browser,
        &["Sheave gw", "Traffic", "Problems", "Services", "Explain a decision", "This gateway"],
    );
    assert!(
        browser.text("#process").contains("port-forward deployment/sheave-controller"),
        "the way to all gateways"
    );
    let roles = "[...document.querySelectorAll('#list [role]')].map((it) => it.role)";
    let roles = browser.value(roles);
    for role in ["rowgroup", "row", "columnheader", "rowheader", "cell"] {
        assert!(roles.as_array().expect("a list").contains(&json!(role)), "{role}: {roles}");
    }
    assert_eq!(browser.value("document.querySelector('#list').ariaRowCount"), json!("2"));
}
