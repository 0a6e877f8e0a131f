//! Tests of Karmada's features: Clusters of an aggregated server, and the webhook for MultiClusterServices.

use serde_json::{Value, json};

use crate::support::apiserver::ApiServer;
use crate::support::http::{Incoming, Outgoing, exchange};
use crate::support::karmada;

const SERVICES: &str = "/apis/networking.karmada.io/v1alpha1/namespaces/default/multiclusterservices";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/works";

fn control_plane() -> ApiServer {
    let server = ApiServer::start();
    let definitions = [karmada::MULTI_CLUSTER_SERVICE, karmada::WORK, karmada::RESOURCE_BINDING];
    server.load(definitions.map(|text| serde_json::from_str(text).expect("a definition")));
    server.aggregate_clusters();
    server.admit_as_karmada();
    server
}

fn request(server: &ApiServer, method: &str, path: &str, body: &Value) -> Incoming {
    exchange(server.address(), &Outgoing::new(method, path, &server.token("admin"), body)).expect("an answer")
}

fn ask(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = request(server, method, path, body);
    (answer.status, answer.json())
}

fn status_of(server: &ApiServer, path: &str) -> u16 {
    request(server, "GET", path, &Value::Null).status
}

fn exposed(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
           "metadata": {"name": name}, "spec": spec})
}

/// Reason with which the webhook refuses a new object.
fn refusal(name: &str, spec: &Value) -> String {
    let (code, answer) = ask(&control_plane(), "POST", SERVICES, &exposed(name, spec));
    assert_eq!((code, &answer["reason"]), (403, &json!("Forbidden")), "{answer}");
    answer["message"].as_str().expect("a message").to_owned()
}

#[test]
fn clusters_may_be_away_alone() {
    let server = control_plane();
    let east = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "east"},
                      "spec": {"region": "r1"}});
    assert_eq!(ask(&server, "POST", CLUSTERS, &east).0, 201);
    let mut watch = request(&server, "GET", &format!("{CLUSTERS}?watch=1&resourceVersion=0"), &Value::Null);
    assert_eq!(watch.line().expect("a line").expect("no end")["object"]["metadata"]["name"], "east");

    server.faults().aggregated_away(true);
    assert_eq!(watch.line().expect("a clean end"), None);
    for path in [CLUSTERS.to_owned(), format!("{CLUSTERS}/east"), format!("{CLUSTERS}?watch=1")] {
        let answer = request(&server, "GET", &path, &Value::Null);
        assert_eq!((answer.status, answer.headers("Content-Type")), (503, vec!["text/plain; charset=utf-8"]));
        assert_eq!(answer.rest().expect("a body"), "service unavailable\n");
    }
    assert_eq!(status_of(&server, "/apis/cluster.karmada.io/v1alpha1"), 503);
    // The group is known, since the aggregator answers for it.
    assert_eq!(status_of(&server, "/apis/cluster.karmada.io"), 200);
    for path in [WORKS, SERVICES, "/apis/work.karmada.io/v1alpha1", "/apis", "/api/v1/services", "/readyz"] {
        assert_eq!(status_of(&server, path), 200, "{path}");
    }

    server.faults().aggregated_away(false);
    assert_eq!(status_of(&server, CLUSTERS), 200);
    assert_eq!(status_of(&server, "/apis/cluster.karmada.io/v1alpha1"), 200);
}

#[test]
fn works_are_selected_by_having_a_label_or_not() {
    let server = control_plane();
    let work = |name: &str, labels: &Value| {
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": {"workload": {"manifests": []}}})
    };
    server.load([
        work("collected", &json!({"endpointslice.karmada.io/managed-by": "ServiceExport"})),
        work("other", &json!({})),
    ]);
    for (selector, wanted) in [("", "collected"), ("%21", "other")] {
        let path = format!("{WORKS}?labelSelector={selector}endpointslice.karmada.io%2Fmanaged-by");
        let (_, list) = ask(&server, "GET", &path, &Value::Null);
        let names: Vec<&Value> =
            list["items"].as_array().expect("items").iter().map(|it| &it["metadata"]["name"]).collect();
        assert_eq!(names, [wanted]);
    }
}

#[test]
fn the_webhook_gives_an_identity_and_keeps_to_the_types() {
    let server = control_plane();
    let (code, made) = ask(&server, "POST", SERVICES, &exposed("web", &json!({"types": ["LoadBalancer"]})));
    assert_eq!(code, 201, "{made}");
    assert!(made["metadata"]["labels"]["multiclusterservice.karmada.io/permanent-id"].is_string(), "{made}");
    assert_eq!((&made["spec"]["range"], &made["metadata"]["generation"]), (&json!({}), &json!(1)));

    let web = format!("{SERVICES}/web");
    let (code, refused) = ask(&server, "PATCH", &web, &json!({"spec": {"types": ["CrossCluster"]}}));
    assert_eq!(code, 403, "{refused}");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("field is immutable")), "{refused}");
    let (code, changed) =
        ask(&server, "PATCH", &web, &json!({"spec": {"providerClusters": [{"name": "east"}]}}));
    assert_eq!((code, &changed["metadata"]["generation"]), (200, &json!(2)), "{changed}");
    // Changes of metadata or the status do not change the generation.
    let (_, noted) = ask(&server, "PATCH", &web, &json!({"metadata": {"annotations": {"a": "b"}}}));
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "Proxy"}]}}});
    let (_, told) = ask(&server, "PATCH", &format!("{web}/status"), &status);
    assert_eq!([&noted["metadata"]["generation"], &told["metadata"]["generation"]], [2, 2]);
}

#[test]
fn the_webhook_refuses_what_the_definition_takes() {
    let two = refusal("web", &json!({"types": ["LoadBalancer", "CrossCluster"]}));
    assert!(
        two.starts_with("admission webhook \"multiclusterservice.karmada.io\" denied the request: "),
        "{two}"
    );
    assert!(two.contains("more than one type"), "{two}");
    let one = json!({"types": ["LoadBalancer"]});
    for name in ["1web", "web.a"] {
        assert!(refusal(name, &one).contains("metadata.name"), "{name}");
    }
    assert!(refusal("web", &json!({"types": ["ClusterIP"]})).contains("spec.types[0]"));
    let with = |field: &str, value: Value| json!({"types": ["LoadBalancer"], field: value});
    let same = json!([{"name": "a", "port": 80}, {"name": "a", "port": 81}]);
    assert!(refusal("web", &with("ports", same)).contains("spec.ports[1].name: Duplicate value"));
    assert!(refusal("web", &with("ports", json!([{"port": 0}]))).contains("spec.ports[0].port"));
    let long = json!([{"name": "c".repeat(49)}]);
    assert!(refusal("web", &with("providerClusters", long)).contains("spec.range.providerClusters[0]"));

    let server = control_plane();
    for (name, types) in [("none", json!([])), ("twice", json!(["LoadBalancer", "LoadBalancer"]))] {
        assert_eq!(ask(&server, "POST", SERVICES, &exposed(name, &json!({"types": types}))).0, 201, "{name}");
    }
}

#[test]
fn a_bad_status_locks_the_object() {
    let server = control_plane();
    let mut web = exposed("web", &json!({"types": ["LoadBalancer"]}));
    web["metadata"]["finalizers"] = json!(["example.com/keep"]);
    ask(&server, "POST", SERVICES, &web);
    let web = format!("{SERVICES}/web");
    let ingress = |entry: Value| json!({"status": {"loadBalancer": {"ingress": [entry]}}});
    let release = json!({"metadata": {"finalizers": null}});
    let bad = [
        json!({"hostname": "Bad_Name"}),
        json!({"hostname": "203.0.113.1"}),
        json!({"ip": "not an address"}),
    ];
    for entry in bad {
        // The webhook is not called when it is written.
        let (code, told) = ask(&server, "PATCH", &format!("{web}/status"), &ingress(entry.clone()));
        assert_eq!(code, 200, "{told}");
        let (code, locked) = ask(&server, "PATCH", &web, &release);
        assert_eq!(code, 403, "{entry}: {locked}");
        assert!(
            locked["message"].as_str().is_some_and(|text| text.contains("status.loadBalancer.ingress[0]"))
        );
    }
    assert_eq!(
        ask(&server, "PATCH", &format!("{web}/status"), &ingress(json!({"hostname": "good.name"}))).0,
        200
    );
    assert_eq!(ask(&server, "PATCH", &web, &release).0, 200);
}
