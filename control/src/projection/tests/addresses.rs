//! Sources of a Service's addresses: status, pools, the node.

use super::super::{Options, Projector};
use super::pools::managed;
use super::support::{NODE, WEB_SLICE, add, ips, objects, options, problems, project, service, web};
use crate::api::store::{Dirty, ServiceKey};

fn pool(name: &str, spec: &str) -> String {
    format!("kind: AddressPool\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n")
}

fn status(ips: &str) -> String {
    let ingress: Vec<String> = ips.split(' ').map(|ip| format!("{{ip: '{ip}', ipMode: Proxy}}")).collect();
    format!("status: {{loadBalancer: {{ingress: [{}, {{ip: ''}}]}}}}", ingress.join(", "))
}

const POOL: &str = "\
kind: AddressPool
metadata: {name: main}
spec: {addresses: [203.0.113.0/30, 'fd00::/64']}
";

#[test]
fn addresses_come_from_status_then_pools_then_the_node() {
    let published = web("", &status("198.51.100.7 198.51.100.9"));
    assert_eq!(ips(&project(&[&published, POOL]), "shop/web"), ["198.51.100.7", "198.51.100.9"]);
    assert_eq!(ips(&project(&[&web("", ""), POOL]), "shop/web"), ["203.0.113.0"]);
    assert_eq!(ips(&project(&[&web("", "")]), "shop/web"), ["192.0.2.1"]);
}

#[test]
fn the_nodes_external_address_is_preferred_per_family() {
    let node = NODE.replace("[{type: Hostname, address: gw-1}", "[{type: ExternalIP, address: 198.51.100.1}");
    let dual = web("ipFamilies: [IPv6, IPv4]", "");
    let projection = Projector::new(options()).project(&objects(&[&node, &dual]), &Dirty::Everything);
    assert_eq!(ips(&projection, "shop/web"), ["198.51.100.1", "2001:db8::1"]);
}

#[test]
fn without_any_address_the_problem_says_what_to_add() {
    let options = Options { node: "gw-2".to_owned(), ..Options::default() };
    let projection = Projector::new(options).project(&objects(&[NODE, &web("", "")]), &Dirty::Everything);
    assert!(projection.table.frontends().is_empty());
    assert_eq!(problems(&projection), ["Service shop/web NoAddress "]);
    let message = &projection.problems[0].message;
    assert!(
        message.contains("gw-2") && message.contains("AddressPool") && message.contains("IPv4"),
        "{message}"
    );
}

#[test]
fn published_addresses_are_limited_to_the_families_of_the_service() {
    let both = status("198.51.100.7 2001:db8::7");
    assert_eq!(ips(&project(&[&web("", &both)]), "shop/web"), ["198.51.100.7", "2001:db8::7"]);
    let projection = project(&[&web("ipFamilies: [IPv4]", &both)]);
    assert_eq!(ips(&projection, "shop/web"), ["198.51.100.7"]);
    assert_eq!(problems(&projection), ["Service shop/web InvalidValue status.loadBalancer.ingress[1].ip"]);
    let odd = project(&[&web("", &status("198.51.100.7 x 0.0.0.0 198.51.100.7"))]);
    assert_eq!(ips(&odd, "shop/web"), ["198.51.100.7"]);
    assert_eq!(problems(&odd).len(), 2);
}

#[test]
fn families_follow_the_policy_or_the_slices() {
    let six = WEB_SLICE.replace("IPv4", "IPv6").replace("10.1.0.7", "'fd01::7'");
    for (spec, slice, expected) in [
        ("", "", vec!["203.0.113.0"]),
        ("", &*six, vec!["fd00::"]),
        ("ipFamilies: [IPv6]", "", vec!["fd00::"]),
        ("ipFamilies: [IPv6, IPv4]", "", vec!["203.0.113.0", "fd00::"]),
        ("ipFamilyPolicy: RequireDualStack", "", vec!["203.0.113.0", "fd00::"]),
        ("ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6]", "", vec!["203.0.113.0", "fd00::"]),
        ("ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]", &six, vec!["203.0.113.0"]),
    ] {
        let service = web(spec, "");
        let manifests: Vec<&str> =
            [POOL, &service, slice].into_iter().filter(|text| !text.is_empty()).collect();
        let projection = project(&manifests);
        assert_eq!(ips(&projection, "shop/web"), expected, "{spec}");
        assert!(projection.problems.is_empty(), "{spec}");
    }
}

#[test]
fn a_service_that_prefers_two_families_gets_those_that_its_cluster_has() {
    let both = "203.0.113.0 fd00::";
    for (allocated, expected) in [
        ("ipFamilies: [IPv4], clusterIPs: [10.96.0.7]", "203.0.113.0"),
        ("ipFamilies: [IPv6], clusterIPs: ['fd96::7']", "fd00::"),
        ("clusterIP: 10.96.0.7", "203.0.113.0"),
        ("ipFamilies: [IPv4, IPv6], clusterIPs: [10.96.0.7, 'fd96::7']", both),
        ("ipFamilies: [IPv4]", both),
    ] {
        for kept in ["", both] {
            let kept = if kept.is_empty() { String::new() } else { status(kept) };
            let service = web(&format!("ipFamilyPolicy: PreferDualStack, {allocated}"), &kept);
            let projection = managed().project(&objects(&[NODE, POOL, &service]), &Dirty::Everything);
            assert_eq!(ips(&projection, "shop/web").join(" "), expected, "{allocated}, {kept}");
        }
    }
}

#[test]
fn a_required_family_without_an_address_is_a_problem_and_the_other_is_served() {
    let node =
        "kind: Node\nmetadata: {name: gw-1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n";
    for (policy, count) in [("RequireDualStack", 1), ("PreferDualStack", 0)] {
        let service = web(&format!("ipFamilyPolicy: {policy}"), "");
        let projection = Projector::new(options()).project(&objects(&[node, &service]), &Dirty::Everything);
        assert_eq!(ips(&projection, "shop/web"), ["192.0.2.1"]);
        assert_eq!(projection.problems.len(), count, "{policy}");
    }
}

#[test]
fn a_service_may_choose_pool_and_addresses() {
    let other = pool("other", "autoAssign: false, addresses: [198.51.100.0-198.51.100.9]");
    let with = |spec: &str, annotations: &str| {
        let projection =
            project(&[POOL, &other, &web(spec, &format!("metadata: annotations: {{{annotations}}}"))]);
        (ips(&projection, "shop/web"), problems(&projection))
    };
    let served = |ip: &str| (vec![ip.to_owned()], vec![]);
    assert_eq!(with("", "sheave.dev/address-pool: other"), served("198.51.100.0"));
    assert_eq!(with("", "sheave.dev/addresses: 198.51.100.3"), served("198.51.100.3"));
    assert_eq!(with("loadBalancerIP: 203.0.113.2", ""), served("203.0.113.2"));
    assert_eq!(with("", "").0, ["203.0.113.0"]);
    let problem = |field: &str| vec![format!("Service shop/web {field}")];
    assert_eq!(
        with("", "sheave.dev/address-pool: none"),
        (vec![], problem("NoAddress metadata.annotations[sheave.dev/address-pool]"))
    );
    assert_eq!(
        with("", "sheave.dev/addresses: 192.0.2.77"),
        (vec![], problem("NoAddress metadata.annotations[sheave.dev/addresses]"))
    );
    assert_eq!(with("loadBalancerIP: 192.0.2.77", ""), (vec![], problem("NoAddress spec.loadBalancerIP")));
    assert_eq!(
        with("loadBalancerIP: web.example", ""),
        (vec!["203.0.113.0".into()], problem("InvalidValue spec.loadBalancerIP"))
    );
    assert_eq!(
        with("loadBalancerIP: 203.0.113.2", "sheave.dev/addresses: 203.0.113.1"),
        (vec!["203.0.113.1".into()], problem("InvalidValue spec.loadBalancerIP"))
    );
}

#[test]
fn an_exhausted_pool_is_named_and_the_service_waits_for_a_free_address() {
    let (first, second) =
        (service("shop", "a", "ports: [{port: 80}]", ""), service("shop", "b", "ports: [{port: 81}]", ""));
    let mut objects = objects(&[NODE, &pool("one", "addresses: [203.0.113.5]"), &first, &second]);
    let mut projector = Projector::new(options());
    let projection = projector.project(&objects, &Dirty::Everything);
    assert_eq!(ips(&projection, "shop/a"), ["203.0.113.5"]);
    assert!(ips(&projection, "shop/b").is_empty());
    assert_eq!(problems(&projection), ["Service shop/b NoAddress "]);
    assert!(projection.problems[0].message.contains("one"));

    let gone = ServiceKey::new("shop", "a");
    objects.services.remove(&gone);
    let projection = projector.project(&objects, &Dirty::Services([gone].into()));
    assert_eq!(ips(&projection, "shop/b"), ["203.0.113.5"]);
    assert!(projection.problems.is_empty());
}

#[test]
fn no_service_is_moved_by_another_one() {
    let mut objects = objects(&[NODE, POOL, &service("shop", "m", "ports: [{port: 80}]", "")]);
    let mut projector = Projector::new(options());
    assert_eq!(ips(&projector.project(&objects, &Dirty::Everything), "shop/m"), ["203.0.113.0"]);
    add(
        &mut objects,
        &[&service("shop", "a", "ports: [{port: 80}]", "metadata: creationTimestamp: 2020-01-01T00:00:00Z")],
    );
    let projection = projector.project(&objects, &Dirty::Everything);
    assert_eq!(
        (ips(&projection, "shop/m"), ips(&projection, "shop/a")),
        (vec!["203.0.113.0".into()], vec!["203.0.113.1".into()])
    );
}

#[test]
fn published_addresses_are_not_given_to_others() {
    let published = service("shop", "z", "ports: [{port: 80}]", &status("203.0.113.0"));
    let projection = project(&[POOL, &service("shop", "a", "ports: [{port: 80}]", ""), &published]);
    assert_eq!(
        (ips(&projection, "shop/a"), ips(&projection, "shop/z")),
        (vec!["203.0.113.1".into()], vec!["203.0.113.0".into()])
    );
}

#[test]
fn an_address_asked_for_by_value_is_not_given_to_an_older_service_that_takes_any() {
    let any =
        service("shop", "a", "ports: [{port: 80}]", "metadata: creationTimestamp: 2020-01-01T00:00:00Z");
    let asks = service("shop", "b", "ports: [{port: 80}], loadBalancerIP: 203.0.113.0", "");
    let projection = project(&[POOL, &any, &asks]);
    assert_eq!(
        (ips(&projection, "shop/a"), ips(&projection, "shop/b")),
        (vec!["203.0.113.1".into()], vec!["203.0.113.0".into()])
    );
}

#[test]
fn pool_entries_that_cannot_be_read_are_problems_of_the_pool() {
    let odd = pool(
        "odd",
        "addresses: [x, 10.0.0.2-10.0.0.1, 203.0.113.9], serviceSelector: {matchExpressions: [{key: a, operator: Is}]}",
    );
    let projection = project(&[&odd, &web("", "")]);
    assert_eq!(
        problems(&projection),
        [
            "AddressPool odd InvalidValue spec.addresses[0]",
            "AddressPool odd InvalidValue spec.addresses[1]",
            "AddressPool odd InvalidValue spec.serviceSelector.matchExpressions[0]",
        ]
    );
    assert_eq!(ips(&projection, "shop/web"), ["192.0.2.1"]);
}

#[test]
fn beside_a_published_address_the_other_family_comes_from_a_pool_and_stays() {
    let dual = "ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack";
    let published = web(dual, &status("198.51.100.7"));
    let mut objects = objects(&[NODE, POOL, &published]);
    let mut projector = Projector::new(options());
    let first = projector.project(&objects, &Dirty::Everything);
    assert_eq!(ips(&first, "shop/web"), ["198.51.100.7", "fd00::"]);
    assert_eq!(problems(&first), [""; 0]);
    add(&mut objects, &[&service("shop", "a", "ports: [{port: 1}], ipFamilies: [IPv6]", "")]);
    let again = projector.project(&objects, &Dirty::Everything);
    assert_eq!(ips(&again, "shop/web"), ["198.51.100.7", "fd00::"]);
    // Without a pool there is a Problem, and the node's own address is no substitute, because it was never published.
    let alone = project(&[&published]);
    assert_eq!(ips(&alone, "shop/web"), ["198.51.100.7"]);
    assert_eq!(problems(&alone), ["Service shop/web NoAddress "]);
}

#[test]
fn clients_that_a_header_names_are_judged_by_the_ranges_of_their_own_family() {
    let ranges = "loadBalancerSourceRanges: [0.0.0.0/0, '2001:db8::/32'], ipFamilies: [IPv4]";
    let projection = project(&[&web(ranges, &status("198.51.100.7"))]);
    let allowed = projection.table.frontends()[0].source_ranges.allowed().clone();
    for (client, admitted) in [("192.0.2.1", true), ("2001:db8::1", true), ("2001:db9::1", false)] {
        assert_eq!(allowed.contains(client.parse().unwrap()), admitted, "{client}");
    }
}

/// The largest number that fits into an object: 17,000 addresses of a /16, and as many invalid values.
#[test]
fn thousands_of_addresses_end_in_a_few_short_problems() {
    let wide = pool("wide", "addresses: [10.0.0.0/16]");
    let all: Vec<String> = (0..17_000).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
    let outside: Vec<String> = (0..17_000).map(|n| format!("10.1.{}.{}", n / 256, n % 256)).collect();
    for (values, served, told) in [
        (all.join(","), 8, "10.0.0.8, 10.0.0.9, 10.0.0.10 and 16989 more are beyond the 8"),
        (outside.join(","), 0, "10.1.0.0, 10.1.0.1, 10.1.0.2 and 16997 more are in no AddressPool"),
        ("x,".repeat(17_000), 1, "16992 more values cannot be used"),
    ] {
        let asks = web("", &format!("metadata: annotations: {{sheave.dev/addresses: '{values}'}}"));
        let projection = project(&[&wide, &asks]);
        assert_eq!(ips(&projection, "shop/web").len(), served);
        let text: Vec<String> = projection.problems.iter().map(ToString::to_string).collect();
        assert!(text.len() <= 2 && text.concat().len() < 1024, "{text:?}");
        assert!(text.concat().contains(told), "{text:?}");
    }
}

#[test]
fn what_is_given_beside_a_published_address_goes_with_its_pool() {
    let pool = "kind: AddressPool\nmetadata: {name: p}\nspec: {addresses: ['2001:db8:f::7']}\n";
    let both = web("ipFamilies: [IPv4, IPv6]", "status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}");
    let mut objects = objects(&[NODE, pool, &both]);
    let mut projector = Projector::new(options());
    let given = projector.project(&objects, &Dirty::Everything);
    assert_eq!(ips(&given, "shop/web"), ["203.0.113.1", "2001:db8:f::7"]);
    objects.pools.clear();
    let left = projector.project(&objects, &Dirty::Everything);
    assert_eq!(ips(&left, "shop/web"), ["203.0.113.1"]);
}
