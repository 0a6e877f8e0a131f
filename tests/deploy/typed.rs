//! Documents as typed objects: nothing unknown, nothing of the wrong type.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sheave_control::api::address_pool::{self, AddressPool};
use sheave_control::api::gateway_api::GatewayClass;
use sheave_control::projection::GATEWAY_CONTROLLER;

use crate::files::{self, Document};

/// Parses `value` as a `T`, and fails on any field that `T` does not have.
pub(crate) fn strictly<T: DeserializeOwned>(file: &str, value: &Value) -> T {
    let mut unknown = Vec::new();
    let object = serde_ignored::deserialize(value, |path| unknown.push(path.to_string()))
        .unwrap_or_else(|error| panic!("{file}, {}: {error}", value["kind"]));
    assert!(unknown.is_empty(), "{file}, {}: unknown fields {unknown:?}", value["kind"]);
    object
}

/// The object of the base with this kind and name.
pub(crate) fn object<T: DeserializeOwned + k8s_openapi::Resource>(name: &str) -> T {
    object_of(&files::base(), name)
}

/// The object among these documents with this kind and name.
pub(crate) fn object_of<T: DeserializeOwned + k8s_openapi::Resource>(
    documents: &[Document],
    name: &str,
) -> T {
    let mut found =
        documents.iter().filter(|it| it.value["kind"] == T::KIND && it.value["metadata"]["name"] == name);
    let (first, second) = (found.next(), found.next());
    let Document { file, value } = first.unwrap_or_else(|| panic!("there is no {} {name}", T::KIND));
    assert!(second.is_none(), "{} {name} is there twice", T::KIND);
    assert_eq!(value["apiVersion"], T::API_VERSION, "{file}, {} {name}", T::KIND);
    strictly(file, value)
}

/// Checks an AddressPool. Our own type has no fields for kind and API version.
fn check_pool(file: &str, value: &Value) {
    assert_eq!(value["apiVersion"], address_pool::API_VERSION, "{file}");
    let mut fields = value.as_object().expect("an object").clone();
    fields.retain(|name, _| name != "apiVersion" && name != "kind");
    strictly::<AddressPool>(file, &Value::Object(fields));
}

/// Checks a GatewayClass, whose type has no fields for kind and API version.
fn check_class(file: &str, value: &Value) {
    assert_eq!(value["apiVersion"], <GatewayClass as k8s_openapi::Resource>::API_VERSION, "{file}");
    let mut fields = value.as_object().expect("an object").clone();
    fields.retain(|name, _| name != "apiVersion" && name != "kind");
    let class: GatewayClass = strictly(file, &Value::Object(fields));
    assert_eq!(class.spec.controller_name, GATEWAY_CONTROLLER, "{file}");
}

/// Kind and name of each, sorted.
pub(crate) fn names(documents: &[Document]) -> Vec<String> {
    let name =
        |it: &Document| format!("{} {}", it.value["kind"], it.value["metadata"]["name"]).replace('"', "");
    let mut names: Vec<String> = documents.iter().map(name).collect();
    names.sort();
    names
}

/// Parses a document as its kind.
pub(crate) fn check(document: &Document) {
    fn of<T: DeserializeOwned + k8s_openapi::Resource>(document: &Document) {
        let Document { file, value } = document;
        assert_eq!(value["apiVersion"], T::API_VERSION, "{file}, {}", T::KIND);
        strictly::<T>(file, value);
    }
    match document.value["kind"].as_str().unwrap_or_default() {
        "AddressPool" => check_pool(&document.file, &document.value),
        "ClusterRole" => of::<ClusterRole>(document),
        "ClusterRoleBinding" => of::<ClusterRoleBinding>(document),
        // A kind of Karmada; the cluster suite applies it.
        "ClusterPropagationPolicy" => {
            assert_eq!(document.value["apiVersion"], "policy.karmada.io/v1alpha1", "{}", document.file);
        }
        "CustomResourceDefinition" => of::<CustomResourceDefinition>(document),
        // Kinds of MetalLB; `announcers` checks their contents.
        "IPAddressPool" | "L2Advertisement" => {
            assert_eq!(document.value["apiVersion"], "metallb.io/v1beta1", "{}", document.file);
        }
        "GatewayClass" => check_class(&document.file, &document.value),
        "DaemonSet" => of::<DaemonSet>(document),
        "Deployment" => of::<Deployment>(document),
        "EndpointSlice" => of::<EndpointSlice>(document),
        "Namespace" => of::<Namespace>(document),
        "NetworkPolicy" => of::<NetworkPolicy>(document),
        "ValidatingAdmissionPolicy" => of::<ValidatingAdmissionPolicy>(document),
        "ValidatingAdmissionPolicyBinding" => of::<ValidatingAdmissionPolicyBinding>(document),
        "Node" => of::<Node>(document),
        "Pod" => of::<Pod>(document),
        "PodDisruptionBudget" => of::<PodDisruptionBudget>(document),
        // Kinds of the Prometheus operator.
        "PodMonitor" | "PrometheusRule" | "ServiceMonitor" => {
            assert_eq!(document.value["apiVersion"], "monitoring.coreos.com/v1", "{}", document.file);
        }
        "Role" => of::<Role>(document),
        "RoleBinding" => of::<RoleBinding>(document),
        "Secret" => of::<Secret>(document),
        "Service" => of::<Service>(document),
        "ServiceAccount" => of::<ServiceAccount>(document),
        other => panic!("{}: this test does not know the kind {other:?}", document.file),
    }
}

#[test]
fn every_manifest_is_what_its_kind_allows() {
    for documents in [
        files::base(),
        files::examples(),
        files::karmada(),
        files::exports(),
        files::bound(),
        files::admission(),
        files::gateway_api(),
    ] {
        documents.iter().for_each(check);
    }
}

#[test]
fn the_base_holds_what_an_installation_needs() {
    assert_eq!(
        names(&files::base()),
        [
            "ClusterRole sheave-controller",
            "ClusterRole sheave-gateway",
            "ClusterRoleBinding sheave-controller",
            "ClusterRoleBinding sheave-gateway",
            "CustomResourceDefinition addresspools.sheave.dev",
            "DaemonSet sheave-gateway",
            "Deployment sheave-controller",
            "Namespace sheave-system",
            "NetworkPolicy sheave-controller",
            "PodDisruptionBudget sheave-controller",
            "Role sheave-controller",
            "RoleBinding sheave-controller",
            "Service sheave-gateways",
            "ServiceAccount sheave-controller",
            "ServiceAccount sheave-gateway",
            "ValidatingAdmissionPolicy sheave-controller",
            "ValidatingAdmissionPolicy sheave-controller-creates",
            "ValidatingAdmissionPolicyBinding sheave-controller",
            "ValidatingAdmissionPolicyBinding sheave-controller-creates",
        ]
    );
}

#[test]
#[should_panic(expected = "unknown fields [\"spec.?.hostNetwrok\"]")]
fn a_misspelt_field_is_found() {
    let value = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"containers": [], "hostNetwrok": true}
    });
    strictly::<k8s_openapi::api::core::v1::Pod>("pod.yaml", &value);
}
