//! The field reference is complete: it lists every field of the API, and of the Gateway API every field that Sheave's types have.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;

use crate::api::decode::field_path::Step;
use crate::api::decode::known_fields;
use crate::api::gateway_api::{
    Gateway, GatewayClass, ListenerSet, ReferenceGrant, TcpRoute, TlsRoute, UdpRoute,
};
use crate::api::service_import::ServiceImport;

const REFERENCE: &str = include_str!("../fields.md");

/// Text in back quotes in the first column of the tables below a heading.
fn named(heading: &str) -> Vec<&'static str> {
    let (_, section) = REFERENCE.split_once(&format!("\n{heading}\n")).unwrap();
    let section = section.split("\n# ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Full paths of the fields of `T` at each of these paths; lists in a path are written as `name[]`.
fn fields<T: DeserializeOwned>(paths: &[&str]) -> Vec<String> {
    let at = |path: &&str| {
        let steps = path.split('.').filter(|part| !part.is_empty()).flat_map(|part| {
            let key = part.trim_end_matches("[]");
            let index = (key != part).then_some(Step::Index(0));
            std::iter::once(Step::Key(key.to_owned())).chain(index)
        });
        let names = known_fields::at::<T>(&steps.collect::<Vec<Step>>());
        assert!(!names.is_empty(), "{path} has no fields");
        let dot = if path.is_empty() { "" } else { "." };
        names.iter().map(|name| format!("{path}{dot}{name}")).collect::<Vec<String>>()
    };
    paths.iter().flat_map(at).collect()
}

fn missing(heading: &str, fields: &[String]) -> Vec<String> {
    let named = named(heading);
    let covers = |named: &str, field: &str| {
        named.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    fields.iter().filter(|field| !named.iter().any(|named| covers(named, field))).cloned().collect()
}

#[test]
fn every_field_of_a_service_is_in_the_reference() {
    let paths = [
        "spec",
        "spec.ports[]",
        "spec.sessionAffinityConfig",
        "spec.sessionAffinityConfig.clientIP",
        "status",
        "status.loadBalancer",
        "status.loadBalancer.ingress[]",
        "status.loadBalancer.ingress[].ports[]",
    ];
    let fields = fields::<Service>(&paths);
    assert!(fields.len() >= 35, "{fields:?}");
    assert_eq!(missing("# Service", &fields), [""; 0]);
}

#[test]
fn every_field_of_an_endpoint_slice_is_in_the_reference() {
    let paths = ["", "endpoints[]", "endpoints[].conditions", "endpoints[].hints", "ports[]"];
    let mut fields = fields::<EndpointSlice>(&paths);
    fields.retain(|field| !["apiVersion", "kind"].contains(&field.as_str()));
    assert!(fields.len() >= 20, "{fields:?}");
    assert_eq!(missing("# EndpointSlice", &fields), [""; 0]);
}

#[test]
fn every_field_of_the_gateway_api_is_in_the_reference() {
    let class = fields::<GatewayClass>(&["spec", "status"]);
    assert_eq!(missing("# GatewayClass", &class), [""; 0]);
    let listener =
        ["spec.listeners[]", "spec.listeners[].tls", "spec.listeners[].allowedRoutes", "status.listeners[]"];
    let of_gateways = [
        "spec",
        "spec.addresses[]",
        "spec.infrastructure",
        "spec.allowedListeners.namespaces",
        "spec.listeners[].allowedRoutes.namespaces",
        "spec.listeners[].allowedRoutes.kinds[]",
        "status",
    ];
    let gateway = fields::<Gateway>(&[of_gateways.as_slice(), &listener].concat());
    assert!(gateway.len() >= 30, "{gateway:?}");
    assert_eq!(missing("# Gateway", &gateway), [""; 0]);
    let set = fields::<ListenerSet>(&[["spec", "status"].as_slice(), &listener].concat());
    assert_eq!(missing("# ListenerSet", &set), [""; 0]);
    let grant = fields::<ReferenceGrant>(&["spec", "spec.from[]", "spec.to[]"]);
    assert_eq!(missing("# ReferenceGrant", &grant), [""; 0]);
}

#[test]
fn every_field_of_a_route_is_in_the_reference() {
    let paths = ["spec", "spec.parentRefs[]", "spec.rules[]", "spec.rules[].backendRefs[]", "status"];
    for fields in [fields::<TcpRoute>(&paths), fields::<UdpRoute>(&paths), fields::<TlsRoute>(&paths)] {
        assert!(fields.len() >= 15, "{fields:?}");
        assert_eq!(missing("# TCPRoute, UDPRoute, TLSRoute", &fields), [""; 0]);
    }
}

#[test]
fn every_field_of_a_service_import_is_in_the_reference() {
    let paths = ["spec", "spec.ports[]", "spec.sessionAffinityConfig", "spec.sessionAffinityConfig.clientIP"];
    let fields = fields::<ServiceImport>(&paths);
    assert!(fields.len() >= 10, "{fields:?}");
    assert_eq!(missing("# ServiceImport", &fields), [""; 0]);
}
