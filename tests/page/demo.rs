//! Test of the page of `sheave demo`, whose address is the first thing it prints.

use serde_json::json;

use crate::browser::{Browser, Look};
use crate::support::host::Host;
use crate::support::patience::eventually;

#[test]
fn the_demo_shows_its_clusters_and_what_is_forwarded() {
    let host = Host::new("demo");
    let mut demo = host.start(sheave_test_support::program::path(), &["demo"]);
    let text = eventually("the demo says what to try", || {
        demo.expect_running();
        let text = demo.stdout();
        if text.contains("Ctrl-C") { Ok(text) } else { Err(text) }
    });
    let url =
        text.lines().find_map(|line| line.trim().strip_prefix("PAGE")).expect("a page").trim().to_owned();
    assert!(text.find("PAGE") < text.find("TCP"));
    let browser = Browser::open(&host, Look::default());
    browser.visit(&url);
    browser.until("document.querySelectorAll('#rows .disclose').length === 3");
    assert_eq!(browser.text("#verdict"), "all well");
    assert_eq!(browser.text("#rows tr:nth-child(3) .clusters"), "east 75 %, west 25 %");

    let shop = text.lines().find_map(|line| line.trim().strip_prefix("FLEET")).expect("a line").trim();
    // Rates are shown while there is traffic.
    let traffic = host.start("bash", &["-c", &format!("while true; do {shop}; done")]);
    browser.until("/[1-9]/.test(document.querySelector('#tiles .tile b').innerText)");
    browser.until("document.querySelector('#tiles path').getAttribute('d') !== ''");
    browser.until("/[1-9]/.test(document.querySelector('#rows tr:nth-child(3) .bytes').innerText)");
    drop(traffic);
    browser.click("#rows tr:nth-child(3) .disclose");
    browser.until_text("tr.detail", "it may be chosen");
    let detail = browser.text("tr.detail");
    assert!(
        detail.contains("Intended share") && detail.contains("east") && detail.contains("75 %"),
        "{detail}"
    );
    // What is measured stands beside what is intended: three of four, by chance.
    browser.until_text("tr.detail", "Measured over ");
    let measured = "document.querySelector('tr.detail table').tBodies[0].rows[0].cells[4].innerText";
    browser.until(&format!("Math.abs(parseInt({measured}) - 75) <= 18"));
    browser.until_text("tr.detail .strip", "75 %, measured ");
    browser.until("document.querySelector('tr.detail .line').getAttribute('d').includes('L')");
    browser.picture("demo");

    // The page shows that a stopped cluster fails, and why.
    let stop = text.lines().find_map(|line| line.trim().strip_prefix("STOP")).expect("a line").trim();
    host.finish("bash", &["-c", stop]).expect_success();
    host.finish("bash", &["-c", shop]).expect_success();
    browser.until_text("#rows .state", "degraded");
    browser.until_text("#findings", "endpoints are unhealthy");
    browser.until_text("tr.detail", "it is unhealthy");
    browser.until_text("tr.detail .strip", "2 fail");
    browser.picture("demo-stopped");
    browser.expect_well_behaved();
    assert_eq!(browser.value("document.querySelectorAll('tr.detail').length"), json!(1));
}
