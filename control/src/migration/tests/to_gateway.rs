//! LoadBalancer Services as Gateways: the same addresses, ports, endpoints and clients as before.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Migration, ServiceTarget};
use super::support::{CLUSTER, POOL, migrated, of_kind, reports, served, yaml};
use crate::sources::manifests::RawManifests;

/// A Service with more fields of its spec and its metadata, and an endpoint on the gateway's node.
fn service(name: &str, ip: &str, ports: &str, spec: &str, metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop{metadata}}}\n\
         spec: {{type: LoadBalancer, ports: [{ports}]{spec}}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: {ip}}}]}}}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{name: a, port: 8080}}, {{name: b, port: 53, protocol: UDP}}]\n\
         endpoints: [{{addresses: [10.1.0.7], nodeName: gw-1}}, {{addresses: [10.1.0.8], nodeName: gw-1}}]\n"
    )
}

const PORTS: &str = "{name: a, port: 80, targetPort: 8080}, {name: b, port: 53, protocol: UDP}";

fn as_gateways(text: &str) -> Migration {
    migrated(&format!("{POOL}---\n{text}"), ServiceTarget::GatewayApi)
}

/// The input after the second step: Services are ClusterIP, as the API server stores them.
fn after(text: &str) -> String {
    let objects = RawManifests::parse("x.yaml", text).objects;
    let changed = objects.into_iter().map(|object| {
        let mut value = Value::from(object.fields);
        if value["spec"]["type"] == "LoadBalancer" {
            value["status"] = json!({});
            let spec = value["spec"].as_object_mut().unwrap();
            spec.insert("type".to_owned(), "ClusterIP".into());
            let dropped = [
                "loadBalancerClass",
                "loadBalancerSourceRanges",
                "externalTrafficPolicy",
                "healthCheckNodePort",
            ];
            spec.retain(|field, _| !dropped.contains(&field.as_str()));
        }
        serde_saphyr::to_string(&value).unwrap()
    });
    changed.collect::<Vec<_>>().join("---\n")
}

/// Checks that all is served after the migration as before, without a Problem.
fn assert_same(text: &str) -> Migration {
    let migration = as_gateways(text);
    let before = served(&[CLUSTER, POOL, text]);
    let (frontends, problems) = served(&[CLUSTER, POOL, &after(text), &yaml(&migration)]);
    assert_eq!(problems, [""; 0], "{}", yaml(&migration));
    assert!(!frontends.is_empty() && frontends.values().all(|(endpoints, ..)| !endpoints.is_empty()));
    assert_eq!(frontends, before.0);
    migration
}

#[test]
fn each_port_of_a_service_is_a_listener_with_the_same_endpoints() {
    let migration = assert_same(&service("web", "203.0.113.7", PORTS, "", ""));
    assert_eq!(reports(&migration), [""; 0]);
    let kinds: Vec<&Value> = migration.objects.iter().map(|it| &it.manifest["kind"]).collect();
    assert_eq!(kinds, ["Gateway", "TCPRoute", "UDPRoute"]);
    let comments = &migration.objects[0].comments;
    assert_eq!(
        comments[1],
        "Then: kubectl -n shop patch service web --type merge -p '{\"spec\":{\"type\":\"ClusterIP\"}}'"
    );
    let steps = &migration.steps;
    let at = |part: &str| steps.iter().position(|step| step.contains(part)).unwrap();
    assert!(
        at("GatewayClass sheave") < at("Apply the Gateways")
            && at("Apply the Gateways") < at("ClusterIP, with")
    );
}

#[test]
fn policies_and_limits_of_a_service_go_where_they_count() {
    let annotations = ", annotations: {sheave.dev/max-connections: '9', sheave.dev/balance: round-robin, \
                       sheave.dev/max-connection-age: 1h}";
    let spec = ", externalTrafficPolicy: Local, healthCheckNodePort: 32000, loadBalancerSourceRanges: [10.0.0.0/8, ' 192.0.2.0/24'], \
                sessionAffinity: ClientIP";
    let text = service("web", "203.0.113.7", PORTS, spec, annotations);
    let migration = assert_same(&text);
    let gateway = of_kind(&migration, "Gateway").next().unwrap();
    assert_eq!(
        gateway["metadata"]["annotations"],
        json!({"sheave.dev/max-connections": "9", "sheave.dev/source-ranges": "10.0.0.0/8,192.0.2.0/24"})
    );
    let route = of_kind(&migration, "UDPRoute").next().unwrap();
    assert_eq!(
        route["metadata"]["annotations"],
        json!({"sheave.dev/client-source": "transparent", "sheave.dev/max-connection-age": "1h"})
    );
    assert!(migration.objects[0].comments.last().unwrap().contains("\"loadBalancerSourceRanges\":null"));
    let reports = reports(&migration);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].starts_with("Service shop/web: spec.healthCheckNodePort: 32000: "), "{reports:?}");
    assert!(migration.steps.iter().any(|step| step.contains("CAP_NET_ADMIN")));
}

#[test]
fn services_that_share_an_address_are_gateways_that_share_it() {
    let text = [
        service("web", "203.0.113.7", "{name: a, port: 80}", "", ""),
        service("dns", "203.0.113.7", "{name: b, port: 53, protocol: UDP}", "", ""),
    ];
    assert_same(&text.join("---\n"));
}

#[test]
fn many_ports_need_listener_sets() {
    let ports: Vec<String> =
        (1..=130).map(|port| format!("{{name: p{port}, port: {port}, targetPort: 8080}}")).collect();
    let migration = as_gateways(&service("web", "203.0.113.7", &ports.join(", "), "", ""));
    assert_eq!(of_kind(&migration, "ListenerSet").count(), 2);
    assert_eq!(of_kind(&migration, "TCPRoute").count(), 130);
}

#[test]
fn what_a_gateway_cannot_say_is_reported() {
    let cases = [
        (
            "{port: 80}, {port: 81, protocol: SCTP}",
            "",
            "",
            "spec.ports[1]: \"SCTP\": Sheave serves listeners of TCP and UDP",
        ),
        ("{port: 80}, {port: 0}", "", "", "spec.ports[1]: 0 is not a port"),
        ("{port: 80}, {port: 65536}", "", "", "spec.ports[1]: 65536 is not a port"),
        ("{port: 80}, {name: b, port: 80}", "", "", "spec.ports[1]: 80/TCP is another port"),
        (
            "{port: 80}",
            ", loadBalancerSourceRanges: [10.0.0.0/8, x]",
            "",
            "spec.loadBalancerSourceRanges: \"x\" is not a CIDR",
        ),
        (
            "{port: 80}",
            "",
            ", annotations: {sheave.dev/affinity-scope: service}",
            "affinity-scope]: \"service\": the affinity",
        ),
        (
            "{port: 80}",
            "",
            ", annotations: {sheave.dev/path: kernel}",
            "path]: \"kernel\": Gateways are served by the proxy",
        ),
        (
            "{port: 80}",
            "",
            ", annotations: {sheave.dev/nothing: x}",
            "nothing]: \"x\": a Gateway has nothing like it",
        ),
    ];
    for (ports, spec, metadata, wanted) in cases {
        let migration = as_gateways(&service("web", "203.0.113.7", ports, spec, metadata));
        let reports = reports(&migration);
        assert!(reports.len() == 1 && reports[0].contains(wanted), "{wanted}: {reports:?}");
        assert_eq!(of_kind(&migration, "TCPRoute").count(), 1, "{wanted}");
    }
}

#[test]
fn ranges_without_a_cidr_admit_nobody_afterwards_either() {
    let migration = as_gateways(&service("web", "203.0.113.7", PORTS, ", loadBalancerSourceRanges: [x]", ""));
    let gateway = of_kind(&migration, "Gateway").next().unwrap();
    assert_eq!(gateway["metadata"]["annotations"]["sheave.dev/source-ranges"], "");
    let text = service("web", "203.0.113.7", PORTS, "", "");
    let (frontends, _) = served(&[CLUSTER, POOL, &after(&text), &yaml(&migration)]);
    let open = served(&[CLUSTER, POOL, &text]).0;
    assert!(frontends.iter().all(|(addr, (_, ranges, _))| *ranges != open[addr].1), "{frontends:?}");
}

#[test]
fn services_of_others_and_without_ports_stay() {
    let others = [
        service("nlb", "203.0.113.8", PORTS, ", loadBalancerClass: service.k8s.aws/nlb", ""),
        service("none", "203.0.113.9", "{port: 1, protocol: SCTP}", "", ""),
        service(&"a".repeat(253), "203.0.113.10", PORTS, "", ""),
        service("twice", "203.0.113.11", PORTS, "", ""),
        service("twice", "203.0.113.12", PORTS, "", "").split("---").next().unwrap().to_owned(),
    ];
    let migration = as_gateways(&others.join("---\n"));
    let names: Vec<&Value> = of_kind(&migration, "Gateway").map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["twice"]);
    let reports = reports(&migration).join("\n");
    for part in [
        "shop/nlb: spec.loadBalancerClass",
        "shop/none: spec.ports[0]",
        ": metadata.name: no Service can have",
        "another Service of this name",
    ] {
        assert!(reports.contains(part), "{part}: {reports}");
    }
}

#[test]
fn a_service_without_an_address_asks_as_before() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, annotations: {metallb.io/address-pool: public}}\n\
                spec: {type: LoadBalancer, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, ports: [{port: 80}]}\n---\n\
                apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: public, namespace: metallb-system}\n\
                spec: {addresses: [203.0.113.0/28]}\n";
    let migration = migrated(text, ServiceTarget::GatewayApi);
    let gateway = of_kind(&migration, "Gateway").next().unwrap();
    assert!(gateway["spec"]["addresses"].is_null());
    assert_eq!(
        gateway["metadata"]["annotations"],
        json!({"sheave.dev/address-pool": "public", "sheave.dev/ip-families": "IPv4"})
    );
}

#[test]
fn pools_that_select_by_labels_admit_the_gateway() {
    let pool = "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: edge}\n\
                spec: {addresses: [198.51.100.0/24], serviceSelector: {matchLabels: {tier: edge}}}\n";
    let text = service(
        "web",
        "198.51.100.7",
        PORTS,
        "",
        ", labels: {tier: edge, argocd.argoproj.io/instance: shop}",
    );
    let migration = assert_same(&format!("{pool}---\n{text}"));
    let gateway = of_kind(&migration, "Gateway").next().unwrap();
    assert_eq!(gateway["spec"]["infrastructure"]["labels"], json!({"tier": "edge"}));
    assert!(gateway["metadata"]["labels"].is_null());
}

#[test]
fn the_names_of_others_are_left_alone() {
    let there = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec: {gatewayClassName: x}\n---\n\
                 apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: ours}\nspec: {controllerName: sheave.dev/gateway}\n";
    let migration = as_gateways(&format!("{there}---\n{}", service("web", "203.0.113.7", PORTS, "", "")));
    let gateway = of_kind(&migration, "Gateway").next().unwrap();
    assert_eq!(gateway["metadata"]["name"], "web-2");
    assert_eq!(gateway["spec"]["gatewayClassName"], "ours");
    let route = of_kind(&migration, "TCPRoute").next().unwrap();
    assert_eq!(route["spec"]["parentRefs"][0]["name"], "web-2");
}

proptest! {
    // Each case is a whole projection.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_port_that_can_be_served_is(ports in prop::collection::btree_set((0..70_000_u32, 0..3_usize), 0..150)) {
        let list: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(at, (port, protocol))| {
                format!("{{name: p{at}, port: {port}, protocol: {}}}", ["TCP", "UDP", "SCTP"][*protocol])
            })
            .collect();
        let text = service("web", "203.0.113.7", &list.join(", "), "", "");
        let migration = as_gateways(&text);
        let good = ports.iter().filter(|(port, protocol)| (1..=65_535).contains(port) && *protocol < 2);
        let good: BTreeSet<String> =
            good.map(|(port, protocol)| format!("203.0.113.7:{port}/{}", ["TCP", "UDP"][*protocol])).collect();
        let (frontends, _) = served(&[CLUSTER, POOL, &yaml(&migration)]);
        prop_assert_eq!(frontends.keys().cloned().collect::<BTreeSet<_>>(), good.clone());
        let bad = reports(&migration).iter().filter(|it| it.contains("spec.ports[")).count();
        prop_assert_eq!(bad, ports.len() - good.len());
        prop_assert_eq!(yaml(&as_gateways(&text)), yaml(&migration));
    }
}
