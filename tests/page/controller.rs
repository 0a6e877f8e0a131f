//! Tests of a controller's page: all gateways, their differences, and what each would do with a client.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use serde_json::{Value, json};

use crate::browser::{Browser, Look, key};
use crate::keyboard::{expect_names, expect_seen, focused};
use crate::support::cluster::{Account, Cluster};
use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually_within, patience};
use crate::support::process::Process;
use sheave_test_support::program;

const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}txt";

/// Starts a fake gateway on an address of its own, which answers each path with the given JSON.
fn pretend(host: &Host, address: SocketAddr, status: Value, explanation: Value) {
    let listener = host.run(|| TcpListener::bind(address)).expect("a free address");
    // It ends with the process.
    thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap_or_default();
            let request = String::from_utf8_lossy(&asked[..length]);
            let body = match () {
                () if request.contains("/api/explain") => &explanation,
                () if request.contains("/api/trace") => &trace(explanation["announcedHere"] == true),
                () => &status,
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            // The client may have gone.
            stream.write_all((head + &body).as_bytes()).unwrap_or_default();
        }
    });
}

fn status(node: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut status = json!({
        "node": node, "version": "0.1.0", "role": "gateway", "uptimeSeconds": 4000, "generation": 7, "tableAgeSeconds": 120,
        "tableHash": "a1b2c3d4e5f60718", "frontends": 12, "guard": [], "problems": 0, "firstProblems": [],
        "source": {"kind": "api", "server": "https://10.0.0.1/", "synced": true, "kinds": [], "fromSnapshot": false, "snapshot": null},
        "controller": null, "draining": false, "announcing": {"state": "eligible", "shared": false, "heardBy": 3, "counted": 3,
            "addresses": 12, "announced": 4, "warnings": []},
    });
    change(&mut status);
    status
}

fn explanation(announced: bool, endpoint: &str) -> Value {
    json!({
        "service": "shop/web", "source": "Service", "frontend": "203.0.113.10:80/TCP", "kind": "LoadBalancer", "portName": "http",
        "otherFrontends": [], "client": "198.51.100.7", "clientPort": null, "origin": "external", "allowed": true, "action": "Forward",
        "endpoint": endpoint, "announcedBy": "gw-1", "announcedHere": announced, "reasons": ["every client is admitted"],
        "endpoints": [{"address": endpoint, "slice": "web-1", "node": "n1", "zone": "a", "state": "Ready", "local": false, "used": true,
            "reason": "it may be chosen"}],
    })
}

/// The trace of a gateway that has the address, where an endpoint refuses, or of another one.
fn trace(has_address: bool) -> Value {
    let step = |state: &str, step: &str, found: &str| json!({"step": step, "state": state, "looked": "", "found": found, "advice": ""});
    let steps = match has_address {
        true => [step("ok", "address", "here"), step("stopped", "endpoints", "10.1.0.7:8080 refuses")],
        false => [step("doubtful", "address", "gw-1 announces it"), step("ok", "endpoints", "they answer")],
    };
    let of = |step: &Value| json!({"state": step["state"], "step": step["step"], "text": step["found"], "advice": "do this"});
    json!({
        "node": "x", "service": "shop/web", "source": "Service", "frontend": "203.0.113.10:80/TCP", "client": "198.51.100.7",
        "verdict": of(if has_address { &steps[1] } else { &steps[0] }), "steps": steps,
    })
}

/// A controller on a host with only loopback, whose gateways are at 198.51.100.11 and so on.
struct Scene<'c> {
    cluster: &'c Cluster,
    host: Host,
}

impl<'c> Scene<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        let host = Host::new("all");
        host.ip(&["route add local 198.51.100.0/24 dev lo".to_owned()]);
        Self { cluster, host }
    }

    fn address(number: usize) -> SocketAddr {
        let number = u8::try_from(number).expect("a small number");
        SocketAddr::from((Ipv4Addr::new(198, 51, 100, 10 + number), 9842))
    }

    /// Tells the controller which gateways exist, starting with gw-1.
    fn gateways_are(&self, count: usize) {
        let endpoint = |number: usize| {
            let ip = Ipv4Addr::from(0xc633_6400 + 10 + u32::try_from(number).expect("a small number"));
            format!("{{addresses: [{ip}], nodeName: gw-{number}, conditions: {{ready: true}}}}")
        };
        let endpoints: Vec<String> = (1..=count).map(endpoint).collect();
        self.cluster.apply(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: gateways-page, namespace: sheave-system, labels: \
             {{kubernetes.io/service-name: sheave-gateways}}}}\naddressType: IPv4\nports: [{{name: report, port: 9842, protocol: \
             TCP}}]\nendpoints: [{}]\n",
            endpoints.join(", ")
        ));
    }

    /// Starts the controller, and returns the process and its admin address.
    fn controller(&self, folder: &tempfile::TempDir) -> (Process, SocketAddr) {
        let road = self.cluster.road(&self.host);
        let free =
            self.host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()));
        let admin = free.expect("a free port");
        let kubeconfig = self.cluster.kubeconfig(Account::Controller, &road);
        let config = folder.path().join("config.yaml");
        let text =
            format!("node: ctl\nkubeconfig: {}\nadmin: {{listen: \"{admin}\"}}\n", kubeconfig.display());
        fs::write(&config, text).expect("a file is written");
        // The road must last as long as the process.
        std::mem::forget(road);
        let process =
            self.host.start(program::path(), &["controller", "--config", &config.display().to_string()]);
        eventually_within(patience(60.0), "the controller leads", || {
            let answer =
                self.host.run(|| http::get(admin, "/api/status")).map_err(|error| error.to_string())?;
            let leads = answer.body.contains("\"leading\": true") && answer.body.contains("\"synced\": true");
            if leads { Ok(()) } else { Err(answer.body) }
        });
        (process, admin)
    }
}

/// Uses the page without a mouse, and checks what a screen reader gets.
fn reached_by_the_keyboard(browser: &Browser<'_>) {
    browser.press(key::TAB);
    assert_eq!(focused(browser), "Skip to gateways");
    expect_seen(browser);
    for expected in ["Search gateways", "asked", "client", "Explain", "Trace"] {
        let name =
            "document.activeElement.id || document.activeElement.name || document.activeElement.innerText";
        browser.press(key::TAB);
        expect_seen(browser);
        let reached = [focused(browser), browser.value(name).as_str().unwrap_or_default().to_owned()];
        assert!(reached.iter().any(|it| it == expected), "{expected}: {reached:?}");
    }
    browser.run("document.activeElement.blur()");
    browser.press("/");
    assert_eq!(focused(browser), "Search gateways");
    browser.run("document.activeElement.blur()");
    expect_names(
        browser,
        &[
            "Sheave all gateways",
            "Problems and differences",
            "Gateways",
            "Explain a decision",
            "This controller",
        ],
    );
}

#[test]
fn all_gateways_are_on_the_page_of_a_controller() {
    let cluster = Cluster::simulated("page");
    let scene = Scene::new(&cluster);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let well = |number: usize| status(&format!("gw-{number}"), |_| ());
    pretend(&scene.host, Scene::address(1), well(1), explanation(true, "10.1.0.7:8080"));
    pretend(&scene.host, Scene::address(2), well(2), explanation(false, "10.1.0.7:8080"));
    let differs = |it: &mut Value| {
        it["tableHash"] = json!("ffff");
        it["tableAgeSeconds"] = json!(900);
        it["frontends"] = json!(11);
        it["problems"] = json!(1);
        it["firstProblems"] = json!([{"object": format!("Service shop/{HOSTILE}"), "reason": "BindFailed", "message": format!("cannot listen {HOSTILE}")}]);
        it["unhealthyEndpoints"] = json!(1);
        it["firstUnhealthy"] = json!([{"service": "shop/web", "protocol": "TCP", "endpoint": "10.1.0.8:8080", "reason": "connection refused", "seconds": 7, "checked": true}]);
    };
    pretend(&scene.host, Scene::address(3), status("gw-3", differs), explanation(false, "10.1.0.9:8080"));
    scene.gateways_are(2);
    let (_controller, admin) = scene.controller(&folder);
    let url = |path: &str| format!("http://{admin}{path}");

    let browser = Browser::open(&scene.host, Look::default());
    browser.visit(&url("/"));
    browser.until_text("#calm", "Nothing is wrong, and all gateways are alike.");
    assert_eq!(browser.text("#verdict"), "all well");
    browser.until_text("#matches", "2 gateways");
    browser.until_text("#facts", "this one leads");
    browser.picture("controller-well");
    browser.expect_well_behaved();
    reached_by_the_keyboard(&browser);

    // The page is updated. The fourth gateway does not answer.
    scene.gateways_are(4);
    browser.until_text("#matches", "4 gateways");
    browser.until("document.querySelectorAll('#list tbody tr.broken, #list tbody tr.degraded').length === 2");
    let first = "[...document.querySelectorAll('#list tbody tr')].map((row) => row.cells[0].innerText)";
    assert_eq!(browser.value(first), json!(["gw-4", "gw-3", "gw-1", "gw-2"]), "the worst first");
    assert_eq!(browser.text("#list tbody tr.degraded .differs"), "table, problems, health");
    let findings = browser.text("#findings");
    for part in [
        "gw-4 does not answer: no connection: ",
        "Routing tables differ: gw-1, gw-2 (12 frontends",
        "shop/<img src=x onerror=alert(1)> txt",
        "on gw-3 only",
        "10.1.0.8:8080 (TCP) of shop/web: connection refused",
    ] {
        assert!(findings.contains(part), "{part}: {findings}");
    }
    assert_eq!(browser.value("document.images.length"), json!(0));
    browser.until("document.title.endsWith('all gateways · Sheave') && document.title.startsWith('(')");

    browser.run("document.querySelector('#search').value = 'silent'; document.querySelector('#search').dispatchEvent(new Event('input'))");
    browser.until_text("#matches", "1 match");
    browser.run("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input'))");
    browser.run("document.querySelector('#asked').value = 'shop/web'; document.querySelector('[name=client]').value = '198.51.100.7'; document.querySelector('#question button').click()");
    browser.until_text("#answer", "gw-1 announces this address, so the client comes there.");
    browser.until_text("#answer .decision", "198.51.100.7, outside the cluster, goes to 10.1.0.7:8080.");
    let answer = browser.text("#answer");
    assert!(answer.contains("goes to 10.1.0.9:8080") && answer.contains("gw-4 does not answer"), "{answer}");
    browser.until("location.search.includes('explain=shop%2Fweb')");
    browser.picture("controller");
    browser.expect_well_behaved();

    traced_by_all(&browser);
    fits_every_window(&scene.host, &url);
    refuses_others(&scene.host, admin);
}

/// The trace of each gateway, the one that the client comes to unfolded.
fn traced_by_all(browser: &Browser<'_>) {
    browser.click("#trace");
    browser.until_text("#answer .decision", "stopped: on gw-1: 10.1.0.7:8080 refuses");
    let answer = browser.text("#answer");
    for part in ["gw-2 the client's packets do not come here", "gw-4 does not answer: no connection: "] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    let open = "[...document.querySelectorAll('#answer details')].map((it) => it.open)";
    assert_eq!(browser.value(open), json!([true, false, false]));
    browser.picture("controller-trace");
    browser.expect_well_behaved();
}

/// The page in a medium and a narrow window, and without JavaScript.
fn fits_every_window(host: &Host, url: &dyn Fn(&str) -> String) {
    let medium = Browser::open(host, Look { width: 960, ..Look::default() });
    medium.visit(&url("/"));
    medium.until_text("#matches", "4 gateways");
    let whole = "(document.querySelector('#list table').getBoundingClientRect().right <= innerWidth)";
    assert_eq!(medium.value(whole), json!(true), "all columns are seen");
    medium.picture("controller-medium");
    medium.expect_well_behaved();

    let plain = Browser::open(host, Look { javascript: false, ..Look::default() });
    plain.visit(&url("/"));
    let text = plain.text("body");
    for command in ["sheave status --fleet", "sheave explain shop/web", "sheave top", "sheave watch"] {
        assert!(text.contains(command), "{command}: {text}");
    }

    let narrow = Browser::open(host, Look { width: 360, dark: true, ..Look::default() });
    narrow.visit(&url("/?explain=shop/web&client=198.51.100.7"));
    narrow.until_text("#answer .decision", "goes to 10.1.0.7:8080");
    narrow.until_text("#matches", "4 gateways");
    narrow.picture("controller-narrow-dark");
    narrow.expect_well_behaved();
}

/// Requests from other pages, and methods that change something.
fn refuses_others(host: &Host, admin: SocketAddr) {
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        host.run(|| http::send(admin, method, path, headers, "")).expect("an answer")
    };
    let name = admin.to_string();
    let by_address = ("Host", name.as_str());
    assert_eq!(ask("GET", "/api/fleet", &[("Host", "rebound.example")]).status, 421);
    let link = [by_address, ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")];
    for (path, status) in [("/", 200), ("/api/fleet", 403), ("/api/status", 403), ("/metrics", 403)] {
        assert_eq!(ask("GET", path, &link).status, status, "{path}");
    }
    for path in
        ["/api/status", "/api/fleet", "/api/fleet/explain", "/api/fleet/trace", "/api/fleet/capture/gw-1"]
    {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            assert_eq!(ask(method, path, &[by_address]).status, 405, "{method} {path}");
        }
    }
}
