//! Tests of `sheave uninstall` with Services as controllers and others leave them.

use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::connect::{candidate, kubeconfig, soon};
use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};

const OURS: &str = "sheave.dev/load-balancer-cleanup";
const SHARED: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Service whose status was applied by `manager`, with a condition of another manager.
fn service(name: &str, finalizers: &[&str], manager: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let owner = |manager: &str, status: Value| {
        json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
               "fieldsV1": {"f:status": status}, "subresource": "status"})
    };
    let whole = json!({".": {}, "f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {}, "f:lastTransitionTime": {}});
    let condition = |r#type: &str| json!({"type": r#type, "status": "True", "reason": "Fine", "message": "fine", "lastTransitionTime": time});
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "finalizers": finalizers,
            "creationTimestamp": time,
            "managedFields": [
                owner(manager, json!({
                    "f:conditions": {"k:{\"type\":\"sheave.dev/Programmed\"}": whole},
                    "f:loadBalancer": {"f:ingress": {}},
                })),
                owner("mesh", json!({"f:conditions": {"k:{\"type\":\"mesh.example.com/Seen\"}": whole}})),
            ],
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "externalTrafficPolicy": "Cluster", "sessionAffinity": "None", "allocateLoadBalancerNodePorts": false,
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        },
        "status": {
            "conditions": [condition("sheave.dev/Programmed"), condition("mesh.example.com/Seen")],
            "loadBalancer": {"ingress": [{"ip": "203.0.113.10", "ipMode": "Proxy"}]},
        },
    })
}

/// Server with one Service of ours, `web`, and two others.
fn server() -> ApiServer {
    let server = ApiServer::start();
    server.load([
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        service("web", &["example.com/other", OURS, SHARED], "sheave"),
        service("foreign", &[SHARED], "metallb"),
        service("plain", &[], "metallb"),
    ]);
    server
}

fn config(server: &ApiServer) -> (NamedTempFile, NamedTempFile) {
    let kubeconfig = kubeconfig(server, "operator");
    let config = NamedTempFile::new().expect("a temporary file");
    let text = format!("kubeconfig: {}\n", kubeconfig.path().display());
    std::fs::write(config.path(), text).expect("a configuration");
    (kubeconfig, config)
}

/// Runs the command to its end: exit code, standard output, standard error.
pub(crate) fn uninstall(server: &ApiServer, arguments: &[&str]) -> (Option<i32>, String, String) {
    let (_kubeconfig, config) = config(server);
    let mut command = Command::new(sheave_test_support::program::path());
    command.arg("uninstall").args(arguments).arg("--config").arg(config.path());
    let Output { status, stdout, stderr } = command.output().expect("sheave runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

fn stored(server: &ApiServer, name: &str) -> Value {
    server.object("services", Some("shop"), name).expect("the Service is there")
}

#[test]
fn only_what_is_ours_is_removed_and_a_second_time_nothing() {
    let server = server();
    let others = [stored(&server, "foreign"), stored(&server, "plain")];
    let (code, out, err) = uninstall(&server, &["--dry-run"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.ends_with("1 Service would be cleaned: nothing was changed\n"), "{out}");
    assert_eq!(server.writes(), []);
    let (code, out, err) = uninstall(&server, &[]);
    assert_eq!(
        (code, out.as_str()),
        (
            Some(0),
            "shop/web: address 203.0.113.10, condition sheave.dev/Programmed, finalizer \
                   sheave.dev/load-balancer-cleanup: removed\n1 Service cleaned\n"
        ),
        "{err}"
    );
    let web = stored(&server, "web");
    assert_eq!(web["metadata"]["finalizers"], json!(["example.com/other", SHARED]));
    assert_eq!(web["status"]["loadBalancer"], json!({}));
    let conditions = web["status"]["conditions"].as_array().expect("the other one stays");
    assert_eq!(conditions.iter().map(|it| &it["type"]).collect::<Vec<_>>(), ["mesh.example.com/Seen"]);
    assert_eq!([stored(&server, "foreign"), stored(&server, "plain")], others);

    server.forget_requests();
    let (code, out, err) = uninstall(&server, &[]);
    assert_eq!((code, out.as_str()), (Some(0), "0 Services cleaned\n"), "{err}");
    assert_eq!(server.writes(), []);
}

#[test]
fn a_service_that_others_write_to_meanwhile_is_cleaned_all_the_same() {
    let server = server();
    server.faults().plan(Matching::new("patch", "services"), 2, Fault::conflict());
    server.faults().plan(Matching::new("patch", "services/status"), 1, Fault::LoseAnswer);
    let (code, out, err) = uninstall(&server, &[]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(server.faults().outstanding(), 0);
    assert_eq!(stored(&server, "web")["metadata"]["finalizers"], json!(["example.com/other", SHARED]));
    assert_eq!(stored(&server, "web")["status"]["loadBalancer"], json!({}));
}

#[test]
fn what_could_not_be_cleaned_is_named() {
    let server = server();
    server.faults().plan(Matching::new("patch", "services"), usize::MAX, Fault::unavailable());
    let (code, out, err) = uninstall(&server, &[]);
    assert_eq!((code, out.as_str()), (Some(69), "0 Services cleaned\n"));
    assert!(err.contains("not clean: shop/web; run the command again"), "{err}");
}

#[test]
fn a_server_that_is_away_is_said() {
    let server = server();
    server.stop();
    for arguments in [&[][..], &["--force"], &["--dry-run"]] {
        let (code, out, err) = uninstall(&server, arguments);
        assert_eq!((code, out.as_str()), (Some(69), ""), "{err}");
        assert!(err.contains("the API server does not answer"), "{err}");
        assert!(err.contains(&server.address().to_string()), "{err}");
    }
}

#[tokio::test]
async fn while_a_controller_leads_it_refuses_unless_forced() {
    let server = std::sync::Arc::new(server());
    let mut election = candidate(&server, "ctl-0").await;
    soon("leadership", election.won()).await.unwrap();
    let run = async |arguments: &'static [&'static str]| {
        let server = std::sync::Arc::clone(&server);
        tokio::task::spawn_blocking(move || uninstall(&server, arguments)).await.expect("sheave runs")
    };
    let before = stored(&server, "web");
    let (code, out, err) = run(&[]).await;
    assert_eq!((code, out.as_str()), (Some(69), ""), "{err}");
    assert!(err.contains("the controller ctl-0 runs") && err.contains("Nothing was changed"), "{err}");
    assert_eq!(stored(&server, "web"), before);
    let (code, _, err) = run(&["--force"]).await;
    assert_eq!(code, Some(0), "{err}");

    server.load([service("next", &[OURS], "sheave")]);
    drop(election);
    let (code, out, err) = run(&[]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(stored(&server, "next")["metadata"].get("finalizers"), None);
}
