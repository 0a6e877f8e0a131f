//! Cases of kube-proxy (pkg/proxy/topology_test.go) in its order. An endpoint is written as `last octet, R ready | T serving and
//! terminating | U unready, L local, z: zone hints, n: node hints`. Nil sets, which Services without a load balancer have, are
//! `None`.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::Protocol;

use super::super::endpoints::interner::NameInterner;
use super::super::endpoints::{self, PortEndpoints};
use super::super::nodes::ClusterContext;
use super::super::plan::ClusterMember;
use super::super::ports::PlannedPort;
use super::*;
use crate::net::Family;

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    node: &'static str,
    zone: &'static str,
    endpoints: &'static [&'static str],
    cluster: Option<&'static [u8]>,
    local: Option<&'static [u8]>,
    any: bool,
}

/// A case on node-0 in zone a.
const fn case(
    name: &'static str,
    endpoints: &'static [&'static str],
    cluster: Option<&'static [u8]>,
    local: Option<&'static [u8]>,
    any: bool,
) -> Case {
    Case { name, node: "node-0", zone: "a", endpoints, cluster, local, any }
}

const fn on(node: &'static str, zone: &'static str, case: Case) -> Case {
    Case { node, zone, ..case }
}

const ZONES: &[&str] = &["3 R z:a", "4 R z:b", "5 R z:c", "6 R z:a"];
const ZONES_TWO_LOCAL: &[&str] = &["3 R L z:a", "4 R L z:b", "5 R z:c", "6 R z:a"];
const NODES: &[&str] = &["3 R z:a n:node-1", "4 R z:b n:node-2", "5 R z:c n:node-3", "6 R z:a n:node-4"];
const ONE_LOCAL: &[&str] = &["0 R L", "1 R"];
const REMOTE: &[&str] = &["0 R", "1 R"];

const CASES: &[Case] = &[
    case("zone hints are used", ZONES, Some(&[3, 6]), None, true),
    case("eTP Local: topology ignored for local", ZONES_TWO_LOCAL, Some(&[3, 6]), Some(&[3, 4]), true),
    case("iTP Local: topology ignored for local", ZONES_TWO_LOCAL, Some(&[3, 6]), Some(&[3, 4]), true),
    on("node-0", "", case("node without labels", &["3 R z:a"], Some(&[3]), None, true)),
    on("node-0", "", case("empty zone label", &["3 R z:a"], Some(&[3]), None, true)),
    on("node-0", "b", case("node in another zone", &["3 R z:a"], Some(&[3]), None, true)),
    case("unready endpoint", &["3 R z:a", "4 R z:b", "5 R z:c", "6 U z:a"], Some(&[3]), None, true),
    case(
        "only unready in the zone",
        &["3 U z:a", "4 R z:b", "5 R z:c", "6 U z:a"],
        Some(&[4, 5]),
        None,
        true,
    ),
    case("missing hint", &["3 R z:a", "4 R z:b", "5 R", "6 R z:a"], Some(&[3, 4, 5, 6]), None, true),
    on(
        "node-0",
        "c",
        case(
            "several zones per endpoint",
            &["3 R z:a,b,c", "4 R z:b,c", "5 R z:b,d", "6 R z:c"],
            Some(&[3, 4, 6]),
            None,
            true,
        ),
    ),
    // Upstream's 11th case disables node hints with a feature gate; here they are always used.
    on("node-1", "a", case("node hints without the gate", NODES, Some(&[3]), None, true)),
    on("node-1", "a", case("node hints are used", NODES, Some(&[3]), None, true)),
    on(
        "node-1",
        "a",
        case(
            "node hint missing",
            &["3 R z:a n:node-1", "4 R", "5 R z:c n:node-3", "6 R z:a n:node-4"],
            Some(&[3, 4, 5, 6]),
            None,
            true,
        ),
    ),
    case("no endpoint for the node: zone hints", NODES, Some(&[3, 6]), None, true),
    case(
        "topology and localness differ",
        &["0 R L z:a", "1 R L z:b", "2 R z:a", "3 R z:b"],
        Some(&[0, 2]),
        Some(&[0, 1]),
        true,
    ),
    case("iTP Local: nothing", &[], None, Some(&[]), false),
    case("iTP Local: all remote", REMOTE, None, Some(&[]), true),
    case("iTP Local: all local", &["0 R L", "1 R L"], None, Some(&[0, 1]), true),
    case("iTP Local: some local", ONE_LOCAL, None, Some(&[0]), true),
    case("not ready", &["0 U", "1 U"], Some(&[]), None, false),
    case("some ready", &["0 U", "1 R"], Some(&[1]), None, true),
    case("all terminating", &["0 T L", "1 T"], Some(&[0, 1]), None, true),
    case("iTP Local, eTP Cluster", ONE_LOCAL, Some(&[0, 1]), Some(&[0]), true),
    case("iTP Cluster, eTP Local", ONE_LOCAL, Some(&[0, 1]), Some(&[0]), true),
    case("both Local", ONE_LOCAL, Some(&[0, 1]), Some(&[0]), true),
    case("both Local: all remote", REMOTE, Some(&[0, 1]), Some(&[]), true),
    case("both Local: all remote and terminating", &["0 T", "1 T"], Some(&[0, 1]), Some(&[]), true),
    case("eTP Local: terminating", &["0 R", "1 U L", "2 T L", "3 T"], Some(&[0]), Some(&[2]), true),
    case("eTP without external access", &["0 R", "1 R L"], Some(&[0, 1]), None, true),
    case("iTP Local, internal only", &["0 R", "1 R L"], None, Some(&[1]), true),
    // Cases beyond upstream's thirty: load balancer ports without endpoints, and special cases of hints.
    case("eTP Local: nothing", &[], Some(&[]), Some(&[]), false),
    case("eTP Local: all local", &["0 R L", "1 R L"], Some(&[0, 1]), Some(&[0, 1]), true),
    case(
        "a terminating endpoint without hints does not matter",
        &["0 R z:a", "1 R z:b", "2 T"],
        Some(&[0]),
        None,
        true,
    ),
    case(
        "topology does not apply to terminating endpoints",
        &["0 T z:a", "1 T z:b"],
        Some(&[0, 1]),
        None,
        true,
    ),
    on(
        "",
        "",
        case(
            "hints of nobody's node and zone",
            &["0 R z: n:", "1 R z:b n:x"],
            Some(&[0, 1]),
            Some(&[]),
            true,
        ),
    ),
];

fn slice(case: &Case) -> Arc<EndpointSlice> {
    let mut yaml = "{addressType: IPv4, ports: [{port: 80}], endpoints: [".to_owned();
    for endpoint in case.endpoints {
        let mut words = endpoint.split(' ');
        let octet = words.next().unwrap();
        let conditions = match words.next().unwrap() {
            "R" => "ready: true",
            "T" => "ready: false, serving: true, terminating: true",
            _ => "ready: false, serving: false",
        };
        let (mut hints, mut node) = (String::new(), "elsewhere");
        for word in words {
            let (kind, names) = word.split_once(':').unwrap_or((word, ""));
            let names: Vec<String> = names.split(',').map(|name| format!("{{name: '{name}'}}")).collect();
            match kind {
                "z" => hints += &format!("forZones: [{}], ", names.join(",")),
                "n" => hints += &format!("forNodes: [{}], ", names.join(",")),
                _ => node = case.node,
            }
        }
        yaml += &format!(
            "{{addresses: [10.0.0.{octet}], nodeName: {node}, conditions: {{{conditions}}}, hints: {{{hints}}}}}, "
        );
    }
    Arc::new(serde_saphyr::from_str(&(yaml + "]}")).unwrap())
}

fn octets(set: &[u32], serving: &PortEndpoints) -> Vec<u8> {
    let ips = set.iter().map(|&index| serving.endpoints[index as usize].addr.ip);
    ips.map(|ip| if let std::net::IpAddr::V4(ip) = ip { ip.octets()[3] } else { 255 }).collect()
}

#[test]
fn endpoint_sets_are_those_of_kube_proxy() {
    let port = PlannedPort {
        name: "".into(),
        port: 80,
        protocol: Protocol::Tcp,
        node_port: None,
        app_protocol: None,
        index: 0,
    };
    for case in CASES {
        let context =
            ClusterContext { node: case.node.into(), zone: case.zone.into(), ..ClusterContext::default() };
        let slices = [slice(case)];
        let (mut names, mut problems) = (NameInterner::default(), Vec::new());
        let member = ClusterMember::alone(&"local".into(), slices.iter());
        let serving =
            endpoints::collect(&member, Family::V4, &port, &context, |_| None, &mut names, &mut problems);
        let sets = categorize(&serving.traits);
        if let Some(cluster) = case.cluster {
            assert_eq!(octets(&sets.cluster, &serving), cluster, "{}: cluster", case.name);
        }
        if let Some(local) = case.local {
            assert_eq!(octets(&sets.local, &serving), local, "{}: local", case.name);
        }
        assert_eq!(!serving.endpoints.is_empty(), case.any, "{}: any", case.name);
        assert!(problems.is_empty(), "{}", case.name);
    }
}
