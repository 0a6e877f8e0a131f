//! Tests of obstacles for first-time users of the page: missing rows, cut text, links to queries, and navigation back.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

use crate::browser::{Browser, Look};
use crate::scene::{Gateway, Service, host};

/// Services that fit on a page without scrolling.
fn twelve() -> Vec<Service> {
    (10..22).map(|last| Service::new(&format!("service-{last}"), last)).collect()
}

#[test]
fn a_list_that_fits_is_drawn_to_its_end() {
    let host = host();
    let gateway = Gateway::start(&host, &twelve(), "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 12");
    let last = "[...document.querySelectorAll('#rows tr[role=row]')].at(-1).getBoundingClientRect().bottom";
    let list = "document.querySelector('.listing').getBoundingClientRect().bottom";
    assert_eq!(
        browser.value(&format!("Math.abs({last} - {list}) < 3")),
        json!(true),
        "no empty band below the rows"
    );
    browser.expect_well_behaved();
}

#[test]
fn an_opened_row_reads_as_text_and_nothing_of_it_is_cut() {
    let host = host();
    let long = Service {
        metadata: ", annotations: {sheave.dev/max-connections: lots, sheave.dev/connect-timeout: never, sheave.dev/balance: fastest}",
        ..Service::new("service-with-a-name-that-is-rather-long", 10)
    };
    let gateway = Gateway::start(&host, &[long], "");
    for width in [1280, 360] {
        let browser = Browser::open(&host, Look { width, ..Look::default() });
        browser.visit(&gateway.url("/"));
        browser.until("document.querySelector('#rows .disclose') !== null");
        // Anywhere in the row.
        browser.click("#rows .endpoints");
        browser.until_text("tr.detail .endpoints-list", "127.0.1.10:8080");
        let weights = "[...document.querySelectorAll('tr.detail li, tr.detail .wide td bdi, tr.detail p')].map((it) => getComputedStyle(it).fontWeight)";
        assert_eq!(browser.value(&format!("[...new Set({weights})]")), json!(["400"]));
        let cut = "[...document.querySelectorAll('tr.detail p, tr.detail li, tr.detail .wide td')].filter((it) => \
                   it.getBoundingClientRect().right > document.querySelector('.listing').getBoundingClientRect().right)\
                   .map((it) => it.innerText)";
        assert_eq!(browser.value(cut), json!([]), "{width}");
        // The selection of a state draws no button next to its label.
        browser.click("#states label.ok");
        assert_eq!(browser.value("document.activeElement.getBoundingClientRect().width"), json!(1));
        browser.expect_well_behaved();
    }
}

#[test]
fn a_question_may_name_an_address_or_the_end_of_a_name_and_the_way_back_leads_to_the_one_before() {
    let host = host();
    let gateway = Gateway::start(&host, &twelve(), "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 12");
    let ask = |text: &str| {
        browser.run(&format!(
            "document.querySelector('#asked').value = '{text}'; document.querySelector('#question button').click()"
        ));
    };
    for (text, service) in [
        ("203.0.113.12", "shop/service-12"),
        ("203.0.113.13:80", "shop/service-13"),
        ("203.0.113.14:80/tcp", "shop/service-14"),
        ("service-15", "shop/service-15"),
    ] {
        ask(text);
        browser.until_text("#answer .muted", service);
        assert_eq!(browser.value("document.querySelector('#asked').value"), json!(service));
    }
    ask("203.0.113.99");
    browser.until_text("#answer", "No Service has the name or the address 203.0.113.99");
    browser.run("history.back()");
    browser.until_text("#answer .muted", "shop/service-14");
    browser.run("history.back()");
    browser.until_text("#answer .muted", "shop/service-13");
    browser.run("history.forward()");
    browser.until_text("#answer .muted", "shop/service-14");
    // The linked answer is visible.
    browser.visit(&gateway.url("/?explain=shop/service-16"));
    browser.until_text("#answer .muted", "shop/service-16");
    browser
        .until("scrollY > 0 && document.querySelector('#answer').getBoundingClientRect().top < innerHeight");
    // A link within the page only scrolls, and sends no new query.
    browser.run("document.querySelector('#asked').value = 'half'; document.querySelector('.skip').click()");
    browser.until("location.hash === '#services'");
    assert_eq!(browser.value("document.querySelector('#asked').value"), json!("half"));
    // Input that is only typed does not change the address.
    browser.run("document.querySelector('#search').value = 'x'; document.querySelector('#search').dispatchEvent(new Event('input'))");
    browser.until("location.search.includes('search=x')");
    let address = browser.value("location.search");
    assert!(address.as_str().is_some_and(|it| it.contains("explain=shop%2Fservice-16")), "{address}");
    browser.expect_well_behaved();
}

#[test]
fn packets_that_the_kernel_drops_for_source_ranges_are_seen() {
    let host = host();
    let restricted =
        Service { spec: ", loadBalancerSourceRanges: [192.0.2.0/24]", ..Service::new("web", 10) };
    let gateway = Gateway::start(&host, &[restricted], "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until_text("#rows .tag", "restricted");
    browser.click("#rows .disclose");
    let frontend: SocketAddr = "203.0.113.10:80".parse().expect("an address");
    let refused = host.run(|| TcpStream::connect_timeout(&frontend, Duration::from_millis(200)));
    assert!(refused.is_err(), "no range has this client");
    browser.until_text("tr.detail", "dropped by the kernel so far");
    browser.expect_well_behaved();
}

#[test]
fn a_service_that_is_looked_for_in_vain_may_be_in_a_file_that_cannot_be_read() {
    let host = host();
    let gateway = Gateway::start(&host, &twelve(), "");
    fs::write(gateway.manifests().join("team.yaml"), "kind: Service\nmetadata:\n  name: a\n b: c\n")
        .expect("written");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/?search=checkout"));
    browser.until_text("#findings", "team.yaml");
    browser.until_text("#no-rows", "A file that cannot be read may have more: team.yaml.");
    assert_eq!(browser.value("document.querySelector('#verdict').className"), json!("warned"));
    browser.expect_well_behaved();
}

/// The unit tests of the console check its functions against the same table.
#[test]
fn numbers_are_as_the_shared_table_has_them() {
    let host = host();
    let gateway = Gateway::start(&host, &twelve(), "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    let table = include_str!("../../src/console/src/page/formats.json");
    browser.run(&format!(
        "import('/page/format.js').then((format) => {{ window.shown = Object.entries({table}).flatMap(([name, rows]) => \
         rows.map(([number, text]) => [name, number, format[name](number), text])) }})"
    ));
    browser.until("window.shown !== undefined");
    assert!(browser.value("window.shown.length").as_u64() > Some(40));
    let wrong = browser.value("window.shown.filter(([, , shown, text]) => shown !== text)");
    assert_eq!(wrong, json!([]));
}
