//! Tests that `/metrics` of gateways and controllers is valid for Prometheus, whatever the names of objects are.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::prometheus::{Prometheus, promtool};
use crate::scene::Scene;
use crate::stage::{Role, free_port};
use crate::support::cluster::Cluster;
use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually_within, patience};

fn expect_good(text: &str) {
    let output = promtool(&["check", "metrics"], text);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn promtool_finds_nothing_wrong_with_either_role() {
    let cluster = Cluster::simulated("exposition");
    let scene = Scene::new(&cluster);
    let road = scene.stage.road();
    for role in [Role::Gateway, Role::Controller] {
        let scraped = scene.scraped(role, &road, "");
        let process = scene.stage.start(&scraped.home);
        if role == Role::Controller {
            scene.address();
        }
        let text = scene.stage.host.run(|| http::get(scraped.metrics, "/metrics")).unwrap().body;
        expect_good(&text);
        assert!(text.lines().count() > 50, "{text}");
        drop(process);
    }
}

#[test]
fn promtool_would_find_something() {
    let output = promtool(&["check", "metrics"], "# TYPE a counter\na 1\n");
    assert!(!output.status.success());
}

/// A string that, unescaped, ends a label, a line or a series, in each place that a manifest allows.
const HOSTILE: &str = "a\"b\\c\nd{e=\"f\"} 1 \u{202e}<b>";

#[test]
fn hostile_names_arrive_as_they_are() {
    let host = Host::new("hostile");
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let name = serde_json::to_string(HOSTILE).unwrap();
    std::fs::write(
        manifests.join("web.yaml"),
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {name}}}\nspec: {{type: LoadBalancer, \
             loadBalancerClass: sheave.dev/l4, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ipFamilies: [IPv4], ports: [{{name: \
             {name}, port: 80, protocol: TCP, appProtocol: {name}}}]}}\nstatus: {{loadBalancer: {{ingress: [{{ip: \
             127.0.0.9}}]}}}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: s, namespace: {name}, \
             labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nports: [{{name: {name}, port: 8080, protocol: \
             TCP}}]\nendpoints: [{{addresses: [10.1.0.7], conditions: {{ready: true}}}}]\n"
        ),
    )
    .unwrap();
    let [admin, metrics] = [(); 2].map(|()| {
        let port = host.run(|| free_port(Ipv4Addr::LOCALHOST));
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    });
    let config = folder.path().join("config.yaml");
    let text = format!(
        "admin: {{listen: \"{admin}\"}}\nmetrics: {{listen: \"{metrics}\", maxEndpoints: 10}}\nstateDir: {}\n",
        folder.path().join("state").display()
    );
    std::fs::write(&config, text).unwrap();
    let paths = [&config, &manifests].map(|path| path.display().to_string());
    let arguments = ["run", "--node", "gw", "--config", &paths[0], "--manifests", &paths[1]];
    let mut process = host.start(sheave_test_support::program::path(), &arguments);
    let text = eventually_within(patience(20.0), "the gateway serves", || {
        process.expect_running();
        match host.run(|| http::get(metrics, "/metrics")) {
            Ok(answer) if answer.body.contains("sheave_table_frontends 1") => Ok(answer.body),
            Ok(answer) => Err(answer.body),
            Err(error) => Err(error.to_string()),
        }
    });
    expect_good(&text);
    let prometheus = Prometheus::start(&host, &[("sheave", metrics)], "groups: []\n");
    let series = |query: &str| -> BTreeMap<String, String> {
        eventually_within(patience(30.0), query, || match &prometheus.query(query)[..] {
            [(labels, _)] => Ok(labels.clone()),
            others => Err(format!("{others:?}")),
        })
    };
    let info = series("sheave_frontend_info");
    assert_eq!(info["service"], format!("{HOSTILE}/{HOSTILE}"));
    assert_eq!((info["port_name"].as_str(), info["app_protocol"].as_str()), (HOSTILE, HOSTILE));
    for name in
        ["sheave_endpoint_picks_total", "sheave_endpoint_ejections_total", "sheave_tcp_connect_seconds_count"]
    {
        assert_eq!(series(name)["service"], info["service"], "{name}");
    }
    assert_eq!(series("up")["job"], "sheave");
}
