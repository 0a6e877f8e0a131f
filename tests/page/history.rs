//! Tests of what the page remembers and measures: history, events, shares and the way of a connection; and of sorting, filters and traces.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::json;

use crate::browser::{Browser, Look, key};
use crate::scene::{Gateway, Service, host};
use crate::support::http;
use crate::support::patience::{eventually_within, patience};

/// Answers every connection at this address, and closes it.
fn serve(gateway: &Gateway<'_>, at: &str) {
    let address: SocketAddr = at.parse().expect("an address");
    let listener = gateway.run(|| TcpListener::bind(address)).expect("a port of its own");
    // It ends with the process.
    thread::spawn(move || listener.incoming().for_each(drop));
}

fn connect(gateway: &Gateway<'_>, frontend: &str, times: usize) {
    let frontend: SocketAddr = frontend.parse().expect("an address");
    for _ in 0..times {
        let stream = gateway.run(|| TcpStream::connect(frontend)).expect("the gateway accepts");
        // The end of the stream, or a reset.
        std::io::copy(&mut &stream, &mut std::io::sink()).unwrap_or_default();
    }
}

/// Waits until the gateway remembers an error of the Service.
fn until_remembered(gateway: &Gateway<'_>, service: &str) {
    eventually_within(patience(40.0), "a sample has the error", || {
        let path = format!("/api/history?service={service}");
        let answer = gateway.run(|| http::get(gateway.admin, &path)).map_err(|error| error.to_string())?;
        let history: serde_json::Value =
            serde_json::from_str(&answer.body).map_err(|error| error.to_string())?;
        let errors = history["recent"]["errors"].as_array().into_iter().flatten();
        if errors.filter_map(serde_json::Value::as_u64).sum::<u64>() > 0 { Ok(()) } else { Err(answer.body) }
    });
}

#[test]
fn an_error_of_the_past_is_seen_on_a_page_that_is_opened_later() {
    let host = host();
    // Nobody listens at its endpoints.
    let gateway = Gateway::start(&host, &[Service::new("web", 10), Service::new("calm", 11)], "");
    connect(&gateway, "203.0.113.10:80", 3);
    until_remembered(&gateway, "shop/web");
    let browser = Browser::open(&host, Look::default());
    let tile = |kind: &str| {
        format!("[...document.querySelectorAll('tr.detail .plot')].find((it) => it.ariaLabel === '{kind}')")
    };
    for visit in 0..2 {
        browser.visit(&gateway.url("/"));
        browser.until("document.querySelector('#rows .disclose') !== null");
        browser.until("document.querySelector('#tiles .bar').getAttribute('d') !== ''");
        browser.run("[...document.querySelectorAll('#rows .disclose')].find((it) => it.innerText === 'shop/web').click()");
        let errors = format!("{}?.querySelector('.bar').getAttribute('d') !== ''", tile("Errors"));
        browser.until(&errors);
        // What happened then is told as well, and pointed at.
        browser.until_text("#changes", "shop/web");
        browser.until_text("tr.detail .events", "unhealthy");
        browser.until(&format!("{}.querySelector('.mark').getAttribute('d') !== ''", tile("Errors")));
        browser.until_text("tr.detail .edge.bad", "none is healthy");
        browser.until_text("tr.detail .strip", "2 fail");
        if visit == 0 {
            browser.picture("history");
        }
    }
    // The keyboard finds the moment, and its value.
    browser.run(&format!("{}.focus()", tile("Errors")));
    let value = "document.activeElement.ariaValueText";
    eventually_within(patience(20.0), "the arrow keys come to the error", || {
        browser.press(key::LEFT);
        let text = browser.value(value);
        let shown = browser.text(".axis.pointed .value");
        let is_error = text.as_str().is_some_and(|it| it.ends_with("/s") && !it.ends_with(", 0/s"));
        if is_error && shown.contains(':') { Ok(()) } else { Err(format!("{text} {shown}")) }
    });
    browser.expect_well_behaved();
}

#[test]
fn nothing_is_asked_while_nobody_looks() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let browser = Browser::open(&host, Look::default());
    browser.run_first(
        "Object.defineProperty(document, 'visibilityState', { get: () => window.isSeen ? 'visible' : 'hidden' })",
    );
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelector('#main').hidden === false");
    let asked = "performance.getEntriesByType('resource').map((it) => new URL(it.name).pathname).filter((it) => it.startsWith('/api/'))";
    assert_eq!(browser.value(asked), json!([]));
    browser.run("window.isSeen = true; document.dispatchEvent(new Event('visibilitychange'))");
    browser.until(&format!("['/api/history', '/api/events'].every((it) => {asked}.includes(it))"));
    browser.until("document.querySelector('#rows .disclose') !== null");
    browser.expect_well_behaved();
}

#[test]
fn services_are_sorted_by_any_column_and_filtered_by_namespace_and_state() {
    let host = host();
    let services = [
        Service::new("web", 10),
        Service { namespace: "blog", ..Service::new("posts", 11) },
        Service { namespace: "blog", endpoints: Vec::new(), ..Service::new("drafts", 12) },
        Service::new("cart", 13),
    ];
    let gateway = Gateway::start(&host, &services, "");
    for at in ["127.0.1.11:8080", "127.0.2.11:8080"] {
        serve(&gateway, at);
    }
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    let names = "[...document.querySelectorAll('#rows .name')].map((it) => it.innerText).join()";
    let shows = |expected: &str| browser.until(&format!("{names} === {expected:?}"));
    shows("blog/drafts,blog/posts,shop/cart,shop/web");
    let sort = |column: &str| browser.click(&format!("th.{column} .sort"));
    sort("name");
    assert_eq!(browser.value("document.querySelector('th.name').ariaSort"), json!("ascending"));
    sort("name");
    shows("shop/web,shop/cart,blog/posts,blog/drafts");
    assert_eq!(browser.value("document.querySelector('th.name').ariaSort"), json!("descending"));
    assert_eq!(browser.value("document.querySelectorAll('[aria-sort]').length"), json!(1));

    // Rates are of all Services, while the counters of endpoints are followed as well.
    sort("opened");
    browser.run("[...document.querySelectorAll('#rows .disclose')].at(-1).click()");
    browser.until("document.querySelector('tr.detail') !== null");
    eventually_within(patience(30.0), "the busiest is first", || {
        connect(&gateway, "203.0.113.11:80", 20);
        let all = browser.value(names);
        if all.as_str().is_some_and(|all| all.starts_with("blog/posts")) { Ok(()) } else { Err(all) }
    });
    browser.picture("sorted");

    let choose = |id: &str, value: &str| {
        browser.run(&format!(
            "const it = document.querySelector('#{id}'); it.value = '{value}'; it.dispatchEvent(new Event('change'))"
        ));
    };
    choose("namespace", "blog");
    shows("blog/posts,blog/drafts");
    assert_eq!(browser.text("#matches"), "2 matches");
    browser.click("#states label.broken");
    shows("blog/drafts");
    let address = browser.value("location.search");
    assert_eq!(address, json!("?state=broken&namespace=blog&sort=opened"));
    // The address brings it back.
    browser.visit(&gateway.url("/?namespace=shop&sort=-name"));
    shows("shop/web,shop/cart");
    assert_eq!(browser.value("document.querySelector('#namespace').value"), json!("shop"));
    browser.visit(&gateway.url("/?namespace=nowhere"));
    browser.until_text("#no-rows", "No Service matches.");
    browser.expect_well_behaved();
}

/// Has `api/trace` answer this, with what is in `captured` of the window, without asking the gateway.
fn trace_answers(browser: &Browser<'_>, body: &serde_json::Value) {
    browser.run_first(&format!(
        "const real = window.fetch; window.fetch = (path, ...rest) => String(path).startsWith('api/trace') ? \
         (window.traced = String(path), Promise.resolve(new Response(JSON.stringify({{ ...{body}, capture: window.captured }}), {{ headers: {{ 'content-type': \
         'application/json' }} }}))) : real(path, ...rest)"
    ));
}

#[test]
fn a_trace_shows_its_verdict_and_each_step() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let step = |state: &str, step: &str, found: &str, advice: &str| json!({"step": step, "state": state, "looked": "`ip route get`", "found": found, "advice": advice});
    let answer = json!({
        "service": "shop/web", "source": "Service", "frontend": "203.0.113.10:80/TCP", "client": "192.0.2.7",
        "verdict": {"state": "stopped", "step": "route", "text": "The way back to 192.0.2.7\u{202e} leads elsewhere.", "advice": "correct the route"},
        "steps": [
            step("ok", "announcement", "<b>nobody else answers</b>", ""),
            step("stopped", "route", "through eth9", "correct the route"),
            step("unseen", "firewall", "CAP_NET_ADMIN is missing", ""),
            step("doubtful", "conntrack", "91 % full", ""),
        ],
    });
    for width in [1280, 360] {
        let browser = Browser::open(&host, Look { width, dark: width == 360, ..Look::default() });
        trace_answers(&browser, &answer);
        browser.visit(&gateway.url("/"));
        browser.until("document.querySelector('#rows .disclose') !== null");
        browser.click("#rows .disclose");
        let button = "tr.detail .places button:last-child";
        browser.until(&format!("document.querySelector('{button}')?.checkVisibility()"));
        browser.click(button);
        browser.until_text("#answer", "Which client does not get through?");
        assert_eq!(browser.value("document.activeElement.name"), json!("client"));
        browser.press("192.0.2.7");
        browser.click("#trace");
        browser
            .until_text("#answer .decision", r"stopped: The way back to 192.0.2.7\u{202e} leads elsewhere.");
        let asked = browser.value("window.traced");
        let asked = asked.as_str().unwrap_or_default();
        for part in ["service=shop%2Fweb", "client=192.0.2.7", "address=203.0.113.10", "port=80"] {
            assert!(asked.contains(part), "{part}: {asked}");
        }
        let steps =
            browser.value("[...document.querySelectorAll('.steps > li .mark')].map((it) => it.innerText)");
        assert_eq!(steps, json!(["✓ ok", "✕ stopped", "? not seen", "! doubtful"]));
        assert!(browser.text(".steps").contains("<b>nobody else answers</b>"));
        browser.picture(&format!("trace-{width}"));
        // The fake answers a capture as well.
        assert_eq!(browser.value("document.querySelector('#answer a[download]')"), json!(null));
        browser.run("window.captured = { packets: 12, path: '/api/capture.pcap' }");
        browser.click("#capture");
        browser.until_text("#answer a[download]", "Save 12 packets");
        let link = browser.value("document.querySelector('#answer a[download]').getAttribute('href')");
        assert_eq!(link, json!("api/capture.pcap"));
        let asked = browser.value("window.traced");
        assert!(asked.as_str().is_some_and(|asked| asked.starts_with("api/trace/10?")), "{asked}");
        browser.expect_well_behaved();
    }
}

/// The arithmetic of charts and counters, without a page around it.
#[test]
fn scales_are_round_and_shares_are_of_what_was_counted() {
    let host = host();
    let gateway = Gateway::start(&host, &[], "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.run(
        "Promise.all([import('/page/chart.js'), import('/page/counters.js')]).then(([{ roundUp }, { EndpointShares, ServiceRates }]) => {
           const label = (id, endpoint) => ({ id, service: 'shop/web', source: 'Service', cluster: 'east', endpoint });
           const event = (at, counts, first = false) => ({ uptimeMilliseconds: at, reset: first, gone: [], rows: first ? [label(0, 'a'), label(1, 'b')] : [], counts });
           const shares = new EndpointShares();
           shares.follow('Service shop/web');
           const measured = () => { const it = shares.measured('Service shop/web'); return [it.seconds, it.total, it.of('east', 'a').picks, it.of('east').picks, it.of('west').picks]; };
           shares.take(event(1000, [[0, [5, 1, 0, 0]], [1, [5, 0, 0, 0]]], true));
           const all = measured();
           shares.take(event(3000, [[0, [35, 1, 0, 0]]]));
           const recent = measured();
           const rates = new ServiceRates();
           rates.take({ ...event(1000, [[0, [10, 0, 0, 0, 0, 0]]], true), rows: [label(0, 'a')] });
           rates.take(event(3000, [[0, [30, 0, 100, 100, 0, 4]]]));
           const { opened, bytes, errors } = rates.of('Service shop/web');
           window.found = { round: [0, 0.07, 1, 3, 51, 1200].map(roundUp), all, recent, rates: [opened, bytes, errors].map(Math.round), unknown: shares.measured('Service other') };
         })",
    );
    browser.until("window.found !== undefined");
    let expected = json!({
        "round": [0, 0.1, 1, 5, 100, 2000], "all": [null, 10, 5, 10, 0], "recent": [2, 30, 30, 30, 0], "rates": [3, 30, 1], "unknown": null,
    });
    assert_eq!(browser.value("window.found"), expected);
}
