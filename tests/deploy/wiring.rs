//! Tests of references between manifests: selectors and labels, ports, names, namespaces.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::config::{CONTROLLER, Config, GATEWAY, OVERLAY_GATEWAY};
use crate::typed::object;
use crate::workloads::{controller, gateway, pods};
use crate::{files, kustomization};

type Labels = BTreeMap<String, String>;

fn labels(metadata: Option<ObjectMeta>) -> Labels {
    metadata.and_then(|metadata| metadata.labels).expect("the Pods have labels")
}

fn gateway_labels() -> Labels {
    labels(gateway().spec.template.metadata)
}

fn controller_labels() -> Labels {
    labels(controller().spec.template.metadata)
}

/// Asserts that the selector matches the Pods of one role and not those of the other.
fn assert_selects(selector: &Labels, these: &Labels, not_these: &Labels) {
    let selects = |labels: &Labels| selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    assert!(!selector.is_empty() && selects(these), "{selector:?} does not select {these:?}");
    assert!(!selects(not_these), "{selector:?} selects {not_these:?}");
}

fn match_labels(selector: LabelSelector) -> Labels {
    assert!(selector.match_expressions.is_none(), "{selector:?}");
    selector.match_labels.expect("the selector selects by labels")
}

#[test]
fn every_selector_takes_the_pods_of_one_role() {
    let (gateways, controllers) = (gateway_labels(), controller_labels());
    assert_selects(&match_labels(gateway().spec.selector), &gateways, &controllers);
    let service: Service = object("sheave-gateways");
    assert_selects(&service.spec.unwrap().selector.unwrap(), &gateways, &controllers);

    assert_selects(&match_labels(controller().spec.selector), &controllers, &gateways);
    let budget: PodDisruptionBudget = object("sheave-controller");
    assert_selects(&match_labels(budget.spec.unwrap().selector.unwrap()), &controllers, &gateways);
    let policy: NetworkPolicy = object("sheave-controller");
    assert_selects(&match_labels(policy.spec.unwrap().pod_selector.unwrap()), &controllers, &gateways);
    let [_, (_, pod)] = pods();
    let apart = pod.affinity.unwrap().pod_anti_affinity.unwrap();
    for term in apart.preferred_during_scheduling_ignored_during_execution.unwrap() {
        let selector = term.pod_affinity_term.label_selector.unwrap();
        assert_selects(&match_labels(selector), &controllers, &gateways);
    }
}

#[test]
fn the_controller_finds_the_gateways_and_their_reports() {
    let service: Service = object("sheave-gateways");
    let spec = service.spec.unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("None"));
    assert_ne!(spec.publish_not_ready_addresses, Some(true));
    let ports = spec.ports.unwrap();
    let [port] = &ports[..] else { panic!("one port is expected: {ports:?}") };
    assert_eq!(port.name.as_deref(), Some("report"));
    assert_eq!(port.target_port, Some(IntOrString::Int(port.port)));
    for file in [GATEWAY, OVERLAY_GATEWAY] {
        let report = Config::read(file).listen("report");
        assert!(report.ip().is_unspecified(), "the controller asks by the node's address, not {report}");
        assert_eq!(port.port, i32::from(report.port()));
    }
    let policy: NetworkPolicy = object("sheave-controller");
    let egress = policy.spec.unwrap().egress.unwrap();
    let may_ask = egress.iter().any(|rule| {
        rule.to.is_none()
            && rule.ports.iter().flatten().any(|it| it.port == Some(IntOrString::Int(port.port)))
    });
    assert!(may_ask, "the NetworkPolicy keeps the controller from the reports: {egress:?}");

    let metadata = service.metadata;
    let name = format!("{}/{}", metadata.namespace.unwrap(), metadata.name.unwrap());
    assert_eq!(Config::read(CONTROLLER).text("gateways", "service"), name);
}

/// The port of its Service, and those of distributions, since a policy applies to packets after translation.
#[test]
fn the_controller_may_ask_the_api_server_wherever_it_listens() {
    let policy: NetworkPolicy = object("sheave-controller");
    let egress = policy.spec.unwrap().egress.unwrap();
    for port in [443, 6443, 8443, 16443] {
        let open = |rule: &k8s_openapi::api::networking::v1::NetworkPolicyEgressRule| {
            rule.to.is_none() && rule.ports.iter().flatten().any(|it| it.port == Some(IntOrString::Int(port)))
        };
        assert!(egress.iter().any(open), "{port}: {egress:?}");
    }
}

#[test]
fn the_controller_may_have_the_lease_that_it_asks_for() {
    let role: Role = object("sheave-controller");
    let named: Vec<String> =
        role.rules.unwrap().into_iter().flat_map(|rule| rule.resource_names.unwrap_or_default()).collect();
    let [lease] = &named[..] else { panic!("one name is expected: {named:?}") };
    let lease = format!("{}/{lease}", role.metadata.namespace.unwrap());
    assert_eq!(Config::read(CONTROLLER).text("leaderElection", "lease"), lease);
}

/// kustomize appends a hash to the name of a generated ConfigMap wherever it finds that name. A Lease with the same name
/// would be out of the controller's reach.
#[test]
fn nothing_else_has_the_name_of_a_generated_config_map() {
    let generated = kustomization::of(files::BASE).config_map_generator;
    assert_eq!(generated.len(), 2);
    for document in files::base() {
        let name = document.value["metadata"]["name"].as_str().unwrap();
        assert!(generated.iter().all(|map| map.name != name), "{} of {}", name, document.file);
    }
    let role: Role = object("sheave-controller");
    for name in role.rules.iter().flatten().flat_map(|rule| rule.resource_names.iter().flatten()) {
        assert!(generated.iter().all(|map| map.name != *name), "{name}");
    }
}

#[test]
fn every_account_is_there_and_used() {
    for (role, pod) in pods() {
        let name = pod.service_account_name.unwrap();
        assert_eq!(name, format!("sheave-{role}"));
        let _: ServiceAccount = object(&name);
    }
}

#[test]
fn everything_is_in_our_namespace_and_labelled_as_ours() {
    const CLUSTER_SCOPED: [&str; 6] = [
        "Namespace",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    for document in files::base() {
        let (kind, metadata) = (document.value["kind"].as_str().unwrap(), &document.value["metadata"]);
        let namespace = metadata["namespace"].as_str();
        let expected = if CLUSTER_SCOPED.contains(&kind) { None } else { Some("sheave-system") };
        assert_eq!(namespace, expected, "{} of {}", kind, document.file);
        // The definition is generated; the kustomization labels it.
        if kind != "CustomResourceDefinition" {
            assert_eq!(metadata["labels"]["app.kubernetes.io/name"], "sheave", "{kind} of {}", document.file);
        }
    }
}
