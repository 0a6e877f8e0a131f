//! Objects as large and as wrong as an API server permits: their Problems stay short, and valid parts are served.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::support::{NODE, WEB_SLICE, lines, objects, options};
use crate::api::problem::Problem;
use crate::api::store::{Dirty, Objects, ServiceKey, service_key};
use crate::controller::conditions;
use crate::controller::desired_status::DesiredStatus;
use crate::projection::{Projection, Projector};
use crate::text::MAX_MESSAGE_BYTES;

/// Largest total size of an object's annotations in bytes (`TotalAnnotationSizeLimitB`), less their names.
const ANNOTATION: usize = 250 << 10;
/// Largest size in bytes of a line about a Problem: object, reason, field and message.
const LINE: usize = 2048;
/// Largest number of Problems of one object. Each can become an Event.
const PROBLEMS: usize = 150;

/// A Service of our class with these annotations and differences in its spec.
fn service(name: &str, annotations: &Value, spec: &Value) -> Value {
    let mut service = json!({
        "metadata": {"namespace": "shop", "name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "ports": [{"name": "http", "port": 80}]},
    });
    json_patch::merge(&mut service["spec"], spec);
    service
}

fn put(objects: &mut Objects, service: Value) {
    let service: Service = serde_json::from_value(service).unwrap();
    objects.services.insert(service_key(&service.metadata), Arc::new(service));
}

fn addresses(number: u32) -> Vec<String> {
    (0..number).map(|it| std::net::Ipv4Addr::from(0x0a00_0000 + it).to_string()).collect()
}

fn project(objects: &Objects) -> (Projector, Projection) {
    let mut projector = Projector::new(options());
    let projection = projector.project(objects, &Dirty::Everything);
    (projector, projection)
}

/// Problems of this `shop/web`, all of them short.
fn told(service: Value) -> Vec<Problem> {
    let mut objects = objects(&[NODE, POOL]);
    put(&mut objects, service);
    let (projector, projection) = project(&objects);
    let key = ServiceKey::new("shop", "web");
    let problems = projector.problems_of(&key);
    assert!(problems.len() <= PROBLEMS, "{} Problems", problems.len());
    for problem in &projection.problems {
        assert!(problem.message.len() <= MAX_MESSAGE_BYTES, "{problem}");
        assert!(problem.to_string().len() <= LINE, "{problem}");
    }
    let ingress = projector.status(&key).map(|status| status.ingress.clone()).unwrap_or_default();
    let statement =
        DesiredStatus { ingress, problems: problems.clone(), gateways: 1, ..DesiredStatus::default() };
    for said in conditions::conditions_for(&statement) {
        assert!(said.message.len() <= MAX_MESSAGE_BYTES, "{said:?}");
    }
    problems
}

const POOL: &str = "kind: AddressPool\nmetadata: {name: public}\nspec: {addresses: [203.0.113.0/28]}\n";

#[test]
fn annotations_as_long_as_they_can_be_are_quoted_in_part() {
    for name in [
        "sheave.dev/balance",
        "sheave.dev/client-source",
        "sheave.dev/accept-proxy",
        "sheave.dev/addresses",
        "sheave.dev/address-pool",
        "sheave.dev/max-connections",
        "sheave.dev/idle-timeout",
        "sheave.dev/max-connection-age",
        "sheave.dev/unknown",
        "service.beta.kubernetes.io/load-balancer-source-ranges",
    ] {
        for text in ["\u{e4}\"\n", "x,", "10.0.0.0/99,", "203.0.113.1,", "\u{0}"] {
            let annotations = json!({name: text.repeat(ANNOTATION / text.len())});
            told(service("web", &annotations, &json!({})));
        }
    }
}

#[test]
fn a_thousand_unknown_annotations_are_few_problems() {
    let annotations: serde_json::Map<String, Value> =
        (0..1000).map(|it| (format!("sheave.dev/{}-{it}", "x".repeat(50)), json!(""))).collect();
    assert!(!told(service("web", &annotations.into(), &json!({}))).is_empty());
}

#[test]
fn lists_of_thousands_are_few_problems() {
    let wrong: Vec<String> = (0..17_000).map(|it| format!("x{it}")).collect();
    for (field, of) in [
        ("externalIPs", addresses(17_000)),
        ("externalIPs", wrong.clone()),
        ("loadBalancerSourceRanges", wrong.clone()),
        ("ipFamilies", vec!["IPv5".to_owned(); 17_000]),
    ] {
        assert!(!told(service("web", &json!({}), &json!({field: of}))).is_empty(), "{field}");
    }
    let ranges = json!({"service.beta.kubernetes.io/load-balancer-source-ranges": wrong.join(",")});
    assert!(!told(service("web", &ranges, &json!({}))).is_empty());
    let wished = json!({"sheave.dev/addresses": addresses(17_000).join(",")});
    assert!(!told(service("web", &wished, &json!({}))).is_empty());
}

#[test]
fn a_thousand_ports_in_trouble_are_few_problems() {
    let ports =
        |port: fn(u32) -> Value| -> Value { json!({"ports": (1..=1000).map(port).collect::<Vec<_>>()}) };
    for spec in [
        ports(|it| json!({"name": format!("p{it}"), "port": it, "protocol": "SCTP"})),
        ports(|it| json!({"name": format!("p{it}"), "port": it, "protocol": "QUIC".repeat(200)})),
        ports(|it| json!({"name": format!("p{it}"), "port": it + 65_535})),
        ports(|_| json!({"name": "same", "port": 80})),
    ] {
        assert!(!told(service("web", &json!({}), &spec)).is_empty());
    }
}

#[test]
fn a_status_that_others_filled_is_told_in_short() {
    let ingress: Vec<Value> =
        (0..5000).map(|it| json!({"ip": format!("x{it}"), "hostname": "-".repeat(40)})).collect();
    let mut service = service("web", &json!({}), &json!({}));
    service["status"] = json!({"loadBalancer": {"ingress": ingress}});
    told(service);
}

/// RFC 1035 labels for Services, and RFC 1123 subdomains for slices and pools, each of maximum length.
#[test]
fn names_of_every_allowed_character_are_served() {
    let label = "a-0123456789-bcdefghijklmnopqrstuvwxyz-0123456789-abcdefghijkl9";
    let subdomain = format!("0.{}.xyz-9z", ["a-b.c0"; 35].join("."));
    assert_eq!((label.len(), subdomain.len()), (63, 253));
    let mut service = service(label, &json!({"sheave.dev/address-pool": subdomain}), &json!({}));
    service["metadata"]["namespace"] = label.into();
    let pool = POOL.replace("public", &subdomain);
    let slice = WEB_SLICE
        .replace("name: web-1", &format!("name: {subdomain}"))
        .replace("service-name: web", &format!("service-name: {label}"))
        .replace("shop", label);
    let mut objects = objects(&[NODE, &pool, &slice]);
    put(&mut objects, service);
    let (_, projection) = project(&objects);
    assert_eq!(projection.problems.len(), 0, "{:?}", projection.problems);
    assert_eq!(
        lines(&projection),
        [format!("203.0.113.0:80/TCP {label}/{label} 10.1.0.7:8080 | 10.1.0.7:8080")]
    );
}

#[test]
fn ten_thousand_services_that_are_wrong_alike_are_told_of_once_each() {
    let mut objects = objects(&[NODE, POOL]);
    for number in 0..10_000 {
        put(
            &mut objects,
            service(&format!("s{number}"), &json!({"sheave.dev/balance": "worst"}), &json!({})),
        );
    }
    let (_, projection) = project(&objects);
    let wrong =
        projection.problems.iter().filter(|it| it.reason == crate::api::problem::reason::INVALID_VALUE);
    assert_eq!(wrong.count(), 10_000);
    let reasons: BTreeSet<&str> = projection.problems.iter().map(|problem| problem.reason).collect();
    assert!(reasons.len() <= 2, "{reasons:?}");
}
