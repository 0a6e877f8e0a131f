//! Ports of ingress-nginx as listeners: each entry that its controller serves is one listener with one route.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Migration, ServiceTarget};
use super::support::{CLUSTER, POOL, migrated, of_kind, reports, served, yaml};

/// A controller as in the manifests of ingress-nginx, with the Service in front of it.
const CONTROLLER: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: ingress-nginx-controller, namespace: ingress-nginx}
spec:
  template:
    metadata: {labels: {app.kubernetes.io/name: ingress-nginx, app.kubernetes.io/component: controller}}
    spec:
      containers:
      - name: controller
        env: [{name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]
        args: [/nginx-ingress-controller, --tcp-services-configmap=$(POD_NAMESPACE)/ports, --udp-services-configmap, ingress-nginx/udp]
---
apiVersion: v1
kind: Service
metadata: {name: front, namespace: ingress-nginx}
spec:
  type: LoadBalancer
  loadBalancerClass: example.com/other
  loadBalancerSourceRanges: [10.0.0.0/8]
  selector: {app.kubernetes.io/name: ingress-nginx}
  ports: [{name: http, port: 80}, {name: db, port: 5432}, {name: dns, port: 53, protocol: UDP}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.9}]}}
";

/// Backends of all tests, each with an endpoint.
const BACKENDS: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 80, targetPort: 8080}, {name: dns, port: 80, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}]
endpoints: [{addresses: [10.1.0.7]}]
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: cart}
spec: {ports: [{port: 5432}, {port: 5432, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: far, namespace: shop}
spec: {type: ExternalName, externalName: example.com, ports: [{port: 80}]}
";

fn config_map(name: &str, entries: &[(String, String)]) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(key, value)| format!("{}: {}", json!(key), json!(value))).collect();
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: ingress-nginx}}\ndata: {{{}}}\n",
        entries.join(", ")
    )
}

fn entries(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn tcp(list: &[(&str, &str)]) -> Migration {
    let map = config_map("tcp-services", &entries(list));
    migrated(&format!("{map}---\n{BACKENDS}"), ServiceTarget::Services)
}

/// A listener with its route: protocol, port, whether PROXY headers are accepted, backend, and the route's client source.
type Forwarded = (String, u64, bool, String, Option<String>);

/// All listeners with their routes. Checks that each route has one listener, and each listener one route.
fn forwarded(migration: &Migration) -> BTreeSet<Forwarded> {
    let mut listeners: BTreeMap<(String, String), (String, u64, bool)> = BTreeMap::new();
    for kind in ["Gateway", "ListenerSet"] {
        for object in of_kind(migration, kind) {
            let entries = object["spec"]["listeners"].as_array().unwrap();
            assert!((1..=64).contains(&entries.len()), "{kind} has {} listeners", entries.len());
            let gateway = if kind == "Gateway" {
                object
            } else {
                let name = &object["spec"]["parentRef"]["name"];
                let gateway =
                    of_kind(migration, "Gateway").find(|it| it["metadata"]["name"] == *name).unwrap();
                assert_eq!(gateway["spec"]["allowedListeners"]["namespaces"]["from"], "Same");
                gateway
            };
            let accepts = !gateway["metadata"]["annotations"]["sheave.dev/accept-proxy"].is_null();
            for entry in entries {
                let (name, protocol) = (entry["name"].as_str().unwrap(), entry["protocol"].as_str().unwrap());
                assert!(name.len() <= 63);
                let parent = format!("{kind} {}", object["metadata"]["name"]);
                let what = (protocol.to_owned(), entry["port"].as_u64().unwrap(), accepts);
                assert_eq!(listeners.insert((parent, name.to_owned()), what), None, "{name}");
            }
        }
    }
    let mut found = BTreeSet::new();
    for (kind, protocol) in [("TCPRoute", "TCP"), ("UDPRoute", "UDP")] {
        for route in of_kind(migration, kind) {
            let reference = &route["spec"]["parentRefs"][0];
            let parent = format!("{} {}", reference["kind"].as_str().unwrap_or("Gateway"), reference["name"]);
            let section = reference["sectionName"].as_str().unwrap().to_owned();
            let (of, port, accepts) = listeners.remove(&(parent, section)).unwrap();
            assert_eq!(of, protocol);
            let backend = &route["spec"]["rules"][0]["backendRefs"][0];
            let namespace = route["metadata"]["namespace"].as_str().unwrap();
            let backend = format!("{namespace}/{}:{}", backend["name"].as_str().unwrap(), backend["port"]);
            let source = route["metadata"]["annotations"]["sheave.dev/client-source"].as_str();
            found.insert((of, port, accepts, backend, source.map(str::to_owned)));
        }
    }
    assert!(listeners.is_empty(), "listeners without a route: {listeners:?}");
    found
}

fn one(protocol: &str, port: u64, accepts: bool, backend: &str, source: Option<&str>) -> Forwarded {
    (protocol.to_owned(), port, accepts, backend.to_owned(), source.map(str::to_owned))
}

#[test]
fn entries_of_both_config_maps_are_listeners_of_one_gateway_with_the_addresses_of_the_service() {
    let text = [
        CONTROLLER,
        BACKENDS,
        &config_map("ports", &entries(&[("5432", "cart/db:5432")])),
        &config_map("udp", &entries(&[("53", "shop/web:dns")])),
        // Not read by this controller.
        &config_map("tcp-services", &entries(&[("1", "shop/web:80")])),
    ];
    let text = text.join("---\n");
    let migration = migrated(&text, ServiceTarget::Services);
    assert_eq!(
        forwarded(&migration),
        [one("TCP", 5432, false, "cart/db:5432", None), one("UDP", 53, false, "shop/web:80", None)].into()
    );
    let [gateway] = of_kind(&migration, "Gateway").collect::<Vec<_>>()[..] else { panic!("one Gateway") };
    assert_eq!(gateway["metadata"]["name"], "ingress-nginx-controller");
    assert_eq!(gateway["metadata"]["namespace"], "ingress-nginx");
    assert_eq!(gateway["metadata"]["annotations"]["sheave.dev/source-ranges"], "10.0.0.0/8");
    assert_eq!(gateway["spec"]["addresses"][0]["value"], "203.0.113.9");
    let selector = &gateway["spec"]["listeners"][0]["allowedRoutes"]["namespaces"];
    assert_eq!(selector["from"], "Selector");
    assert_eq!(selector["selector"]["matchLabels"]["kubernetes.io/metadata.name"], "cart");
    assert_eq!(
        reports(&migration),
        [
            "Service ingress-nginx/front: status.loadBalancer.ingress: Gateway ingress-nginx/ingress-nginx-controller asks for 203.0.113.9: \
          no pool that was read has it; there must be an AddressPool with it"
        ]
    );
    let steps = migration.steps.join("\n");
    assert!(steps.contains("remove 5432/TCP, 53/UDP from the Service"), "{steps}");
    let (frontends, problems) = served(&[CLUSTER, POOL, BACKENDS, &yaml(&migration)]);
    assert_eq!(problems, [""; 0]);
    let addresses: Vec<&str> = frontends.keys().map(String::as_str).collect();
    assert_eq!(addresses, ["203.0.113.9:53/UDP", "203.0.113.9:5432/TCP"]);
    let (endpoints, ranges, _) = &frontends["203.0.113.9:53/UDP"];
    assert_eq!(endpoints.len(), 1);
    assert!(ranges.contains("10.0.0.0/8"), "{ranges}");
}

#[test]
fn proxy_headers_of_clients_divide_a_gateway_and_those_to_endpoints_are_of_the_route() {
    let migration = tcp(&[
        ("9000", "shop/web:80"),
        ("9001", "shop/web:http:PROXY"),
        ("9002", "shop/web:80::proxy"),
        ("9003", "shop/web:80:Proxy:PROXY"),
    ]);
    let v1 = Some("proxy-v1");
    let wanted = [
        one("TCP", 9000, false, "shop/web:80", None),
        one("TCP", 9001, true, "shop/web:80", None),
        one("TCP", 9002, false, "shop/web:80", v1),
        one("TCP", 9003, true, "shop/web:80", v1),
    ];
    assert_eq!(forwarded(&migration), wanted.into());
    let names: Vec<&Value> = of_kind(&migration, "Gateway").map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["ingress-nginx", "ingress-nginx-proxy"]);
    assert!(migration.steps.iter().any(|step| step.contains("acceptProxy: {allow: [...]}")));
    let (frontends, problems) = served(&[CLUSTER, POOL, BACKENDS, &yaml(&migration)]);
    assert_eq!((frontends.len(), problems), (4, Vec::new()));
}

#[test]
fn what_is_no_entry_is_reported_with_its_key_and_value() {
    let long = "a".repeat(253);
    let cases: [(&str, &str, &str); 17] = [
        ("x", "shop/web:80", "the key is not a number"),
        ("0", "shop/web:80", "0 is not a port"),
        ("65536", "shop/web:80", "65536 is not a port"),
        ("80", "shop/web:80", "keeps port 80 for itself"),
        ("9001", "shop/web", "it is not NAMESPACE/SERVICE:PORT"),
        ("9002", "web:80", "it names no namespace"),
        ("9003", "shop/web:", "it names no port"),
        ("9004", "shop/web\u{7}:80", "names of a Namespace and a Service"),
        ("9005", &format!("shop/{long}:80"), "names of a Namespace and a Service"),
        ("9006", &format!("{long}/web:80"), "names of a Namespace and a Service"),
        ("9007", "shop/web/x:80", "names of a Namespace and a Service"),
        ("9008", "shop/web:81", "Service shop/web has no port \"81\" with TCP"),
        ("9009", "shop/web:dns", "Service shop/web has no port \"dns\" with TCP"),
        ("9010", "shop/gone:http", "Service shop/gone was not read"),
        ("9011", "shop/gone:65536", "65536 is not a port"),
        ("9012", "shop/far:80", "ExternalName"),
        ("9013", "", "it is not NAMESPACE/SERVICE:PORT"),
    ];
    for (key, value, why) in cases {
        let migration = tcp(&[(key, value)]);
        assert_eq!(of_kind(&migration, "Gateway").count(), 0, "{key}");
        let reports = reports(&migration);
        let [report] = reports.as_slice() else { panic!("{key}: {reports:?}") };
        assert!(
            report.starts_with(&format!("ConfigMap ingress-nginx/tcp-services: data.{key}: ")),
            "{report}"
        );
        assert!(report.contains(why), "{report}");
        assert!(report.contains(value) || value.len() > 200 || value.contains('\u{7}'), "{report}");
    }
}

#[test]
fn an_entry_that_may_be_right_is_kept_and_reported() {
    let migration = tcp(&[("9000", "shop/gone:81"), ("9001", "shop/web:80:TLS:PROXY:x")]);
    assert_eq!(
        forwarded(&migration),
        [one("TCP", 9000, false, "shop/gone:81", None), one("TCP", 9001, false, "shop/web:80", None)].into()
    );
    let reports = reports(&migration).join("\n");
    for part in [
        "Service shop/gone was not read: check",
        "\"TLS\" has no effect",
        "\"PROXY\" has no effect",
        "\"x\" has no effect",
    ] {
        assert!(reports.contains(part), "{part}: {reports}");
    }
}

#[test]
fn one_port_written_twice_is_no_port() {
    let migration = tcp(&[("9000", "shop/web:80"), ("09000", "cart/db:5432")]);
    assert_eq!(of_kind(&migration, "Gateway").count(), 0);
    assert_eq!(
        reports(&migration).iter().filter(|it| it.contains("another entry is for port 9000")).count(),
        2
    );
}

#[test]
fn keys_that_are_numbers_in_yaml_are_read() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tcp-services, namespace: a}\ndata:\n  9000: 'shop/web:80'\n";
    let migration = migrated(&format!("{map}---\n{BACKENDS}"), ServiceTarget::Services);
    assert_eq!(forwarded(&migration).len(), 1);
}

#[test]
fn ports_that_clients_could_not_reach_are_reported() {
    let text =
        [CONTROLLER, BACKENDS, &config_map("ports", &entries(&[("5433", "cart/db:5432")]))].join("---\n");
    let reports = reports(&migrated(&text, ServiceTarget::Services)).join("\n");
    assert!(
        reports.contains(
            "Service ingress-nginx/front: spec.ports: the Service of the controller has no port 5433/TCP"
        ),
        "{reports}"
    );
    assert!(
        reports.contains("--udp-services-configmap=ingress-nginx/udp: this ConfigMap was not read"),
        "{reports}"
    );
}

#[test]
fn reserved_ports_are_those_of_the_arguments() {
    let controller = CONTROLLER.replace("/nginx-ingress-controller", "--http-port=8080");
    let map = config_map("ports", &entries(&[("80", "shop/web:80"), ("8080", "shop/web:80")]));
    let migration = migrated(&[controller.as_str(), BACKENDS, &map].join("---\n"), ServiceTarget::Services);
    assert_eq!(forwarded(&migration), [one("TCP", 80, false, "shop/web:80", None)].into());
}

#[test]
fn a_service_of_the_controller_loses_only_the_ports_of_its_entries_to_their_gateway() {
    let controller = CONTROLLER.replace("  loadBalancerClass: example.com/other\n", "");
    let map = config_map("ports", &entries(&[("5432", "cart/db:5432")]));
    let migration = migrated(&[controller.as_str(), BACKENDS, &map].join("---\n"), ServiceTarget::GatewayApi);
    let wanted = [
        one("TCP", 5432, false, "cart/db:5432", None),
        one("TCP", 80, false, "ingress-nginx/front:80", None),
        one("UDP", 53, false, "ingress-nginx/front:53", None),
    ];
    assert_eq!(forwarded(&migration), wanted.into());
    let (_, problems) = served(&[CLUSTER, POOL, BACKENDS, &yaml(&migration)]);
    assert!(problems.iter().all(|it| it.contains("BackendNotFound")), "{problems:?}");
}

#[test]
fn more_than_1024_ports_are_several_gateways() {
    let ports: Vec<(String, String)> =
        (20_000..21_100).map(|port| (port.to_string(), "shop/web:80".to_owned())).collect();
    let text = format!("{}---\n{BACKENDS}", config_map("tcp-services", &ports));
    let migration = migrated(&text, ServiceTarget::Services);
    assert_eq!(forwarded(&migration).len(), 1100);
    assert_eq!(of_kind(&migration, "Gateway").count(), 2);
    assert_eq!(of_kind(&migration, "ListenerSet").count(), 16);
    let (frontends, problems) = served(&[CLUSTER, POOL, BACKENDS, &yaml(&migration)]);
    assert_eq!((frontends.len(), problems), (1100, Vec::new()));
}

#[test]
fn the_address_is_that_of_the_service_that_is_named_or_of_the_only_one() {
    let other = "apiVersion: v1\nkind: Service\nmetadata: {name: inside, namespace: ingress-nginx}\n\
                 spec: {type: LoadBalancer, selector: {app.kubernetes.io/name: ingress-nginx}, ports: [{port: 5432}]}\n\
                 status: {loadBalancer: {ingress: [{ip: 203.0.113.8}]}}\n";
    let map = config_map("ports", &entries(&[("5432", "cart/db:5432")]));
    let addresses = |controller: &str, service: &str| {
        let text = [POOL, controller, BACKENDS, &map, service].join("---\n");
        let migration = migrated(&text, ServiceTarget::Services);
        let gateway = of_kind(&migration, "Gateway").next().unwrap();
        (gateway["spec"]["addresses"].clone(), reports(&migration).join("\n"))
    };
    let ip = |ip: &str| json!([{"type": "IPAddress", "value": ip}]);
    assert_eq!(addresses(CONTROLLER, "").0, ip("203.0.113.9"));
    let (none, reports) = addresses(CONTROLLER, other);
    assert!(
        none.is_null() && reports.contains("no LoadBalancer Service of the controller with an address"),
        "{reports}"
    );
    let daemons = CONTROLLER.replace("kind: Deployment", "kind: DaemonSet");
    let named = daemons.replace("/nginx-ingress-controller", "--publish-service=$(POD_NAMESPACE)/inside");
    assert_eq!(addresses(&named, other).0, ip("203.0.113.8"));
    let (_, reports) = addresses(&named, "");
    assert!(reports.contains("--publish-service=ingress-nginx/inside: no LoadBalancer Service"), "{reports}");
}

#[test]
fn an_address_of_another_namespace_must_be_shared() {
    let controller = CONTROLLER.replace("$(POD_NAMESPACE)/ports", "shop/ports");
    let map = config_map("ports", &entries(&[("5432", "cart/db:5432")]))
        .replace("namespace: ingress-nginx", "namespace: shop");
    let migration = migrated(&[POOL, &controller, BACKENDS, &map].join("---\n"), ServiceTarget::Services);
    let reports = reports(&migration).join("\n");
    assert!(
        reports.contains("asks for 203.0.113.9 from another namespace: set sharing: Cluster"),
        "{reports}"
    );
}

#[test]
fn a_namespace_that_cannot_exist_is_reported() {
    let map = config_map("tcp-services", &entries(&[("5432", "cart/db:5432")]));
    let map = map.replace("namespace: ingress-nginx", &format!("namespace: {}", "a".repeat(253)));
    let migration = migrated(&[&map, BACKENDS].join("---\n"), ServiceTarget::Services);
    assert_eq!(migration.objects.len(), 0);
    assert!(reports(&migration)[0].contains("is not the name of a Namespace"));
}

/// Values of entries, and what they forward to: backend, and the two PROXY fields. `None` if nothing.
fn value(choice: u8, is_tcp: bool) -> (String, Option<(&'static str, bool, bool)>) {
    let (text, forwarded) = match choice {
        0 => ("shop/web:80", Some(("shop/web:80", false, false))),
        1 => ("shop/web:http", Some(("shop/web:80", false, false)).filter(|_| is_tcp)),
        2 => ("shop/web:dns", Some(("shop/web:80", false, false)).filter(|_| !is_tcp)),
        3 => ("shop/web:80:PROXY", Some(("shop/web:80", is_tcp, false))),
        4 => ("cart/db:5432::PROXY", Some(("cart/db:5432", false, is_tcp))),
        5 => ("cart/db:5432:proxy:proxy", Some(("cart/db:5432", is_tcp, is_tcp))),
        6 => ("shop/gone:81", Some(("shop/gone:81", false, false))),
        7 => ("shop/gone:http", None),
        8 => ("shop/web", None),
        9 => ("\u{7}/\u{1b}:80", None),
        10 => ("shop/web:81", None),
        _ => return (format!("shop/{}:80", "a".repeat(253)), None),
    };
    (text.to_owned(), forwarded)
}

const RESERVED: [u16; 8] = [80, 443, 442, 8181, 10245, 10246, 10254, 10247];

proptest! {
    // Each case is a whole projection.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn each_entry_is_one_listener_with_one_route(
        tcp in prop::collection::btree_map(any::<u16>(), 0..12_u8, 0..200),
        udp in prop::collection::btree_map(any::<u16>(), 0..12_u8, 0..60),
    ) {
        let mut wanted = BTreeSet::new();
        let mut missing = Vec::new();
        let mut maps = [Vec::new(), Vec::new()];
        for (index, (protocol, map)) in [("TCP", &tcp), ("UDP", &udp)].into_iter().enumerate() {
            for (port, choice) in map {
                let (text, forwarded) = value(*choice, protocol == "TCP");
                maps[index].push((port.to_string(), text));
                match forwarded.filter(|_| *port != 0 && !RESERVED.contains(port)) {
                    Some((backend, decodes, encodes)) => {
                        let source = encodes.then_some("proxy-v1");
                        wanted.insert(one(protocol, u64::from(*port), decodes, backend, source));
                    }
                    None => missing.push(format!("{}-services: data.{port}: ", protocol.to_ascii_lowercase())),
                }
            }
        }
        let file = |maps: &[Vec<(String, String)>; 2]| {
            [&config_map("tcp-services", &maps[0]), &config_map("udp-services", &maps[1]), BACKENDS].map(|it| it).join("---\n")
        };
        let migration = migrated(&file(&maps), ServiceTarget::Services);
        prop_assert_eq!(forwarded(&migration), wanted);
        let found = reports(&migration);
        for entry in missing {
            prop_assert!(found.iter().any(|it| it.contains(&entry)), "{} in {:?}", entry, found);
        }
        let output = yaml(&migration);
        maps.iter_mut().for_each(|map| map.reverse());
        prop_assert_eq!(&yaml(&migrated(&file(&maps), ServiceTarget::Services)), &output);
        let (frontends, problems) = served(&[CLUSTER, POOL, BACKENDS, &output]);
        prop_assert_eq!(frontends.len(), forwarded(&migration).len());
        // A Service that was not read is still missing.
        prop_assert!(problems.iter().all(|it| it.contains("BackendNotFound")), "{:?}", problems);
    }
}
