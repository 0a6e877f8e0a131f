//! Roles in the allocation of addresses: a gateway uses published ones; the controller allocates from pools and keeps its
//! allocations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use sheave_model::FrontendSource;

use super::super::{Options, Projection, Projector, Published, Role};
use super::support::{NODE, WEB_SLICE, add, ips, objects, options, problems, service, web};
use crate::api::gateway_api::{Gateway, GatewayClass};
use crate::api::kinds::{GatewayClasses, Gateways};
use crate::api::store::{Dirty, Objects, ServiceKey};
use crate::projection::service_health::Fault;

pub(super) const POOL: &str =
    "kind: AddressPool\nmetadata: {name: main}\nspec: {addresses: [203.0.113.0/30]}\n";
pub(super) const NODES_POOL: &str =
    "kind: AddressPool\nmetadata: {name: nodes}\nspec: {fromGatewayNodes: true}\n";

fn published() -> Projector {
    Projector::new(Options { role: Role::Gateway, ..options() })
}

pub(super) fn managed() -> Projector {
    let gateways = ServiceKey::new("sheave-system", "sheave-gateways");
    let role = Role::Controller { gateways, own_gateway: None };
    Projector::new(Options { node: String::new(), role, ..Options::default() })
}

pub(super) fn status(ips: &[&str]) -> String {
    let ingress: Vec<String> = ips.iter().map(|ip| format!("{{ip: '{ip}', ipMode: Proxy}}")).collect();
    format!("status: {{loadBalancer: {{ingress: [{}]}}}}", ingress.join(", "))
}

/// Like [`status`], for addresses that were allocated as those of gateway nodes.
pub(super) fn of_nodes(families: &str, ips: &[&str]) -> String {
    let condition = format!(
        "{{type: sheave.dev/FromGatewayNodes, status: 'True', reason: {families}, message: '', lastTransitionTime: \
         '2026-01-01T00:00:00Z'}}"
    );
    format!("{}, conditions: [{condition}]}}", status(ips).trim_end_matches('}').to_owned() + "}")
}

/// Projects everything.
pub(super) fn all(projector: &mut Projector, objects: &Objects) -> Projection {
    projector.project(objects, &Dirty::Everything)
}

/// A Node with these addresses and additional metadata.
fn node(name: &str, addresses: &str, metadata: &str) -> String {
    format!("kind: Node\nmetadata: {{name: {name}{metadata}}}\nstatus: {{addresses: [{addresses}]}}\n")
}

/// The slice of the gateways, with each Node and whether its gateway is ready.
pub(super) fn gateways(ready: &[(&str, bool)]) -> String {
    let endpoint = |(node, ready): &(&str, bool)| {
        format!("{{addresses: [192.0.2.9], nodeName: {node}, conditions: {{ready: {ready}}}}}")
    };
    let endpoints: Vec<String> = ready.iter().map(endpoint).collect();
    format!(
        "kind: EndpointSlice\nmetadata: {{name: gateways-1, namespace: sheave-system, labels: \
         {{kubernetes.io/service-name: sheave-gateways}}}}\naddressType: IPv4\nports: [{{name: report, port: 9842}}]\n\
         endpoints: [{}]\n",
        endpoints.join(", ")
    )
}

pub(super) fn three_nodes() -> Objects {
    objects(&[
        &node("gw-1", "{type: InternalIP, address: 192.0.2.1}", ""),
        &node(
            "gw-2",
            "{type: InternalIP, address: 192.0.2.2}, {type: ExternalIP, address: 198.51.100.2}",
            "",
        ),
        &node(
            "gw-3",
            "{type: InternalIP, address: 192.0.2.3}, {type: InternalIP, address: '2001:db8::3'}",
            "",
        ),
        NODES_POOL,
    ])
}

#[test]
fn a_gateway_serves_what_is_published_and_gives_nothing_itself() {
    let pending = all(&mut published(), &objects(&[NODE, POOL, &web("", "")]));
    assert!(pending.table.frontends().is_empty());
    assert!(problems(&pending).is_empty(), "it is the controller that knows why");
    let given = objects(&[NODE, &web("", &status(&["198.51.100.7", "198.51.100.8"]))]);
    assert_eq!(ips(&all(&mut published(), &given), "shop/web"), ["198.51.100.7", "198.51.100.8"]);
}

/// Independent of the controller's view, in which the Pod is being replaced or the kubelet is unavailable.
#[test]
fn a_gateway_serves_its_own_nodes_address_while_others_of_the_kind_are_published() {
    let own = "192.0.2.17";
    let web_of = |spec: &str, families: &str, ips: &[&str]| web(spec, &of_nodes(families, ips));
    let served = |objects: &[&str]| ips(&all(&mut published(), &self::objects(objects)), "shop/web");
    let this = node(
        "gw-1",
        "{type: InternalIP, address: 192.0.2.17}, {type: InternalIP, address: '2001:db8::17'}",
        "",
    );
    let others = ["192.0.2.2", "192.0.2.3"];
    let with_own = ["192.0.2.2", "192.0.2.3", own];
    assert_eq!(served(&[&this, &web_of("", "IPv4", &others)]), with_own);
    assert_eq!(served(&[&this, &web_of("", "IPv4", &with_own)]), with_own);
    assert_eq!(served(&[&this, &web("", &status(&others))]), others, "they are a pool's");
    let excluded = ", labels: {node.kubernetes.io/exclude-from-external-load-balancers: ''}";
    let excluded = node("gw-1", "{type: InternalIP, address: 192.0.2.17}", excluded);
    assert_eq!(served(&[&excluded, &web_of("", "IPv4", &others)]), others);
    let local = web_of("externalTrafficPolicy: Local", "IPv4", &others);
    assert_eq!(served(&[&this, &local, &WEB_SLICE.replace("nodeName: n1", "nodeName: gw-1")]), with_own);
    assert_eq!(served(&[&this, &local, WEB_SLICE]), others, "it has no endpoint here");
    let both = web_of("ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack", "DualStack", &others);
    assert_eq!(served(&[&this, &both]), ["192.0.2.2", "192.0.2.3", own, "2001:db8::17"]);
}

#[test]
fn at_its_own_nodes_address_a_gateway_serves_who_has_the_port_at_the_others() {
    let this = node("gw-1", "{type: InternalIP, address: 192.0.2.17}", "");
    let created = |name: &str, year: u32| {
        let created = format!("metadata: creationTimestamp: '{year}-01-01T00:00:00Z'");
        service("shop", name, "ports: [{port: 80}]", &created)
    };
    let lost = "ipMode: Proxy, ports: [{port: 80, protocol: TCP, error: sheave.dev/AddressInUse}]";
    let newer = created("newer", 2025) + &of_nodes("IPv4", &["192.0.2.2"]);
    let older = created("older", 2020) + &of_nodes("IPv4", &["192.0.2.2"]).replace("ipMode: Proxy", lost);
    let projection = all(&mut published(), &objects(&[&this, &older, &newer]));
    assert_eq!(ips(&projection, "shop/newer"), ["192.0.2.2", "192.0.2.17"]);
    assert!(ips(&projection, "shop/older").is_empty());
}

#[test]
fn a_gateway_serves_a_leaving_service_until_its_status_is_empty() {
    let leaving = "metadata: deletionTimestamp: '2026-01-01T00:00:00Z'";
    let leaving = web("", leaving) + &status(&["198.51.100.7"]);
    assert_eq!(ips(&all(&mut published(), &objects(&[NODE, &leaving])), "shop/web"), ["198.51.100.7"]);
    let released = all(&mut managed(), &objects(&[NODE, POOL, &leaving]));
    assert!(released.table.frontends().is_empty());
}

const LEAVING: &str = ", deletionTimestamp: '2026-01-01T00:00:00Z'";
const ONLY: &str = "kind: AddressPool\nmetadata: {name: only}\nspec: {addresses: [203.0.113.1]}\n";

/// `shop/web` with our finalizer and additional metadata.
fn finalized(metadata: &str, spec: &str, rest: &str) -> String {
    let named = "{namespace: shop, name: web";
    let finalizer = ", finalizers: [sheave.dev/load-balancer-cleanup]";
    web(spec, rest).replace(named, &format!("{named}{finalizer}{metadata}"))
}

#[test]
fn what_a_status_publishes_is_nobody_elses_until_it_is_cleared() {
    let other = ", labels: {service.kubernetes.io/service-proxy-name: other}";
    let unclassified = "loadBalancerClass: null";
    for (metadata, spec) in [(LEAVING, ""), (other, ""), ("", unclassified), (LEAVING, unclassified)] {
        let asks = service("able", "web", "ports: [{port: 443}]", "");
        let service = finalized("", "", &status(&["203.0.113.1"]));
        let gone = |rest: &str| {
            let gone = finalized(metadata, "", rest);
            if spec.is_empty() { gone } else { gone.replace("loadBalancerClass: sheave.dev/l4", spec) }
        };
        let mut before = objects(&[ONLY, &service]);
        let mut running = managed();
        assert_eq!(ips(&all(&mut running, &before), "shop/web"), ["203.0.113.1"]);
        add(&mut before, &[&asks, &gone(&status(&["203.0.113.1"]))]);
        for mut projector in [running, managed()] {
            let mut objects = before.clone();
            let waits = all(&mut projector, &objects);
            assert!(waits.table.frontends().is_empty(), "{metadata}{spec}: its clients reach another tenant");
            assert!(problems(&waits).contains(&"Service able/web NoAddress ".to_owned()));
            assert!(projector.status(&ServiceKey::new("shop", "web")).is_none(), "it is to be cleared");
            add(&mut objects, &[&gone("")]);
            let given =
                projector.project(&objects, &Dirty::Services([ServiceKey::new("shop", "web")].into()));
            assert_eq!(ips(&given, "able/web"), ["203.0.113.1"], "{metadata}{spec}");
        }
    }
}

/// The deletion of an object and its successor come in one batch.
#[test]
fn a_successor_inherits_nothing() {
    let key = ServiceKey::new("shop", "web");
    let of = |uid: &str, rest: &str| finalized(&format!(", uid: {uid}"), "", rest);
    let kept = of("a", &status(&["203.0.113.2"])).replace("sheave.dev/l4", "example.com/other");
    let mut kept = objects(&[POOL, &kept]);
    let mut projector = managed();
    all(&mut projector, &kept);
    add(&mut kept, &[&of("b", "")]);
    let next = projector.project(&kept, &Dirty::Services([key.clone()].into()));
    assert_eq!(ips(&next, "shop/web"), ["203.0.113.0"], "the first one was kept for its status alone");

    let mut allocated = objects(&[ONLY, &of("a", "")]);
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &allocated), "shop/web"), ["203.0.113.1"]);
    let asks = service("able", "web", "ports: [{port: 443}]", "");
    add(&mut allocated, &[&asks, &finalized(&format!(", uid: b{LEAVING}"), "", "")]);
    let dirty = [key, ServiceKey::new("able", "web")];
    let next = projector.project(&allocated, &Dirty::Services(dirty.into()));
    assert_eq!(ips(&next, "able/web"), ["203.0.113.1"], "the second one never had it");
}

/// A write that is under way, or whose answer was lost, may publish an address that no status has.
#[test]
fn an_address_that_was_sent_is_nobody_elses_until_the_write_is_over() {
    let other =
        "kind: AddressPool\nmetadata: {name: other}\nspec: {addresses: [198.51.100.1], autoAssign: false}\n";
    let asks = service("able", "web", "ports: [{port: 443}]", "");
    let key = ServiceKey::new("shop", "web");
    let body = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "Proxy"}]}});
    let sent = Published::written(FrontendSource::Service, &body);
    let unclassified = finalized("", "", "").replace("sheave.dev/l4", "example.com/other");
    let moved = finalized(", annotations: {sheave.dev/address-pool: other}", "", "");
    for changed in
        [unclassified, moved, finalized("", "", "").replace("type: LoadBalancer", "type: ClusterIP")]
    {
        let mut objects = objects(&[ONLY, other, &finalized("", "", "")]);
        let mut projector = managed();
        assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.1"]);
        add(&mut objects, &[&asks, &changed]);
        projector.set_sent([(key.clone(), sent.clone())].into());
        let waits = all(&mut projector, &objects);
        assert!(problems(&waits).contains(&"Service able/web NoAddress ".to_owned()), "{changed}");
        projector.set_sent(BTreeMap::new());
        let given = projector.project(&objects, &Dirty::Nothing);
        assert_eq!(ips(&given, "able/web"), ["203.0.113.1"], "{changed}");
    }
}

/// Another Service in the namespace may have the address as well, but not a port that is still published.
#[test]
fn a_port_that_a_status_publishes_is_nobody_elses_until_it_is_cleared() {
    let listing = |ports: &str| {
        format!(
            "status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.1, ipMode: Proxy, ports: [{ports}]}}]}}}}"
        )
    };
    let both = "{port: 80, protocol: TCP}, {port: 81, protocol: TCP}";
    let other = service("shop", "other", "ports: [{port: 80}], loadBalancerIP: 203.0.113.1", "");
    let edited = finalized("", "", &listing(both)).replace("port: 80}]", "port: 443}]");
    for (changed, settled) in [
        (finalized(LEAVING, "", &listing(both)), finalized(LEAVING, "", "")),
        (edited, finalized("", "", "").replace("port: 80}]", "port: 443}]")),
    ] {
        let mut objects = objects(&[ONLY, &finalized("", "", &listing(both))]);
        let mut projector = managed();
        let _ = all(&mut projector, &objects);
        add(&mut objects, &[&other, &changed]);
        let waits = all(&mut projector, &objects);
        assert!(problems(&waits).contains(&"Service shop/other AddressInUse spec.ports[0]".to_owned()));
        assert!(ips(&waits, "shop/other").is_empty());
        add(&mut objects, &[&settled]);
        let key = ServiceKey::new("shop", "web");
        let given = projector.project(&objects, &Dirty::Services([key].into()));
        assert_eq!((ips(&given, "shop/other"), problems(&given).len()), (vec!["203.0.113.1".to_owned()], 0));
    }
}

#[test]
fn an_address_of_another_pool_stays_until_the_named_one_has_one() {
    let gold =
        "kind: AddressPool\nmetadata: {name: gold}\nspec: {addresses: [198.51.100.1], autoAssign: false}\n";
    let annotated = "metadata: annotations: {sheave.dev/address-pool: gold}";
    let first = service("shop", "a", "ports: [{port: 80}]", annotated) + &status(&["198.51.100.1"]);
    let moves = web("", annotated) + &status(&["203.0.113.1"]);
    let mut objects = objects(&[POOL, gold, &first, &moves]);
    for mut projector in [managed(), managed()] {
        let waits = all(&mut projector, &objects);
        assert_eq!(ips(&waits, "shop/web"), ["203.0.113.1"]);
        assert_eq!(
            waits.problems[0].to_string(),
            "Service shop/web: NoAddress: metadata.annotations[sheave.dev/address-pool]: the Service names AddressPool gold, \
             which has no address to give, and the address is of AddressPool main; 203.0.113.1 is kept for the clients of the \
             Service, until another address is free"
        );
        let key = ServiceKey::new("shop", "a");
        let service = objects.services.remove(&key).unwrap();
        let moved = projector.project(&objects, &Dirty::Services([key.clone()].into()));
        assert_eq!((ips(&moved, "shop/web"), problems(&moved).len()), (vec!["198.51.100.1".to_owned()], 0));
        objects.services.insert(key, service);
    }
}

#[test]
fn the_controller_keeps_what_was_given_before_and_gives_the_rest_around_it() {
    let old = service("shop", "z-old", "ports: [{port: 80}]", &status(&["203.0.113.0"]));
    let new = service("shop", "a-new", "ports: [{port: 80}]", "");
    let projection = all(&mut managed(), &objects(&[POOL, &old, &new]));
    assert_eq!(ips(&projection, "shop/z-old"), ["203.0.113.0"]);
    assert_eq!(ips(&projection, "shop/a-new"), ["203.0.113.1"]);
}

#[test]
fn the_controller_keeps_an_address_that_no_pool_has_until_it_is_told_to_renumber() {
    let stray = web("", &status(&["198.51.100.7"]));
    let kept = all(&mut managed(), &objects(&[NODE, POOL, &stray]));
    assert_eq!(ips(&kept, "shop/web"), ["198.51.100.7"]);
    assert_eq!(problems(&kept), ["Service shop/web NoAddress "]);
    let message = &kept.problems[0].message;
    assert!(message.contains("198.51.100.7 is kept") && message.contains("sheave.dev/renumber"), "{message}");
    let told = annotated("sheave.dev/renumber: 'true'", &["198.51.100.7"]);
    let moved = all(&mut managed(), &objects(&[NODE, POOL, &told]));
    assert_eq!((ips(&moved, "shop/web"), problems(&moved).len()), (vec!["203.0.113.0".to_owned()], 0));
    let unclear = annotated("sheave.dev/renumber: 'yes'", &["198.51.100.7"]);
    let kept = all(&mut managed(), &objects(&[NODE, POOL, &unclear]));
    assert_eq!(ips(&kept, "shop/web"), ["198.51.100.7"]);
    let field = "Service shop/web InvalidValue metadata.annotations[sheave.dev/renumber]";
    assert_eq!(problems(&kept), [field, "Service shop/web NoAddress "]);
}

/// `shop/web` with these annotations and a status with these addresses.
fn annotated(annotations: &str, ips: &[&str]) -> String {
    web("", &format!("metadata: annotations: {{{annotations}}}")) + &status(ips)
}

/// Each both as an edit while the controller runs, and as the state when it starts.
#[test]
fn an_edit_of_a_pool_or_a_mistyped_name_leaves_live_addresses_alone() {
    let other = "kind: AddressPool\nmetadata: {name: other}\nspec: {addresses: [198.51.100.0/30]}\n";
    let for_others = POOL.replace("spec: {", "spec: {serviceSelector: {matchLabels: {app: other}}, ");
    let before = objects(&[POOL, other, &web("", &status(&["203.0.113.1"]))]);
    let mistyped = "metadata.annotations[sheave.dev/address-pool]";
    for (pools, pool, field) in [
        (vec![other], "", ""),
        (vec![other, &*for_others], "", ""),
        (vec![other, POOL], "sheave.dev/address-pool: mian", mistyped),
        (vec![other, &*for_others], "sheave.dev/address-pool: main", mistyped),
    ] {
        let after = objects(&[&pools[..], &[&*annotated(pool, &["203.0.113.1"])]].concat());
        let mut running = managed();
        assert_eq!(ips(&all(&mut running, &before), "shop/web"), ["203.0.113.1"]);
        for mut projector in [running, managed()] {
            let kept = all(&mut projector, &after);
            assert_eq!(ips(&kept, "shop/web"), ["203.0.113.1"], "{pools:?} {pool}");
            assert_eq!(problems(&kept), [format!("Service shop/web NoAddress {field}")], "{pools:?} {pool}");
            // No other Service gets it when the pool is restored.
            let greedy = service(
                "shop",
                "a",
                "ports: [{port: 80}]",
                "metadata: annotations: {sheave.dev/address-pool: main}",
            );
            let again = objects(&[POOL, other, &greedy, &web("", &status(&["203.0.113.1"]))]);
            let again = all(&mut projector, &again);
            assert_eq!(
                (ips(&again, "shop/web"), problems(&again).len()),
                (vec!["203.0.113.1".to_owned()], 0)
            );
            assert_eq!(ips(&again, "shop/a"), ["203.0.113.0"]);
        }
    }
    // Naming an existing pool that admits the Service is a request to move.
    let moves = annotated("sheave.dev/address-pool: other", &["203.0.113.1"]);
    assert_eq!(ips(&all(&mut managed(), &objects(&[POOL, other, &moves])), "shop/web"), ["198.51.100.0"]);
}

#[test]
fn without_any_pool_the_controller_keeps_what_is_published() {
    let mut objects = objects(&[NODE, POOL, &web("", &status(&["203.0.113.1"]))]);
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.1"]);
    let pool = objects.pools.pop_first().unwrap();
    let kept = all(&mut projector, &objects);
    assert_eq!(ips(&kept, "shop/web"), ["203.0.113.1"]);
    assert_eq!(problems(&kept), ["Service shop/web NoAddress "]);
    objects.pools.extend([pool]);
    let again = all(&mut projector, &objects);
    assert_eq!((ips(&again, "shop/web"), problems(&again).len()), (vec!["203.0.113.1".to_owned()], 0));

    add(&mut objects, &[&web("", "")]);
    objects.pools.clear();
    let pending = all(&mut managed(), &objects);
    assert!(pending.table.frontends().is_empty());
    assert!(pending.problems[0].message.contains("add an AddressPool with IPv4"), "{}", pending.problems[0]);
}

#[test]
fn what_it_gave_counts_more_than_an_older_status() {
    let mut objects = objects(&[POOL, &web("", "")]);
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.0"]);
    add(&mut objects, &[&web("", &status(&["203.0.113.3"]))]);
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.0"]);
}

#[test]
fn another_service_of_the_same_name_starts_anew() {
    let named = |uid: &str, ask: &str| web(ask, &format!("metadata: uid: {uid}"));
    let mut objects = objects(&[POOL, &named("one", "loadBalancerIP: 203.0.113.3")]);
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.3"]);
    add(&mut objects, &[&named("one", "")]);
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.3"]);
    add(&mut objects, &[&named("two", "")]);
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.0"]);
}

#[test]
fn gateway_nodes_give_all_their_addresses_while_their_gateway_is_ready() {
    let mut objects = three_nodes();
    let mut projector = managed();
    add(
        &mut objects,
        &[&web("", ""), &gateways(&[("gw-1", true), ("gw-2", true), ("gw-3", false), ("gone", true)])],
    );
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["192.0.2.1", "198.51.100.2"]);

    add(&mut objects, &[&gateways(&[("gw-1", false), ("gw-2", true), ("gw-3", true)])]);
    let changed = Dirty::Services([ServiceKey::new("sheave-system", "sheave-gateways")].into());
    assert_eq!(ips(&projector.project(&objects, &changed), "shop/web"), ["192.0.2.3", "198.51.100.2"]);

    add(&mut objects, &[&gateways(&[])]);
    let kept = projector.project(&objects, &changed);
    assert_eq!(ips(&kept, "shop/web"), ["192.0.2.3", "198.51.100.2"]);
    assert!(kept.problems[0].message.contains("no gateway is ready"), "{}", kept.problems[0]);
    let none = all(&mut managed(), &objects);
    assert_eq!(problems(&none), ["Service shop/web NoAddress "]);
    let message = &none.problems[0].message;
    assert!(
        message.contains("AddressPool nodes") && message.contains("no gateway node is ready"),
        "{message}"
    );
}

#[test]
fn addresses_of_gateway_nodes_are_kept_while_no_gateway_is_ready_at_all() {
    let mut objects = three_nodes();
    let given = web("", &of_nodes("IPv4", &["192.0.2.1"]));
    add(&mut objects, &[&given, &gateways(&[("gw-1", false)])]);
    let kept = all(&mut managed(), &objects);
    assert_eq!(ips(&kept, "shop/web"), ["192.0.2.1"]);
    assert!(kept.problems[0].message.contains("no gateway is ready"), "{}", kept.problems[0]);
    add(&mut objects, &[&gateways(&[("gw-1", false), ("gw-2", true)])]);
    assert_eq!(ips(&all(&mut managed(), &objects), "shop/web"), ["198.51.100.2"]);
    objects.nodes.clear();
    assert_eq!(ips(&all(&mut managed(), &objects), "shop/web"), ["192.0.2.1"], "no Node is known");
}

#[test]
fn published_addresses_are_kept_while_the_namespace_is_not_known() {
    let pool = "kind: AddressPool\nmetadata: {name: p}\nspec: {addresses: [203.0.113.7-203.0.113.9], namespaceSelector: \
                {matchLabels: {team: a}}}\n";
    let other = service("other", "dns", "ports: [{port: 53}]", "");
    let mut objects = objects(&[pool, &web("", &status(&["203.0.113.7"])), &other]);
    let mut projector = managed();
    for (round, namespaces) in [("unknown", vec![]), ("another", vec!["other"])] {
        for name in namespaces {
            let namespace: Namespace =
                serde_saphyr::from_str(&format!("metadata: {{name: {name}, labels: {{team: a}}}}")).unwrap();
            objects.namespaces.insert(name.into(), namespace.into());
        }
        let kept = all(&mut projector, &objects);
        assert_eq!(ips(&kept, "shop/web"), ["203.0.113.7"], "{round}");
        assert!(!ips(&kept, "other/dns").contains(&"203.0.113.7".to_owned()), "{round}");
        assert!(kept.problems.iter().any(|it| it.message.contains("Namespace is not known")), "{round}");
    }
    let namespace: Namespace = serde_saphyr::from_str("metadata: {name: shop, labels: {team: b}}").unwrap();
    objects.namespaces.insert("shop".into(), namespace.into());
    // Now it is known to be excluded, and it keeps its address until renumbering is requested.
    let kept = all(&mut projector, &objects);
    assert_eq!(ips(&kept, "shop/web"), ["203.0.113.7"]);
    assert!(
        kept.problems.iter().any(|it| it.message.contains("leave the Service out")),
        "{:?}",
        kept.problems
    );
}

#[test]
fn a_dual_stack_service_has_every_familys_gateway_nodes() {
    let mut objects = three_nodes();
    let both = web("ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack", "");
    add(&mut objects, &[&both, &gateways(&[("gw-1", true), ("gw-3", true)])]);
    assert_eq!(ips(&all(&mut managed(), &objects), "shop/web"), ["192.0.2.1", "192.0.2.3", "2001:db8::3"]);
}

#[test]
fn nodes_that_are_excluded_or_leave_are_no_gateway_nodes() {
    let excluded = "node.kubernetes.io/exclude-from-external-load-balancers";
    for (metadata, counts) in [
        (format!(", labels: {{{excluded}: ''}}"), false),
        (format!(", labels: {{{excluded}: 'true'}}"), false),
        (format!(", labels: {{{excluded}: 'false'}}"), true),
        (", deletionTimestamp: '2026-01-01T00:00:00Z'".to_owned(), false),
    ] {
        let only = node("gw-1", "{type: InternalIP, address: 192.0.2.1}", &metadata);
        let objects = objects(&[&only, NODES_POOL, &web("", ""), &gateways(&[("gw-1", true)])]);
        assert_eq!(!ips(&all(&mut managed(), &objects), "shop/web").is_empty(), counts, "{metadata}");
    }
    let tainted = node("gw-1", "{type: InternalIP, address: 192.0.2.1}", "")
        + "spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}\n";
    let objects = objects(&[&tainted, NODES_POOL, &web("", ""), &gateways(&[("gw-1", true)])]);
    assert!(ips(&all(&mut managed(), &objects), "shop/web").is_empty());
}

#[test]
fn under_local_only_nodes_with_a_ready_endpoint_give_addresses() {
    let mut objects = three_nodes();
    let mut projector = managed();
    let slice = |endpoint: &str| WEB_SLICE.replace("nodeName: n1", endpoint);
    add(
        &mut objects,
        &[
            &web("externalTrafficPolicy: Local", ""),
            &slice("nodeName: gw-2"),
            &gateways(&[("gw-1", true), ("gw-2", true)]),
        ],
    );
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["198.51.100.2"]);
    add(&mut objects, &[&slice("nodeName: gw-1")]);
    let web_changed = Dirty::Services([ServiceKey::new("shop", "web")].into());
    assert_eq!(ips(&projector.project(&objects, &web_changed), "shop/web"), ["192.0.2.1"]);
    let terminating = "conditions: {ready: false, serving: true, terminating: true}";
    add(&mut objects, &[&slice(&format!("nodeName: gw-1, {terminating}"))]);
    assert_eq!(ips(&projector.project(&objects, &web_changed), "shop/web"), ["192.0.2.1"]);
    add(&mut objects, &[&slice("nodeName: gw-1, conditions: {ready: false}")]);
    assert_eq!(problems(&projector.project(&objects, &web_changed)), ["Service shop/web NoAddress "]);
}

#[test]
fn a_gateway_in_this_process_needs_no_slice() {
    let gateways = ServiceKey::new("sheave-system", "sheave-gateways");
    let role = Role::Controller { gateways, own_gateway: Some("gw-1".into()) };
    let mut projector = Projector::new(Options { role, ..options() });
    assert_eq!(
        ips(&all(&mut projector, &objects(&[NODE, NODES_POOL, &web("", "")])), "shop/web"),
        ["192.0.2.1"]
    );
}

#[test]
fn pools_choose_namespaces_by_any_label_that_is_known() {
    let pool = "kind: AddressPool\nmetadata: {name: p}\nspec: {addresses: [203.0.113.7], namespaceSelector: \
                {matchLabels: {team: a}}}\n";
    let mut objects = objects(&[pool, &web("", "")]);
    let unknown = all(&mut managed(), &objects);
    assert!(unknown.table.frontends().is_empty());
    assert_eq!(
        problems(&unknown),
        ["AddressPool p InvalidValue spec.namespaceSelector", "Service shop/web NoAddress "]
    );
    for (team, admitted) in [("a", true), ("b", false)] {
        let namespace: Namespace =
            serde_saphyr::from_str(&format!("metadata: {{name: shop, labels: {{team: {team}}}}}")).unwrap();
        objects.namespaces.insert("shop".into(), namespace.into());
        assert_eq!(!all(&mut managed(), &objects).table.frontends().is_empty(), admitted, "{team}");
    }
}

#[test]
fn a_port_that_the_status_says_another_service_has_is_no_title_to_it() {
    let lost = "status: {loadBalancer: {ingress: [{ip: 203.0.113.1, ipMode: Proxy, ports: [{port: 443, protocol: TCP, \
                error: sheave.dev/AddressInUse}]}]}}";
    let created = |day: u8| format!("metadata: creationTimestamp: '2026-01-0{day}T00:00:00Z'");
    let asking = "ports: [{port: 443}], loadBalancerIP: 203.0.113.1";
    let older = service("evil", "old", asking, &created(1)) + lost;
    let younger = service("shop", "web", "ports: [{port: 443}]", &created(2)) + &status(&["203.0.113.1"]);
    let in_use = "Service evil/old AddressInUse spec.ports[0]";
    let not_shared = "Service evil/old NoAddress spec.loadBalancerIP";
    for (mut projector, told) in [(managed(), vec![in_use, not_shared]), (published(), vec![in_use])] {
        let projection = all(&mut projector, &objects(&[POOL, &older, &younger]));
        assert_eq!(ips(&projection, "shop/web"), ["203.0.113.1"]);
        assert!(ips(&projection, "evil/old").is_empty());
        assert_eq!(problems(&projection), told);
    }
}

#[test]
fn an_address_that_two_namespaces_publish_stays_with_both_and_the_younger_one_is_told() {
    let asking = "ports: [{port: 443}], loadBalancerIP: 203.0.113.1";
    let created = |day: u8| format!("metadata: creationTimestamp: '2026-01-0{day}T00:00:00Z'");
    let live = |namespace: &str, port: u16, day| {
        let asking = asking.replace("443", &port.to_string());
        service(namespace, "web", &asking, &created(day)) + &status(&["203.0.113.1"])
    };
    // "able" comes first by name, "shop" by age.
    let mut objects = objects(&[POOL, &live("able", 443, 2), &live("shop", 80, 1)]);
    let mut projector = managed();
    let both = all(&mut projector, &objects);
    assert_eq!((ips(&both, "able/web").len(), ips(&both, "shop/web").len()), (1, 1));
    assert_eq!(problems(&both), ["Service able/web NoAddress spec.loadBalancerIP"]);
    let message = &both.problems[0].message;
    assert!(message.contains("203.0.113.1 is kept") && message.contains("spec.sharing"), "{message}");
    assert!(!message.contains("shop"), "it is told that another namespace has it, not which: {message}");
    let gone = ServiceKey::new("shop", "web");
    objects.services.remove(&gone);
    assert_eq!(problems(&projector.project(&objects, &Dirty::Services([gone].into()))), [""; 0]);
}

#[test]
fn an_address_of_another_namespace_is_given_once_that_has_let_it_go() {
    let mut objects = objects(&[POOL, &web("", "")]);
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.0"]);
    add(&mut objects, &[&service("other", "web", "ports: [{port: 443}], loadBalancerIP: 203.0.113.0", "")]);
    let other = ServiceKey::new("other", "web");
    let refused = projector.project(&objects, &Dirty::Services([other].into()));
    assert!(ips(&refused, "other/web").is_empty());
    assert_eq!(problems(&refused), ["Service other/web NoAddress spec.loadBalancerIP"]);
    let gone = ServiceKey::new("shop", "web");
    objects.services.remove(&gone);
    let given = projector.project(&objects, &Dirty::Services([gone].into()));
    assert_eq!((ips(&given, "other/web"), problems(&given).len()), (vec!["203.0.113.0".to_owned()], 0));
}

/// Addresses of Gateway `shop/g` with these addresses in its spec and status.
fn of_gateway(mut projector: Projector, spec: &str, status: &str) -> Vec<String> {
    let mut objects = objects(&[POOL]);
    let class = "metadata: {name: c}\nspec: {controllerName: sheave.dev/gateway}";
    objects.put::<GatewayClasses>(serde_saphyr::from_str::<GatewayClass>(class).unwrap());
    let gateway = format!(
        "metadata: {{namespace: shop, name: g}}\nspec: {{gatewayClassName: c, listeners: [{{name: a, port: 80, protocol: TCP}}], \
         addresses: [{spec}]}}\nstatus: {{addresses: [{status}]}}"
    );
    objects.put::<Gateways>(serde_saphyr::from_str::<Gateway>(&gateway).unwrap());
    all(&mut projector, &objects);
    let key = ServiceKey { source: FrontendSource::Gateway, ..ServiceKey::new("shop", "g") };
    projector.status(&key).unwrap().ingress.iter().map(|ingress| ingress.ip.to_string()).collect()
}

#[test]
fn a_gateway_that_asks_in_vain_keeps_what_it_has_and_gets_nothing_else() {
    let unusable = "{value: 0.0.0.0}, {value: 224.0.0.1}";
    assert_eq!(of_gateway(managed(), unusable, "{value: 203.0.113.2}"), ["203.0.113.2"]);
    assert!(of_gateway(managed(), unusable, "").is_empty());
}

#[test]
fn an_address_that_a_gateways_status_lists_twice_is_one() {
    let twice = "{value: 203.0.113.1}, {value: 203.0.113.2}, {value: 203.0.113.1}";
    assert_eq!(of_gateway(published(), "", twice), ["203.0.113.1", "203.0.113.2"]);
}

#[test]
fn a_service_whose_local_endpoints_no_gateway_has_is_broken() {
    let local = web("externalTrafficPolicy: Local", &status(&["203.0.113.0"]));
    let faults = |gateway_nodes: &[(&str, bool)], endpoints: &[&str]| {
        let mut objects = three_nodes();
        let slices: Vec<String> = (0..)
            .zip(endpoints)
            .map(|(index, node)| {
                WEB_SLICE
                    .replace("web-1", &format!("web-{index}"))
                    .replace("10.1.0.7", &format!("10.1.0.{index}"))
                    .replace("n1", node)
            })
            .collect();
        let gateways = gateways(gateway_nodes);
        add(&mut objects, &[POOL, &local, &gateways]);
        slices.iter().for_each(|slice| add(&mut objects, &[slice]));
        let mut projector = managed();
        all(&mut projector, &objects);
        let found = projector.faults(&ServiceKey::new("shop", "web"));
        found.into_iter().map(|(_, fault)| fault).collect::<Vec<_>>()
    };
    let two = [("gw-1", true), ("gw-2", true), ("gw-3", false)];
    assert_eq!(faults(&two, &["gw-2"]), []);
    assert_eq!(faults(&two, &["n1", "gw-1"]), []);
    assert_eq!(faults(&two, &["n1"]), [Fault::NoLocalEndpoint]);
    assert_eq!(faults(&two, &["gw-3"]), [Fault::NoLocalEndpoint], "its gateway is not ready");
    assert_eq!(faults(&two, &[]), [Fault::NoEndpoint(0)]);
    assert_eq!(faults(&[], &["n1"]), [], "it is not known where gateways run");
}

#[test]
fn a_gateway_that_comes_or_goes_makes_a_difference_to_local_services() {
    let local = web("externalTrafficPolicy: Local", &status(&["203.0.113.0"]));
    let mut objects = three_nodes();
    add(&mut objects, &[POOL, &local, &WEB_SLICE.replace("n1", "gw-2")]);
    add(&mut objects, &[&gateways(&[("gw-1", true), ("gw-2", true)])]);
    let mut projector = managed();
    all(&mut projector, &objects);
    let key = ServiceKey::new("shop", "web");
    assert_eq!(projector.faults(&key), []);
    add(&mut objects, &[&gateways(&[("gw-1", true), ("gw-2", false)])]);
    let dirty = Dirty::Services([ServiceKey::new("sheave-system", "sheave-gateways")].into());
    assert!(projector.project(&objects, &dirty).touched.contains(&key));
    assert_eq!(projector.faults(&key).len(), 1);
}
