//! BGP sessions as lines of FRR's configuration. FRR announces the addresses that Sheave adds to its interface.

use std::net::IpAddr;

use serde_json::Value;

use super::Findings;
use super::draft::left;
use crate::sources::manifests::RawObject;

/// Advice about attributes of routes.
pub(super) const ATTRIBUTES: &str = "FRR announces host routes and sets their attributes; write aggregate-address, set community or set \
                                     local-preference to frr.conf, as deploy/examples/bgp-frr/frr.conf shows";

/// A text or number as text; other values as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The peer group of deploy/examples/bgp-frr/frr.conf that gives a neighbor its route-maps and activates it.
fn peer_group(name: &str) -> &'static str {
    match name.parse() {
        Ok(IpAddr::V4(_)) => "ROUTERS4",
        Ok(IpAddr::V6(_)) => "ROUTERS6",
        Err(_) => "ROUTERS4    (ROUTERS6 for an IPv6 address)",
    }
}

/// A session by interface carries routes of both families, but a neighbor can be in only one group.
fn on_interface(name: &str) -> Vec<String> {
    let neighbor = |what: &str| format!("  neighbor {name} {what}");
    vec![
        format!(" neighbor {name} peer-group ROUTERS4"),
        " address-family ipv6 unicast".to_owned(),
        neighbor("activate"),
        neighbor("route-map TO-ROUTERS out"),
        neighbor("route-map FROM-ROUTERS in"),
        " exit-address-family".to_owned(),
    ]
}

/// Lines of FRR for a session. The group comes right after the AS, because it does not override what is set later.
fn neighbor(name: &str, spec: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let remote = spec("peerASN").filter(|asn| asn != "0").or_else(|| spec("dynamicASN"));
    let remote = remote.unwrap_or_else(|| "AS".to_owned());
    let mut lines = Vec::new();
    if spec("interface").is_some() {
        lines.push(format!(" neighbor {name} interface remote-as {remote}"));
        lines.extend(on_interface(name));
    } else {
        lines.push(format!(" neighbor {name} remote-as {remote}"));
        lines.push(format!(" neighbor {name} peer-group {}", peer_group(name)));
    }
    let mut add = |line: String| lines.push(format!(" neighbor {name} {line}"));
    if let Some(port) = spec("peerPort").filter(|port| port != "179" && port != "0") {
        add(format!("port {port}"));
    }
    if spec("ebgpMultiHop").as_deref() == Some("true") {
        add("ebgp-multihop".to_owned());
    }
    if let Some(profile) = spec("bfdProfile").filter(|profile| !profile.is_empty()) {
        add(format!("bfd profile {profile}"));
    }
    if let Some(source) = spec("sourceAddress") {
        add(format!("update-source {source}"));
    }
    if let (Some(keepalive), Some(hold)) = (spec("keepaliveTime"), spec("holdTime")) {
        add(format!("timers KEEPALIVE HOLD    ({keepalive} and {hold}, in seconds)"));
    }
    if spec("password").or_else(|| spec("passwordSecret")).is_some() {
        // Never the password itself: what is printed ends up in files and tickets.
        add(
            "password $(KEY)    (a key of the Secret sheave-frr-passwords, with the password of the BGPPeer)"
                .to_owned(),
        );
    }
    lines
}

/// Translates a BGPPeer of MetalLB.
pub(super) fn metallb_peer(object: &RawObject, findings: &mut Findings<'_>) {
    let spec = |field: &str| object.at(&["spec", field]).map(plain).filter(|value| value != "false");
    let name = spec("peerAddress").or_else(|| spec("interface")).unwrap_or_else(|| "ADDRESS".to_owned());
    findings.frr.push(format!("router bgp {}", spec("myASN").unwrap_or_else(|| "AS".to_owned())));
    findings.frr.extend(neighbor(&name, &spec));
    let rest = [
        (
            "nodeSelectors",
            "frr.conf is the same on all gateways; give Nodes of another router another frr.conf, or write frr.peers of the chart with racks",
        ),
        ("vrf", "gateways announce from the default VRF"),
        (
            "routerID",
            "the router ID is the Node's IPv4 address, or made of its name; change bgp router-id in frr.conf",
        ),
        ("enableGracefulRestart", "write bgp graceful-restart to frr.conf"),
        ("connectTime", "write timers connect to frr.conf"),
        ("holdTime", "write timers with a keep-alive as well to frr.conf"),
    ];
    for (field, instead) in rest {
        let said = field == "holdTime" && spec("keepaliveTime").is_some();
        if let Some(value) = spec(field).filter(|value| !said && !value.is_empty() && value != "[]") {
            findings.left.push(left(object, &format!("spec.{field}"), format!("{value}: {instead}")));
        }
    }
}

/// Translates a BFDProfile of MetalLB.
pub(super) fn bfd_profile(object: &RawObject, findings: &mut Findings<'_>) {
    findings.frr.extend(["bfd".to_owned(), format!(" profile {}", object.name())]);
    let fields = [
        ("detectMultiplier", "detect-multiplier"),
        ("receiveInterval", "receive-interval"),
        ("transmitInterval", "transmit-interval"),
        ("minimumTtl", "minimum-ttl"),
        ("echoInterval", "echo transmit-interval"),
    ];
    for (field, word) in fields {
        if let Some(value) = object.at(&["spec", field]) {
            findings.frr.push(format!("  {word} {}", plain(value)));
        }
    }
    for (field, word) in [("echoMode", "echo-mode"), ("passiveMode", "passive-mode")] {
        if object.at(&["spec", field]) == Some(&true.into()) {
            findings.frr.push(format!("  {word}"));
        }
    }
}

/// Reports what a session of Cilium has beyond its lines, except defaults from the API server.
fn report_peer(object: &RawObject, place: &str, peer: &Value, findings: &mut Findings<'_>) {
    let timers = "write timers, keep-alive and hold time, of the neighbor to frr.conf";
    let rest = [
        ("eBGPMultihopTTL", Some(1), "write ebgp-multihop of the neighbor to frr.conf"),
        ("authSecretRef", None, "write the password of this Secret for the neighbor to frr.conf"),
        ("connectRetryTimeSeconds", Some(120), "write timers connect of the neighbor to frr.conf"),
        ("holdTimeSeconds", Some(90), timers),
        ("keepAliveTimeSeconds", Some(30), timers),
        ("gracefulRestart", None, "write bgp graceful-restart to frr.conf"),
        ("advertisedPathAttributes", None, ATTRIBUTES),
        ("autoDiscovery", None, "write the router's address to frr.conf"),
    ];
    for (field, default, instead) in rest {
        let value = peer.get(field).filter(|value| !value.is_null());
        if let Some(value) = value.filter(|value| default.is_none() || value.as_u64() != default) {
            let message = format!("{}: {instead}", plain(value));
            findings.left.push(left(object, &format!("{place}.{field}"), message));
        }
    }
}

/// Translates a CiliumBGPClusterConfig, or a CiliumBGPPeeringPolicy of older versions.
pub(super) fn cilium_cluster(object: &RawObject, findings: &mut Findings<'_>) {
    let list =
        |field: &str| object.at(&["spec", field]).and_then(Value::as_array).cloned().unwrap_or_default();
    let instances = |field: &'static str| list(field).into_iter().enumerate().map(move |it| (field, it));
    for (of, (number, instance)) in instances("bgpInstances").chain(instances("virtualRouters")) {
        let asn = instance.get("localASN").map_or_else(|| "AS".to_owned(), plain);
        findings.frr.push(format!("router bgp {asn}"));
        let peers = if of == "virtualRouters" { "neighbors" } else { "peers" };
        let listed = instance.get(peers).and_then(Value::as_array);
        for (index, peer) in listed.into_iter().flatten().enumerate() {
            report_peer(object, &format!("spec.{of}[{number}].{peers}[{index}]"), peer, findings);
            let spec = |field: &str| peer.get(field).map(plain);
            let address = spec("peerAddress").unwrap_or_else(|| "ADDRESS".to_owned());
            // Older versions store a prefix.
            let address = address.split('/').next().unwrap_or_default();
            findings.frr.extend(neighbor(address, &spec));
        }
    }
    if object.at(&["spec", "nodeSelector"]).is_some() {
        let message = "gateways are the Nodes with the label node-role.kubernetes.io/gateway; label those that had a session, or \
                       restrict AddressPools by announce.nodeSelector";
        findings.left.push(left(object, "spec.nodeSelector", message));
    }
}
