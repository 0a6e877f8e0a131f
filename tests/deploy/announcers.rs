//! Tests of the examples in which another program announces addresses: their names exist, and they agree with Sheave's
//! settings.

use serde_json::Value;

use crate::config::{Config, GATEWAY};
use crate::{files, kustomization};

const METALLB: &str = "examples/metallb";
const KUBE_VIP: &str = "examples/kube-vip";
/// Default class of gateways.
const CLASS: &str = "sheave.dev/l4";

fn object(folder: &str, kind: &str) -> Value {
    let resources = kustomization::of(folder).resources;
    let documents = resources.iter().flat_map(|file| files::documents(&format!("{folder}/{file}")));
    let mut found = documents.filter(|it| it.value["kind"] == kind);
    found.next().unwrap_or_else(|| panic!("{folder} has no {kind}")).value
}

#[test]
fn they_name_every_file_and_leave_announcing_to_the_other_program() {
    for folder in [METALLB, KUBE_VIP] {
        let mut named = kustomization::of(folder).resources;
        named.push("kustomization.yaml".to_owned());
        named.sort();
        assert_eq!(named, files::all(folder));
        assert!(files::text(format!("{folder}/README.md")).lines().count() < 60, "{folder}");
    }
    assert!(!files::text(GATEWAY).contains("announce"), "the default is none");
    assert!(!files::text(GATEWAY).contains("loadBalancerClass"), "the default is {CLASS}");
    Config::read(GATEWAY);
}

/// MetalLB's speakers announce the addresses of a MetalLB pool. Its controller must not assign them.
#[test]
fn metallb_announces_the_addresses_that_sheave_gives() {
    let (ours, theirs) = (object(METALLB, "AddressPool"), object(METALLB, "IPAddressPool"));
    assert_eq!(ours["spec"]["addresses"], theirs["spec"]["addresses"]);
    assert_eq!(theirs["spec"]["autoAssign"], false);
    let advertised = &object(METALLB, "L2Advertisement")["spec"]["ipAddressPools"];
    assert_eq!(advertised[0], theirs["metadata"]["name"]);
    let text = files::text(format!("{METALLB}/README.md"));
    for part in [&format!("--lb-class={CLASS}"), ours["spec"]["addresses"][0].as_str().expect("text")] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn kube_vip_takes_the_services_of_sheaves_class_and_leaves_their_status_alone() {
    let daemon_set = object(KUBE_VIP, "DaemonSet");
    let env =
        daemon_set["spec"]["template"]["spec"]["containers"][0]["env"].as_array().cloned().expect("env");
    let value = |name: &str| env.iter().find(|it| it["name"] == name).map(|it| it["value"].clone());
    let settings = [
        ("lb_class_name", CLASS),
        ("lb_class_legacy_handling", "false"),
        ("disable_service_updates", "true"),
        ("svc_election", "true"),
    ];
    for (name, expected) in settings {
        assert_eq!(value(name), Some(expected.into()), "{name}");
    }
}

/// Both run on the nodes of the gateways.
#[test]
fn they_run_where_the_gateways_are() {
    let label = "node-role.kubernetes.io/gateway";
    for (folder, kind) in [(METALLB, "L2Advertisement"), (KUBE_VIP, "DaemonSet")] {
        let text = object(folder, kind).to_string();
        assert!(text.contains(&format!("\"key\":\"{label}\",\"operator\":\"Exists\"")), "{folder}: {text}");
    }
}
