//! What each annotation does to the path of a Service: a generated table of dataplane/kernel/README.md, as the program decides.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::sheave;
use crate::tables::{check, constants, table};

/// Annotations that say something of the path alone or of other kinds of objects, or that are what the table is about.
const ELSEWHERE: [&str; 9] = [
    "address-pool",
    "addresses",
    "cluster-endpoints",
    "cluster-priority",
    "cluster-weights",
    "drain",
    "load-balancer-class",
    "overprovisioning",
    "path",
];

/// Values of the others. An annotation has a row for each of its values.
const VALUES: [(&str, &str); 26] = [
    ("accept-proxy", "192.0.2.0/24"),
    ("affinity-scope", "port"),
    ("affinity-scope", "service"),
    ("balance", "random"),
    ("balance", "maglev"),
    ("balance", "round-robin"),
    ("balance", "least-connections"),
    ("client-source", "gateway"),
    ("client-source", "transparent"),
    ("client-source", "proxy-v1"),
    ("client-source", "proxy-v2"),
    ("connect-timeout", "1s"),
    ("connection-log", "1%"),
    ("health-check", "tcp"),
    ("idle-keepalives", "true"),
    ("idle-timeout", "1m"),
    ("max-connection-age", "1h"),
    ("max-connection-age-grace", "1m"),
    ("max-connection-rate", "100"),
    ("max-connection-rate-per-client", "10"),
    ("max-connections", "1000"),
    ("max-connections-per-client", "100"),
    ("panic-threshold", "50"),
    ("removed-endpoint-grace", "10s"),
    ("renumber", "true"),
    ("slow-start", "30s"),
];

#[test]
fn what_annotations_do_to_the_path_is_listed() {
    let all = constants("sheave.dev/balance", r"sheave\.dev/[a-z-]+");
    for name in all.iter().map(|row| row[0].trim_matches('`').trim_start_matches("sheave.dev/")) {
        let listed = ELSEWHERE.contains(&name) || VALUES.iter().any(|(of, _)| *of == name);
        assert!(listed, "{name} has no row");
    }
    let rows = VALUES.map(|(name, value)| {
        let path =
            |choice| path_of(choice, &format!("sheave.dev/{name}: \"{value}\""), name == "affinity-scope");
        vec![format!("`sheave.dev/{name}: {value}`"), path("kernel"), path("auto")]
    });
    check("dataplane/kernel/README.md", "paths", &table("annotation | `kernel` | `auto`", &rows));
}

/// The path of a Service with this annotation, and the reason if that is the proxy.
fn path_of(choice: &str, annotation: &str, sticky: bool) -> String {
    let affinity = if sticky { "ClientIP" } else { "None" };
    let manifests = TempDir::new().unwrap();
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: shop, annotations: {{sheave.dev/path: {choice}, {annotation}}}}}\n\
         spec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, clusterIP: 10.96.0.1, sessionAffinity: {affinity}, \
         ports: [{{port: 80}}]}}\nstatus: {{loadBalancer: {{ingress: [{{ip: 203.0.113.10}}]}}}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: shop, labels: \
         {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nports: [{{port: 80}}]\n\
         endpoints: [{{addresses: [10.1.0.1], conditions: {{ready: true}}}}]\n"
    );
    fs::write(manifests.path().join("all.yaml"), service).unwrap();
    let config = manifests.path().join("config");
    fs::write(&config, "acceptProxy: {allow: [192.0.2.0/24]}\n").unwrap();
    let mut command = sheave();
    command.args(["routes", "-o", "json", "--manifests"]).arg(manifests.path()).arg("--config").arg(config);
    let output = command.output().unwrap();
    let view: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = &view["frontends"][0]["path"];
    let name = path["name"].as_str().unwrap_or_else(|| panic!("{annotation}: {view}"));
    match path["reason"].as_str() {
        Some(reason) => format!("{name}: {reason}"),
        None => name.to_owned(),
    }
}
