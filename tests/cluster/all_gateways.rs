//! Tests of a controller's view of all gateways: `sheave status --fleet` and `/api/fleet`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use sheave_control::api::gateway_report::AUDIENCE;

use crate::reporter::Reporter;
use crate::scene::wait_until_leading;
use crate::stage::{Home, Role, Sheave, Stage, free_port, pool, service, wait_for_addresses};
use crate::support::cluster::{Account, Cluster};
use crate::support::http;
use crate::support::patience::{eventually_within, patience};
use crate::support::port_forward::PodForwards;
use crate::support::process::Finished;
use crate::support::road::Road;

/// Gateways on one machine, each with a Node and an address of its own, and all with the same port.
struct Gateways<'s, 'c> {
    cluster: &'c Cluster,
    stage: &'s Stage<'c>,
    road: &'s Road<'s>,
    port: u16,
}

impl<'s, 'c> Gateways<'s, 'c> {
    fn new(cluster: &'c Cluster, stage: &'s Stage<'c>, road: &'s Road<'s>) -> Self {
        let port = stage.host.run(|| free_port(Ipv4Addr::UNSPECIFIED));
        Self { cluster, stage, road, port }
    }

    fn listener(&self, number: u8) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(198, 51, 100, 10 + number), self.port))
    }

    /// Starts the gateway with this number.
    fn start(&self, number: u8, authorization: &str, config: &str) -> Sheave<'s> {
        let Self { cluster, stage, road, .. } = self;
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: gw-{number}}}\nstatus: {{addresses: [{{type: InternalIP, address: \
             {}}}]}}\n",
            self.listener(number).ip()
        ));
        let config = format!("report: {{listen: \"{}\"{authorization}}}\n{config}", self.listener(number));
        let kubeconfig = cluster.kubeconfig(Account::Gateway, road);
        let home = stage.home_on(&format!("gw-{number}"), Role::Gateway, &kubeconfig, &config);
        stage.start(&home)
    }

    /// Tells the controller which gateways exist.
    fn are(&self, numbers: &[u8]) {
        let endpoint = |number: &u8| {
            let ip = self.listener(*number).ip();
            format!("{{addresses: [{ip}], nodeName: gw-{number}, conditions: {{ready: true}}}}")
        };
        let endpoints: Vec<String> = numbers.iter().map(endpoint).collect();
        self.cluster.apply(&format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: gateways-all, namespace: sheave-system, labels: \
             {{kubernetes.io/service-name: sheave-gateways}}}}\naddressType: IPv4\nports: [{{name: report, port: {}, protocol: \
             TCP}}]\nendpoints: [{}]\n",
            self.port,
            endpoints.join(", ")
        ));
    }
}

/// Output of `sheave status --fleet`, once it contains all parts.
fn wait_for_text(stage: &Stage<'_>, home: &Home, code: i32, parts: &[&str]) -> String {
    eventually_within(patience(40.0), &format!("all gateways, with {parts:?} and exit code {code}"), || {
        let told = stage.command(home, "status", &["--fleet"]);
        let (exit, Finished { stdout, stderr, .. }) = (told.code(), told);
        let complete = parts.iter().all(|part| stdout.contains(part)) && exit == Some(code);
        if complete { Ok(stdout) } else { Err(format!("{exit:?}: {stdout}{stderr}")) }
    })
}

fn gateway<'v>(view: &'v Value, node: &str) -> &'v Value {
    let gateways = view["gateways"].as_array().expect("gateways");
    gateways.iter().find(|it| it["node"] == node).unwrap_or_else(|| panic!("no {node}: {view}"))
}

/// Queries with a port-forward, as outside of the cluster, which leads to the leader.
fn through_port_forward(stage: &Stage<'_>, home: &Home, admin: SocketAddr, gateway: SocketAddr) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let api = PodForwards::start(&stage.host, admin, &[("sheave-controller-x", true)]);
    fs::write(path("kubeconfig"), api.kubeconfig()).expect("a file is written");
    // Admin address without a listener.
    let unused = stage.host.run(|| free_port(Ipv4Addr::LOCALHOST));
    let text = fs::read_to_string(home.config()).expect("a configuration");
    let elsewhere = text.replace(&admin.to_string(), &format!("127.0.0.1:{unused}"));
    fs::write(path("config.yaml"), elsewhere).expect("a file is written");
    let (config, kubeconfig) = (path("config.yaml"), path("kubeconfig"));
    let run = |cluster: &[&str]| {
        let flags = ["status", "--fleet", "--config", &config];
        stage.host.finish(sheave_test_support::program::path(), &[&flags[..], cluster].concat())
    };
    let prod = ["--kubeconfig", &kubeconfig, "--context", "prod"];
    let asked = run(&prod);
    assert!(
        asked.code() == Some(1) && asked.stdout.contains("6 gateways"),
        "{}{}",
        asked.stdout,
        asked.stderr
    );
    let requests = api.requests();
    assert!(
        requests.len() == 2
            && requests[0].contains("component%3Dcontroller")
            && requests[1].ends_with(&format!("/sheave-controller-x/portforward?&ports={unused}")),
        "{requests:?}"
    );

    api.refuse(true);
    let refused = run(&prod);
    assert_eq!(refused.code(), Some(2));
    for part in ["API server http://127.0.0.1:", "; ask a controller"] {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    // The configuration names the API server of the stage, which has no such Pods.
    let nobody = run(&[]);
    for part in ["nothing listens on http://127.0.0.1:", "; ask a controller"] {
        assert!(nobody.stderr.contains(part), "{part}: {}", nobody.stderr);
    }

    // A gateway listens there, which does not know the others.
    let at_gateway = text.replace(&admin.to_string(), &gateway.to_string());
    fs::write(&config, at_gateway).expect("a file is written");
    let refused = run(&[]);
    assert!(refused.stderr.contains("no controller listens on http://"), "{}", refused.stderr);
}

/// A reporter at the address of gw-5 that lies, from what gw-1 says, and one at that of gw-6 that sends too much.
fn liars(stage: &Stage<'_>, gateways: &Gateways<'_, '_>, mut lies: Value) -> [Reporter; 2] {
    let liar = Reporter::start_at(stage, gateways.listener(5));
    lies["version"] = json!("\u{1b}]0;owned\u{7}<b>1</b>\u{202e}");
    lies["problems"] = json!(1);
    lies["firstProblems"] =
        json!([{"object": "Service x/y", "reason": "R", "message": "all\r\nis \u{1b}[31mlost"}]);
    liar.report(lies);
    let flood = Reporter::start_at(stage, gateways.listener(6));
    flood.report(json!({"node": "x".repeat(10_000_000)}));
    [liar, flood]
}

fn a_service_that_differs_stands_out(cluster: &Cluster, stage: &Stage<'_>, home: &Home, leader: &Sheave<'_>) {
    // A Service with an endpoint on only one of the nodes, and a frontend and a Problem that only one gateway has because of
    // its configuration.
    pool(cluster, "all", "203.0.113.30");
    service(cluster, "web", "externalTrafficPolicy: Local, externalIPs: [203.0.113.99]");
    wait_for_addresses(cluster, "web");
    cluster.apply(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n\
         addressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints: [{addresses: [10.1.0.7], nodeName: gw-1}]\n",
    );
    let text = wait_for_text(
        stage,
        home,
        1,
        &["on gw-2 only: Service ", "ExternalIPRefused", "routing tables differ: "],
    );
    let marked =
        |node: &str| text.lines().any(|line| line.starts_with(node) && line.ends_with("table, problems"));
    assert!(marked("  gw-2"), "{text}");
    let web = format!("{}/web", cluster.namespace());
    let explained =
        stage.command(home, "explain", &[&web, "--client", "198.18.0.7", "--fleet"]).expect_success();
    for part in ["Any gateway may get the client, and they differ. On gw-", "\nOther gateways\n  - on gw-"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let unknown = stage.command(home, "explain", &["shop/none", "--fleet"]);
    assert_eq!(unknown.code(), Some(65), "{}", unknown.stderr);
    let wrong =
        stage.host.run(|| http::get(leader.admin(), "/api/fleet/explain?service=web")).expect("an answer");
    assert_eq!(wrong.status, 400, "{}", wrong.body);
}

fn what_is_wrong_with_each_is_told(stage: &Stage<'_>, home: &Home) {
    let text = wait_for_text(
        stage,
        home,
        1,
        &[
            "6 gateways: 4 serving, 2 silent",
            "gw-3: it answers nothing but its report",
            "gw-4: it does not answer: no connection: ",
            "gw-6: it does not answer: the answer cannot be read: ",
            "versions differ: ",
            "on gw-5: Service x/y: R: all  is  [31mlost",
            "gw-5: it calls itself gw-1, and runs on gw-5",
        ],
    );
    assert!(
        text.chars().all(|char| char == '\n' || !char.is_control()) && !text.contains('\u{202e}'),
        "{text}"
    );
    assert_eq!(stage.command(home, "status", &["--fleet", "-o", "json"]).code(), Some(1));
}

#[test]
fn all_gateways_are_asked_and_those_that_differ_stand_out() {
    let cluster = Cluster::simulated("all");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    let gateways = Gateways::new(&cluster, &stage, &road);
    let guarded = ", authorization: kubernetes";
    let running = [
        gateways.start(
            1,
            guarded,
            "frontends: [LoadBalancer, ExternalIP]\nexternalIPs: {allow: [203.0.113.0/24]}\n",
        ),
        gateways.start(2, guarded, ""),
    ];
    gateways.are(&[1, 2]);
    let token = cluster.token(Account::Controller, AUDIENCE).display().to_string();
    let shows = format!("gateways: {{tokenFile: {token}}}\n");
    let (home, standby) =
        (stage.home(Role::Controller, &road, &shows), stage.home(Role::Controller, &road, &shows));
    let leader = stage.start(&home);
    wait_until_leading(&leader);
    let candidate = stage.start(&standby);

    let alike = wait_for_text(&stage, &home, 0, &["2 gateways: 2 serving, asked by the controller on "]);
    assert!(!alike.contains("What differs"), "{alike}");
    // A standby follows no objects, and lists the gateways on demand.
    wait_for_text(&stage, &standby, 0, &["2 gateways: 2 serving"]);
    let view = candidate.page("/api/fleet");
    assert_eq!(gateway(&view, "gw-1")["tableHash"], gateway(&view, "gw-2")["tableHash"]);

    a_service_that_differs_stands_out(&cluster, &stage, &home, &leader);

    // A gateway that answers anyone, one that is gone, one with wrong answers, and one that sends too much.
    let _open = gateways.start(3, "", "");
    let _liars = liars(&stage, &gateways, running[0].page("/api/status"));
    gateways.are(&[1, 2, 3, 4, 5, 6]);
    what_is_wrong_with_each_is_told(&stage, &home);
    through_port_forward(&stage, &home, leader.admin(), running[0].admin());

    // Gateways do not query others.
    let url = format!("http://{}", running[0].admin());
    let asked = stage.command(&home, "status", &["--fleet", "--admin", &url]);
    assert_eq!(asked.code(), Some(2));
    assert!(asked.stderr.contains("ask a controller"), "{}", asked.stderr);

    // The leader continues with the objects that it knows.
    gateways.are(&[1, 2]);
    wait_for_text(&stage, &home, 1, &["2 gateways: 2 serving"]);
    road.close();
    wait_for_text(&stage, &home, 1, &["2 gateways: 2 serving"]);
    let asked = stage.command(&standby, "status", &["--fleet"]);
    assert_eq!(asked.code(), Some(2));
    assert!(asked.stderr.contains("the API server does not list the gateways"), "{}", asked.stderr);
    road.reopen();
    gateways.are(&[]);
}
