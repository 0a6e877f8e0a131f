//! Tests of access to the ports that a gateway opens to the network, for scrapers and the controller with their Kubernetes
//! tokens.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use sheave_control::api::gateway_report::AUDIENCE;

use crate::outage_kit::wait_for_snapshot;
use crate::stage::{
    NODE_ADDRESS, Role, Stage, free_port, pool, service, wait_for_addresses, wait_for_condition,
};
use crate::support::apiserver::ApiServer;
use crate::support::certificate::Certificate;
use crate::support::cluster::{Account, Cluster};
use crate::support::http;
use crate::support::patience::eventually;
use crate::support::process::Finished;
use crate::support::seccomp::{Otherwise, Refused};

const SCRAPER: &str = "system:serviceaccount:monitoring:prometheus";
/// Known user without permissions.
const TENANT: &str = "system:serviceaccount:shop:web";

/// Status of a request with this token, by a client that trusts this certificate; 0 without a response.
fn ask(stage: &Stage<'_>, url: &str, trusted: &Path, token: &str) -> (u16, Finished) {
    let header = format!("Authorization: Bearer {token}");
    let trusted = trusted.display().to_string();
    let mut arguments = vec!["-s", "-S", "-m", "20", "-w", "\n%{http_code}", "--cacert", &trusted, url];
    if !token.is_empty() {
        arguments.extend(["-H", &header]);
    }
    let answer = stage.host.finish("curl", &arguments);
    let code = answer.stdout.rsplit('\n').next().and_then(|code| code.parse().ok());
    (code.unwrap_or_default(), answer)
}

fn grant(server: &ApiServer, user: &str, path: &str) -> String {
    let rules = json!([{"nonResourceURLs": [path], "verbs": ["get"]}]);
    server.authorize(user, &[json!({"kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules})]);
    server.token(user)
}

#[test]
fn scrapers_are_those_whom_the_api_server_lets_in() {
    let cluster = Cluster::simulated("scrape");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let certificate = Certificate::issue(&stage.host, &format!("IP:{NODE_ADDRESS}"));
    let address = SocketAddr::from((NODE_ADDRESS, stage.host.run(|| free_port(NODE_ADDRESS))));
    let config = format!(
        "metrics: {{listen: \"{address}\", authorization: kubernetes, tls: {{certificate: {}, key: {}}}}}\n",
        certificate.certificate().display(),
        certificate.key().display()
    );
    // With a seccomp filter: only system calls of the profile in deploy are allowed.
    let profile = Refused::Unnamed(Otherwise::End).prefix();
    let mut gateway = stage.launch_behind(&profile, &stage.home(Role::Gateway, &road, &config));
    gateway.wait_until_ready();
    let url = format!("https://{address}/metrics");
    let scrape = |token: &str| ask(&stage, &url, &certificate.certificate(), token);

    let scraper = grant(server, SCRAPER, "/metrics");
    let tenant = grant(server, TENANT, "/healthz");
    let (code, answer) = scrape(&scraper);
    assert!(code == 200 && answer.stdout.contains("sheave_table_generation"), "{}", answer.stderr);
    assert_eq!(scrape(&tenant).0, 403);
    let elsewhere = server.token_for(SCRAPER, AUDIENCE);
    for nobody in ["", "made-up", elsewhere.as_str()] {
        assert_eq!(scrape(nobody).0, 401, "{nobody}");
    }

    // Without the API server, unknown tokens are refused.
    let late = server.token("system:serviceaccount:monitoring:late");
    road.close();
    assert_eq!((scrape(&scraper).0, scrape(&late).0), (200, 503));
    gateway.wait_for_log("the API server cannot be asked about bearer tokens");
    road.reopen();
    eventually("the API server is asked again", || match scrape(&late).0 {
        200 => Ok(()),
        code => Err(code),
    });

    // Same without the permission to create reviews.
    server.authorize(Account::Gateway.user(), &[]);
    assert_eq!(scrape(&server.token("system:serviceaccount:monitoring:third")).0, 503);

    let first = fs::read(certificate.certificate()).expect("a certificate");
    certificate.renew(&stage.host);
    assert_eq!(scrape(&scraper).0, 200, "the new certificate is in use");
    let second = certificate.folder().join("second");
    fs::copy(certificate.certificate(), &second).expect("a copy");
    fs::write(certificate.certificate(), first).expect("a file is written");
    assert_eq!(ask(&stage, &url, &second, &scraper).0, 200, "one without its key is not");
    gateway.wait_for_log("the last good one stays in use");
    wait_for_snapshot(&gateway);
    let plain = url.replace("https", "http");
    assert_eq!(ask(&stage, &plain, &second, &scraper).0, 0, "nothing is said without TLS");
    assert!(gateway.stop().success());
}

#[test]
fn a_controller_answers_others_nothing_but_probes() {
    let cluster = Cluster::simulated("probes");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let home = stage.home(Role::Controller, &road, "");
    let open = fs::read_to_string(home.config()).expect("a configuration").replace("127.0.0.1:", "0.0.0.0:");
    fs::write(home.config(), open).expect("a file is written");
    let controller = stage.start(&home);
    let others = SocketAddr::from((NODE_ADDRESS, controller.admin().port()));
    for path in [
        "/",
        "/metrics",
        "/api/status",
        "/api/fleet",
        "/api/fleet/explain?service=shop/web",
        "/livez",
        "/readyz",
    ] {
        let status = |admin| stage.host.run(|| http::get(admin, path)).expect("an answer").status;
        let is_probe = matches!(path, "/livez" | "/readyz");
        assert_eq!(status(others) == 403, !is_probe, "{path}");
        assert_ne!(status(controller.admin()), 403, "{path}");
    }
    assert!(controller.stop().success());
}

/// Whoever may read reports and status learns nothing of packets.
fn traces_need_a_right_of_their_own(
    stage: &Stage<'_>,
    server: &ApiServer,
    address: SocketAddr,
    controller: &str,
    namespace: &str,
) {
    let reader = "system:serviceaccount:shop:reader";
    grant(server, reader, "/api/report");
    let trace = |of: &str| format!("trace{of}?service={namespace}/web");
    let paths = ["status".to_owned(), trace(""), trace("/1"), "capture.pcap".to_owned()];
    let get_one = |token: &str, path: &str| {
        ask(stage, &format!("http://{address}/api/{path}"), Path::new("/dev/null"), token).0
    };
    let get = |token: &str| paths.iter().map(|path| get_one(token, path)).collect::<Vec<_>>();
    assert_eq!(get(&server.token_for(reader, AUDIENCE)), [200, 403, 403, 403]);
    let file = paths.len() - 1;
    assert_eq!(get_one(controller, &paths[file]), 404, "the administrator's file");
    assert_eq!(get(controller), [200; 4]);
}

#[test]
fn reports_are_for_the_controller() {
    let cluster = Cluster::simulated("report");
    let server = cluster.test_server().expect("this is the test server");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let address = SocketAddr::from((NODE_ADDRESS, stage.host.run(|| free_port(NODE_ADDRESS))));
    let config = format!("report: {{listen: \"{address}\", authorization: kubernetes}}\n");
    let gateway = stage.start(&stage.home(Role::Gateway, &road, &config));
    stage.gateway_is(true, address.port());
    pool(&cluster, "report", "203.0.113.60");
    service(&cluster, "web", "");

    // A controller of a version without tokens.
    let silent = stage.start(&stage.home(Role::Controller, &road, ""));
    wait_for_addresses(&cluster, "web");
    silent.wait_for_log("it answers 401 Unauthorized");
    let (reason, _) = wait_for_condition(&cluster, ("Service", "web"), "sheave.dev/Programmed", "False");
    assert_eq!(reason, "NoGateway");
    assert!(silent.stop().success());

    let token = cluster.token(Account::Controller, AUDIENCE);
    let shows = format!("gateways: {{tokenFile: {}}}\n", token.display());
    let profile = Refused::Unnamed(Otherwise::End).prefix();
    let mut controller = stage.launch_behind(&profile, &stage.home(Role::Controller, &road, &shows));
    controller.wait_until_ready();
    wait_for_condition(&cluster, ("Service", "web"), "sheave.dev/Programmed", "True");

    let url = format!("http://{address}/api/report");
    let ask = |token: &str| ask(&stage, &url, Path::new("/dev/null"), token).0;
    let token = fs::read_to_string(token).expect("a token");
    // A token for the API server is not valid here, and this one is not valid there.
    let own = server.token(Account::Controller.user());
    assert_eq!((ask(&token), ask(&own), ask("")), (200, 401, 401));
    server.authorize(TENANT, &[]);
    assert_eq!(ask(&server.token_for(TENANT, AUDIENCE)), 403);
    // What an administrator captures may have payload, and is nobody else's.
    gateway.page(&format!("/api/trace/1?service={}/web", cluster.namespace()));
    traces_need_a_right_of_their_own(&stage, server, address, &token, cluster.namespace());
    assert!(controller.stop().success());
}
