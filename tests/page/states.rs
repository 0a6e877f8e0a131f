//! Tests of the page in each state of a gateway, which must be enough to see which Service is broken, why, and what to do.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::browser::{Browser, Look};
use crate::scene::{Gateway, Service, host};
use crate::support::cluster::{Account, Cluster};
use crate::support::http;
use crate::support::patience::{eventually_within, patience};

#[test]
fn an_empty_gateway_says_so_and_what_to_do() {
    let host = host();
    let gateway = Gateway::start(&host, &[], "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until_text("#no-rows", "Create one of type LoadBalancer");
    assert_eq!(browser.text("#problems .calm"), "Nothing is wrong.");
    assert_eq!(browser.text("#verdict"), "all well");
    browser.picture("empty");
    browser.expect_well_behaved();
}

/// All kinds of broken Services.
fn broken() -> Vec<Service> {
    let unready =
        |last| vec![(Ipv4Addr::new(127, 0, 1, last), false), (Ipv4Addr::new(127, 0, 2, last), false)];
    vec![
        Service::new("web", 10),
        Service { endpoints: unready(11), ..Service::new("cart", 11) },
        Service { address: None, ..Service::new("orders", 12) },
        Service { address: Some(Ipv4Addr::new(203, 0, 113, 10)), ..Service::new("web-copy", 13) },
        Service { spec: ", loadBalancerSourceRanges: [10.0.0.0/33]", ..Service::new("ranges", 14) },
        Service { metadata: ", annotations: {sheave.dev/balance: fastest}", ..Service::new("misspelt", 15) },
        Service { class: "example.com/other", ..Service::new("foreign", 16) },
        Service { spec: ", externalTrafficPolicy: Local", ..Service::new("local", 17) },
    ]
}

#[test]
fn each_broken_service_has_its_reason_and_what_to_do() {
    let host = host();
    let gateway = Gateway::start(&host, &broken(), "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 7");
    let states = "Object.fromEntries([...document.querySelectorAll('#rows tr[role=row]')].map((row) => \
                  [row.querySelector('.name').innerText, row.querySelector('.state').innerText]))";
    let expected = json!({
        "shop/cart": "broken", "shop/local": "not here", "shop/misspelt": "degraded", "shop/orders": "broken",
        "shop/ranges": "broken", "shop/web": "ok", "shop/web-copy": "broken",
    });
    assert_eq!(browser.value(states), expected);
    // Worst first.
    assert_eq!(browser.text("#rows .name"), "shop/cart");
    assert_eq!(browser.text("#verdict"), "5 problems");
    assert_eq!(browser.value("document.title"), json!("(5) gw · Sheave"));
    let problem = |service: &str| {
        let all =
            browser.value("[...document.querySelectorAll('#findings > li')].map((item) => item.innerText)");
        let found = all.as_array().and_then(|all| {
            all.iter().filter_map(|item| item.as_str()).find(|item| item.contains(service)).map(str::to_owned)
        });
        found.unwrap_or_else(|| panic!("nothing about {service}: {all:#}"))
    };
    for (service, why, what_to_do) in [
        (
            "shop/cart",
            "none of its 2 endpoints is ready",
            "kubectl -n shop get endpointslices -l kubernetes.io/service-name=cart",
        ),
        ("shop/orders", "NoAddress", "kubectl get addresspools"),
        ("shop/web-copy", "already belongs to Service shop/web", "another port or another address"),
        ("shop/ranges", "10.0.0.0/33", "Correct the field"),
        ("shop/misspelt", "fastest", "Correct the field"),
    ] {
        let text = problem(service);
        assert!(text.contains(why) && text.contains(what_to_do), "{service}: {text}");
    }
    browser.click("#not-served summary");
    let foreign = browser.text("#not-served");
    assert!(foreign.contains("shop/foreign") && foreign.contains("sheave.dev/l4"), "{foreign}");
    // A Problem links to its Service.
    browser.click("#findings button.link");
    browser.until_text("tr.detail", "127.0.1.11:8080");
    let detail = browser.text("tr.detail");
    assert!(detail.contains("none of its 2 endpoints is ready") && detail.contains("NotReady"), "{detail}");
    assert_eq!(browser.text("#rows .name"), "shop/cart");
    browser.picture("broken");
    browser.click("tr.detail .places button");
    browser.until_text("#answer", "is refused: no endpoint serves");
    browser.expect_well_behaved();

    // Fixed Problems disappear.
    gateway.apply(&[Service::new("web", 10), Service::new("cart", 11)]);
    browser.until_text("#problems .calm", "Nothing is wrong.");
    browser.until("document.title === 'gw · Sheave'");
    let address = browser.value("location.search");
    assert!(address.as_str().is_some_and(|it| it.contains("explain=shop%2Fcart")), "{address}");
}

#[test]
fn a_question_is_in_the_address_and_can_be_shared() {
    let host = host();
    let gateway = Gateway::start(&host, &broken(), "");
    let browser = Browser::open(&host, Look { dark: true, ..Look::default() });
    browser.visit(&gateway.url("/?explain=shop/web&client=192.0.2.7&search=shop/loc&state=ok"));
    browser.until_text("#answer .decision", "192.0.2.7, outside the cluster, goes to one of 2 endpoints.");
    let answer = browser.text("#answer");
    assert!(answer.contains("every client is admitted") && answer.contains("127.0.1.10:8080"), "{answer}");
    browser.until_text("#matches", "1 match");
    assert_eq!(browser.text("#rows .name"), "shop/local");
    browser.picture("explain-dark");
    browser.run("document.querySelector('[name=client]').value = 'nobody'; document.querySelector('#question button').click()");
    browser.until_text("#answer", "write it as an address");
    browser.run("document.querySelector('#asked').value = 'shop/none'; document.querySelector('[name=client]').value = ''; document.querySelector('#question button').click()");
    browser.until_text("#answer", "there is no Service shop/none");
    // The browser logs responses with an error status.
    assert!(browser.complaints().iter().all(|line| line.contains("/api/explain")));
}

#[test]
fn a_gateway_that_drains_says_so_until_it_is_gone() {
    let host = host();
    let timeouts = "timeouts: {lameDuck: 4s, drain: 30s}\n";
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], timeouts);
    let endpoint = SocketAddr::new(Ipv4Addr::new(127, 0, 1, 10).into(), 8080);
    let other = SocketAddr::new(Ipv4Addr::new(127, 0, 2, 10).into(), 8080);
    let listeners =
        host.run(|| [endpoint, other].map(|it| TcpListener::bind(it).expect("a port of its own")));
    let frontend: SocketAddr = "203.0.113.10:80".parse().expect("an address");
    let open = host.run(|| TcpStream::connect(frontend)).expect("the gateway forwards");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until_text("#tiles", "1 open");
    gateway.signal(Signal::SIGTERM);
    browser.until_text("#findings", "It is about to drain");
    browser.until_text("#findings", "It is draining: nothing new is accepted");
    browser.until_text("#facts", "draining: nothing new is accepted, and open connections finish");
    browser.picture("drain");
    drop((open, listeners));
    browser.until_text("#connection", "not live since");
    browser.until_text("#findings", "check that it runs, and the way to it");
    browser.picture("away");
}

#[test]
fn a_page_goes_on_with_the_process_that_takes_over() {
    let host = host();
    let mut gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 1");
    browser.run("window.unchanged = true");
    let _former = gateway.upgrade();
    gateway.apply(&[Service::new("web", 10), Service::new("new", 11)]);
    browser.until("document.querySelectorAll('#rows .disclose').length === 2");
    browser.until("document.querySelector('#connection').className === 'live'");
    assert_eq!(browser.value("window.unchanged"), json!(true));
    assert!(browser.text("#facts").contains("serving"));
    browser.until_text("#facts", "this process took over within");
}

#[test]
fn an_api_server_that_is_away_is_told_and_what_is_served_stays() {
    let host = host();
    let cluster = Cluster::simulated("page");
    let road = cluster.road(&host);
    cluster.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: LoadBalancer, loadBalancerClass: \
         sheave.dev/l4, ports: [{name: http, port: 80, protocol: TCP}]}\n",
    );
    let status =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.10", "ipMode": "Proxy"}]}}});
    cluster.merge_status("Service", "web", "someone", &status).expect("a Service takes a status");
    cluster.apply(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: \
         {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: \
         TCP}]\nendpoints: [{addresses: [10.1.0.7], conditions: {ready: true}}]\n",
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()));
    let admin = port.expect("a free port");
    let config = format!(
        "kubeconfig: {}\nadmin: {{listen: \"{admin}\"}}\nstateDir: {}\nworkers: 2\nnode: gw\n",
        cluster.kubeconfig(Account::Gateway, &road).display(),
        folder.path().join("state").display()
    );
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, config).expect("a file is written");
    let file = file.display().to_string();
    let gateway = host.start(sheave_test_support::program::path(), &["gateway", "--config", &file]);
    eventually_within(patience(30.0), "the gateway is ready", || {
        match host.run(|| http::get(admin, "/readyz")) {
            Ok(answer) if answer.status == 200 => Ok(()),
            _ => Err(gateway.stderr()),
        }
    });
    let browser = Browser::open(&host, Look::default());
    browser.visit(&format!("http://{admin}/"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 1");
    browser.until_text("#problems .calm", "Nothing is wrong.");
    road.close();
    browser.until_text("#findings", "cannot be watched");
    browser.until_text("#findings", "their last known state stays in force: check that the server runs");
    assert_eq!(browser.text("#rows .state"), "ok");
    let facts = browser.text("#facts");
    assert!(facts.contains("API server") && facts.contains("written") && facts.contains("s ago"), "{facts}");
    browser.picture("outage");
    road.reopen();
    browser.until_text("#problems .calm", "Nothing is wrong.");
    browser.expect_well_behaved();
}

/// View of gateways that announce addresses, from a fake `/api/gateways`, since a single gateway has no others to disagree with.
#[test]
fn the_gateways_and_their_addresses_are_shown() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let browser = Browser::open(&host, Look::default());
    browser.visit(&gateway.url("/"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 1");
    let member = |node: &str, state: &str, heard: bool| {
        json!({"node": node, "address": "192.0.2.2", "state": state, "heard": heard, "heardVia": null,
            "silentMilliseconds": 40, "roundTripMilliseconds": 2, "agrees": true, "ready": true})
    };
    let gateways = json!({
        "node": "gw", "state": "eligible", "heardBy": 3, "counted": 4,
        "tieBreaker": {"address": "192.0.2.254", "reachable": true},
        "members": [member("gw", "candidate", true), member("gw-2", "candidate", true),
            member("gw-3", "candidate", false), member("gw-4", "notAlive", false)],
        "addresses": [{"address": "203.0.113.11", "owner": "gw", "state": "conflict", "interfaces": [],
            "message": "00:00:5e:00:53:01 on eth0 uses it; defended"}],
        "warnings": [],
    });
    let announcing = json!({"state": "eligible", "heardBy": 3, "counted": 4, "addresses": 12, "announced": 5, "warnings": []});
    let snapshot =
        json!({"path": "/var/lib/sheave/snapshot.jsonl", "ageSeconds": 42, "writtenAt": null, "error": null});
    let script = format!(
        "const load = import(new URL('page/process.js', location)); const got = fetch('api/status').then((it) => it.json()); \
         Promise.all([load, got]).then(([process, status]) => {{ status.announcing = {announcing}; \
         status.source.snapshot = {snapshot}; const event = {{ status, gateways: {gateways} }}; \
         const again = () => {{ process.draw(event); window.drawn = true; requestAnimationFrame(again); }}; again(); }})"
    );
    browser.run(&script);
    browser.until("window.drawn === true");
    browser.until_text("#facts", "5 of 12 addresses here; heard by 3 of 4 gateways");
    let facts = browser.text("#facts");
    let expected = [
        "gw (here)",
        "gw-2",
        "40 ms ago",
        "silent",
        "dead",
        "The tie-breaker 192.0.2.254 answers",
        "conflict: 00:00:5e:00:53:01 on eth0 uses it; defended",
        "written 42 s ago",
    ];
    for part in expected {
        assert!(facts.contains(part), "{part}: {facts}");
    }
    browser.picture("announcing");
    browser.expect_well_behaved();
}

#[test]
fn the_page_fits_a_phone() {
    let host = host();
    let mut services = broken();
    services[1].name = "a-name-of-sixty-three-characters-".to_owned() + &"x".repeat(30);
    let gateway = Gateway::start(&host, &services, "");
    let browser = Browser::open(&host, Look { width: 360, ..Look::default() });
    browser.visit(&gateway.url("/?explain=shop/web&client=192.0.2.7"));
    browser.until("document.querySelectorAll('#rows .disclose').length === 7");
    browser.until_text("#answer", "goes to one of 2 endpoints");
    browser.click("#rows tr:nth-child(4) .disclose");
    browser.until("document.querySelector('tr.detail') !== null");
    let outside = "[...document.querySelectorAll('main *')].filter((it) => !it.closest('.wide, .hidden, thead, svg, .disclose bdi') && \
                   it.getBoundingClientRect().right > 360.5).map((it) => it.outerHTML.slice(0, 80))";
    assert_eq!(browser.value(outside), json!([]));
    // The rows have their errors, and without heads a list sorts them.
    browser.until(
        "/^\\d/.test(document.querySelector('#rows tr.ok .errors, #rows tr.degraded .errors').innerText)",
    );
    let shown = "[...document.querySelectorAll('#rows .errors, #order')].every((it) => it.getBoundingClientRect().width > 20)";
    assert_eq!(browser.value(shown), json!(true));
    browser.run(
        "const order = document.querySelector('#order'); order.value = 'name'; order.dispatchEvent(new Event('change'))",
    );
    browser.until("document.querySelector('#rows .name').innerText.includes('a-name-of')");
    browser.picture("narrow");
    browser.expect_well_behaved();
}

#[test]
fn without_javascript_the_page_says_what_to_type() {
    let host = host();
    let gateway = Gateway::start(&host, &[], "");
    let browser = Browser::open(&host, Look { javascript: false, ..Look::default() });
    browser.visit(&gateway.url("/"));
    let text = browser.text("body");
    for command in [
        "sheave status",
        "sheave routes",
        "sheave explain shop/web",
        "sheave gateways",
        "sheave top",
        "sheave watch",
        "kubectl -n sheave-system exec",
    ] {
        assert!(text.contains(command), "{command}: {text}");
    }
    assert!(!text.contains("Traffic"), "{text}");
    browser.picture("no-javascript");
}
