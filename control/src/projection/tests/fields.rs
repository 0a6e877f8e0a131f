//! Each field of a Service: allowed values, and the handling of others.

use std::time::Duration;

use sheave_model::{Affinity, AffinityScope, Algorithm, FrontendKind};

use super::super::{Options, Projection, Projector, Role};
use super::support::{NODE, WEB_SLICE, ips, lines, objects, options, problems, project, service, web};
use crate::api::store::Dirty;

#[test]
fn only_services_of_our_class_are_served() {
    let foreign = web("", "").replace("sheave.dev/l4", "example.com/other");
    let unclassified = web("", "").replace("loadBalancerClass: sheave.dev/l4, ", "");
    let cluster_ip = unclassified.replace("type: LoadBalancer, ", "");
    for manifest in [&foreign, &unclassified, &cluster_ip] {
        let projection = project(&[manifest, WEB_SLICE]);
        assert!(lines(&projection).is_empty() && projection.problems.is_empty(), "{manifest}");
    }
    let with = |manifest: &str| {
        let options = Options { handle_unclassified: true, ..options() };
        let projection = Projector::new(options).project(&objects(&[NODE, manifest]), &Dirty::Everything);
        lines(&projection).len()
    };
    assert_eq!((with(&foreign), with(&unclassified), with(&cluster_ip)), (0, 1, 0));
}

#[test]
fn services_are_not_served_on_load_balancer_addresses_where_only_other_frontends_are_wanted() {
    let with = |frontends: &[FrontendKind]| {
        let options = Options { frontends: frontends.iter().copied().collect(), ..options() };
        let headless = web("clusterIP: None", "").replace("name: web", "name: headless");
        let objects = objects(&[NODE, &web("", ""), &headless]);
        let projection = Projector::new(options).project(&objects, &Dirty::Everything);
        (lines(&projection).len(), projection.problems.len())
    };
    assert_eq!(with(&[FrontendKind::NodePort]), (0, 0));
    assert_eq!(with(&[FrontendKind::NodePort, FrontendKind::LoadBalancer]), (1, 1));
}

#[test]
fn services_that_ask_for_us_but_cannot_be_served_are_problems() {
    for (manifest, field) in [
        (web("clusterIP: None", ""), "spec.clusterIP"),
        (web("clusterIPs: [None]", ""), "spec.clusterIP"),
        (web("", "").replace("type: LoadBalancer", "type: ExternalName, externalName: a.b"), "spec.type"),
        (web("", "").replace("type: LoadBalancer, ", ""), "spec.type"),
        (
            web("", "metadata: labels: {service.kubernetes.io/service-proxy-name: x}"),
            "metadata.labels[service.kubernetes.io/service-proxy-name]",
        ),
        (
            web("", "metadata: labels: {service.kubernetes.io/headless: ''}"),
            "metadata.labels[service.kubernetes.io/headless]",
        ),
        (service("shop", "web", "ports: []", ""), "spec.ports"),
    ] {
        let projection = project(&[&manifest, WEB_SLICE]);
        assert!(lines(&projection).is_empty(), "{manifest}");
        assert_eq!(problems(&projection), [format!("Service shop/web NotServed {field}")], "{manifest}");
    }
}

#[test]
fn ports_that_cannot_be_served_leave_the_others_alone() {
    let ports = "ports: [{name: a, port: 80}, {name: b, port: 0}, {name: c, port: 70000}, \
        {name: d, port: 132, protocol: SCTP}, {name: e, port: 90, protocol: udp}, {name: f, port: 80}, \
        {name: a, port: 81}, {name: a, port: 80, protocol: UDP}]";
    let projection = project(&[&service("shop", "web", ports, "")]);
    assert_eq!(
        lines(&projection),
        ["192.0.2.1:80/TCP shop/web Reject | Reject", "192.0.2.1:80/UDP shop/web Reject | Reject"]
    );
    assert_eq!(
        problems(&projection),
        [
            "Service shop/web InvalidValue spec.ports[1].port",
            "Service shop/web InvalidValue spec.ports[2].port",
            "Service shop/web InvalidValue spec.ports[4].protocol",
            "Service shop/web InvalidValue spec.ports[5].port",
            "Service shop/web InvalidValue spec.ports[6].name",
            "Service shop/web ProtocolNotSupported spec.ports[3].protocol",
        ]
    );
    let sctp = projection.problems.iter().find(|problem| problem.reason == "ProtocolNotSupported").unwrap();
    assert_eq!(sctp.port.map(|port| (port.port, port.protocol)), Some((132, "SCTP")));
}

/// Source ranges of the first frontend of each family.
fn ranges(projection: &Projection) -> Vec<Vec<String>> {
    let frontends = projection.table.frontends().iter();
    frontends
        .map(|frontend| frontend.source_ranges.cidrs().iter().map(ToString::to_string).collect())
        .collect()
}

#[test]
fn source_ranges_are_trimmed_and_split_by_family() {
    let dual = "ipFamilies: [IPv4, IPv6], loadBalancerSourceRanges:";
    for (listed, v4, v6) in [
        ("[' 10.0.0.0/8 ', 'fd00::/8']", vec!["10.0.0.0/8"], vec!["fd00::/8"]),
        ("[10.1.2.3/8]", vec!["10.0.0.0/8"], vec!["10.0.0.0/8"]),
        ("[10.0.0.0/8, 0.0.0.0/0, 'fd00::/8']", vec![], vec!["fd00::/8"]),
        ("[0.0.0.0/1, 128.0.0.0/1, '::/0', 'fd00::/8']", vec!["0.0.0.0/1", "128.0.0.0/1"], vec![]),
    ] {
        let projection = project(&[&web(&format!("{dual} {listed}"), "")]);
        let one_family = !v6.is_empty() && v4 == v6;
        assert_eq!(ranges(&projection), [v4, v6], "{listed}");
        assert_eq!(
            problems(&projection),
            one_family
                .then(|| "Service shop/web SourceRangesOneFamily spec.loadBalancerSourceRanges".to_owned())
                .into_iter()
                .collect::<Vec<_>>()
        );
    }
}

#[test]
fn the_source_range_annotation_counts_when_the_field_is_empty() {
    let annotation = "metadata: annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: '10.0.0.0/8, 192.0.2.0/24'}";
    assert_eq!(ranges(&project(&[&web("", annotation)])), [["10.0.0.0/8", "192.0.2.0/24"]]);
    let both = project(&[&web("loadBalancerSourceRanges: [172.16.0.0/12]", annotation)]);
    assert_eq!(ranges(&both), [["172.16.0.0/12"]]);
}

#[test]
fn unparsable_source_ranges_are_problems_and_the_others_count() {
    let projection = project(&[&web(
        "loadBalancerSourceRanges: [10.0.0.1, '', x/8, 10.0.0.0/8, '::ffff:10.0.0.0/104']",
        "",
    )]);
    assert_eq!(ranges(&projection), [["10.0.0.0/8"]]);
    let field =
        |index: usize| format!("Service shop/web InvalidValue spec.loadBalancerSourceRanges[{index}]");
    assert_eq!(problems(&projection), [0, 1, 2, 4].map(field));
}

#[test]
fn a_family_without_a_valid_range_is_closed_once_a_list_is_given() {
    let dual = "ipFamilies: [IPv4, IPv6], ";
    for (spec, [v4, v6]) in [
        (format!("{dual} loadBalancerSourceRanges: [10.0.0.0/8]"), [true, false]),
        (format!("{dual} loadBalancerSourceRanges: [10.0.0.0/8, 'fd00::/129']"), [true, false]),
        (format!("{dual} loadBalancerSourceRanges: [0.0.0.0/0]"), [true, false]),
        (format!("{dual} loadBalancerSourceRanges: ['::/0', 10.0.0.0/33]"), [false, true]),
        // A client of the other family can only come from a PROXY header.
        ("ipFamilies: [IPv4], loadBalancerSourceRanges: [10.0.0.0/8]".to_owned(), [true, false]),
        ("ipFamilies: [IPv4], loadBalancerSourceRanges: ['fd00::/8']".to_owned(), [false, true]),
        ("ipFamilies: [IPv4, IPv6]".to_owned(), [true, true]),
    ] {
        for frontend in project(&[&web(&spec, "")]).table.frontends() {
            let admits = |client: &str| frontend.source_ranges.allowed().contains(client.parse().unwrap());
            assert_eq!([admits("10.9.0.7"), admits("fd00::7")], [v4, v6], "{spec}: {}", frontend.addr);
            let shows_all = frontend.source_ranges.cidrs().is_empty();
            assert_eq!(
                shows_all,
                admits(if frontend.addr.ip.is_ipv4() { "1.2.3.4" } else { "1::2" }),
                "{spec}"
            );
        }
    }
}

#[test]
fn who_lets_the_node_in_lets_in_the_frontend_address_that_the_node_talks_from() {
    let vip = |listed: &str| {
        let spec = format!("loadBalancerSourceRanges: {listed}");
        let status = "status: {loadBalancer: {ingress: [{ip: 198.51.100.7}, {ip: '2001:db8:7::7'}]}}";
        let projection = project(&[&web(&spec, status)]);
        let frontends = projection.table.frontends().iter();
        frontends.map(|it| it.source_ranges.allowed().contains(it.addr.ip)).collect::<Vec<_>>()
    };
    // The node has 192.0.2.1 and 2001:db8::1.
    assert_eq!(vip("[192.0.2.0/24, '2001:db8:1::/48']"), [true, false]);
    assert_eq!(vip("[10.0.0.0/8, '2001:db8::/48']"), [false, true]);
    let projection = project(&[&web(
        "loadBalancerSourceRanges: [192.0.2.0/24]",
        "status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}",
    )]);
    assert_eq!(ranges(&projection), [["192.0.2.0/24"]]);
}

#[test]
fn affinity_has_the_timeout_of_the_service_or_three_hours() {
    let with = |spec: &str| {
        let projection = project(&[&web(spec, "")]);
        (projection.table.frontends()[0].affinity, problems(&projection))
    };
    let client_ip =
        |seconds| Affinity::ClientIp { timeout: Duration::from_secs(seconds), scope: AffinityScope::Port };
    let timeout = |seconds: &str| {
        format!(
            "sessionAffinity: ClientIP, sessionAffinityConfig: {{clientIP: {{timeoutSeconds: {seconds}}}}}"
        )
    };
    assert_eq!(with(""), (Affinity::None, vec![]));
    assert_eq!(with("sessionAffinity: ClientIP"), (client_ip(10_800), vec![]));
    for (seconds, expected) in [("1", 1), ("86400", 86_400)] {
        assert_eq!(with(&timeout(seconds)), (client_ip(expected), vec![]));
    }
    let field = "Service shop/web InvalidValue spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    for seconds in ["0", "-5", "86401"] {
        assert_eq!(with(&timeout(seconds)), (client_ip(10_800), vec![field.to_owned()]));
    }
}

#[test]
fn the_algorithm_is_the_protocols_default_unless_annotated() {
    let ports = "ports: [{name: a, port: 80}, {name: b, port: 81, protocol: UDP}]";
    let with = |value: &str| {
        let annotation = format!("metadata: annotations: {{sheave.dev/balance: {value}}}");
        let projection = project(&[&service("shop", "web", ports, &annotation)]);
        let algorithms: Vec<Algorithm> = projection.table.frontends().iter().map(|f| f.algorithm).collect();
        (algorithms, problems(&projection).len())
    };
    assert_eq!(with("random"), (vec![Algorithm::Random; 2], 0));
    assert_eq!(with("round-robin"), (vec![Algorithm::RoundRobin; 2], 0));
    assert_eq!(with("least-connections"), (vec![Algorithm::LeastConnections; 2], 0));
    assert_eq!(with("maglev"), (vec![Algorithm::Maglev; 2], 0));
    assert_eq!(with("Maglev"), (vec![Algorithm::LeastConnections, Algorithm::Maglev], 1));
}

#[test]
fn annotations_that_look_like_ours_but_are_none_are_problems() {
    let annotation = "metadata: annotations: {sheave.dev/balanse: random, example.com/balanse: x}";
    let projection = project(&[&web("", annotation)]);
    let field = "metadata.annotations[sheave.dev/balanse]";
    assert_eq!(problems(&projection), [format!("Service shop/web InvalidValue {field}")]);
    assert!(projection.problems[0].message.contains("did you mean sheave.dev/balance?"));
}

#[test]
fn unknown_words_are_problems_and_the_default_applies() {
    let spec = "externalTrafficPolicy: local, internalTrafficPolicy: Node, sessionAffinity: Cookie, \
        ipFamilyPolicy: Dual, ipFamilies: [IPv5, IPv4]";
    let projection = project(&[&web(spec, ""), WEB_SLICE]);
    assert_eq!(lines(&projection), ["192.0.2.1:80/TCP shop/web 10.1.0.7:8080 | 10.1.0.7:8080"]);
    let fields = [
        "externalTrafficPolicy",
        "internalTrafficPolicy",
        "ipFamilies[0]",
        "ipFamilyPolicy",
        "sessionAffinity",
    ];
    assert_eq!(
        problems(&projection),
        fields.map(|field| format!("Service shop/web InvalidValue spec.{field}"))
    );
}

/// With Calico, Cilium or the network of a cloud, Nodes need not say where Pods are.
#[test]
fn peers_that_could_claim_the_address_of_an_unknown_pod_are_a_problem() {
    let bare = |name: &str| {
        format!(
            "kind: Node\nmetadata: {{name: {name}}}\nstatus: {{addresses: [{{type: InternalIP, address: 192.0.2.9}}]}}\n"
        )
    };
    let cidrs = |text: &str| vec![text.parse().unwrap()];
    let trusting = Options { role: Role::Gateway, accept_proxy_allow: cidrs("10.0.0.0/8"), ..options() };
    let found = |options: &Options, nodes: &[&str]| {
        problems(&Projector::new(options.clone()).project(&objects(nodes), &Dirty::Everything))
    };
    let (n2, n3) = (bare("n2"), bare("n3"));
    let unknown = ["Node n2 PodNetworksUnknown spec.podCIDRs"];
    assert_eq!(found(&trusting, &[NODE, &n2, &n3]), unknown);
    assert_eq!(found(&trusting, &[NODE]), [""; 0]);
    let listed = Options { internal_cidrs: cidrs("10.244.0.0/16"), ..trusting.clone() };
    let trusts_nobody = Options { accept_proxy_allow: Vec::new(), ..trusting.clone() };
    let by_hand = Options { role: Role::Standalone, ..trusting.clone() };
    for options in [listed, trusts_nobody, by_hand] {
        assert_eq!(found(&options, &[NODE, &n2]), [""; 0]);
    }
    let projection = Projector::new(trusting).project(&objects(&[NODE, &n2, &n3]), &Dirty::Everything);
    let said = projection.problems[0].message.clone();
    assert!(said.contains("nor does another Node") && said.contains("internalCIDRs"), "{said}");
}

#[test]
fn problems_of_nodes_leave_the_rest_alone() {
    let odd = "\
kind: Node
metadata: {name: n2}
spec: {podCIDRs: [10.2.0.0/16, x]}
status: {addresses: [{type: InternalIP, address: y}, {type: ExternalIP, address: 198.51.100.2}]}
";
    let projection = project(&[odd, &web("", "")]);
    assert_eq!(ips(&projection, "shop/web"), ["192.0.2.1"]);
    assert_eq!(
        problems(&projection),
        ["Node n2 InvalidValue spec.podCIDRs[1]", "Node n2 InvalidValue status.addresses[0].address"]
    );
    let inside = projection.table.internal_clients();
    assert!(inside.contains("10.2.3.4".parse().unwrap()) && inside.contains("198.51.100.2".parse().unwrap()));
}
