//! Tests of FRR in the chart: when it is included, and when its Pods are replaced.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::{CHART, Objects, copy_with, helm, helm_of, objects, rendered, text};
use crate::files;

const WITH_FRR: [&str; 2] = ["announce=bgp", "frr.config=router bgp 64513"];

fn checksum(objects: &Objects) -> String {
    let template = &objects["DaemonSet sheave-frr"]["spec"]["template"];
    text(&template["metadata"]["annotations"]["checksum/config"]).to_owned()
}

#[test]
#[ignore = "needs helm"]
fn it_is_left_out_only_if_that_is_said() {
    let mut with = rendered("sheave-system", &WITH_FRR);
    let without = rendered("sheave-system", &["announce=bgp", "frr.enabled=false"]);
    with.retain(|name, _| !name.ends_with(" sheave-frr") && !name.ends_with(" sheave-frr-config"));
    assert_eq!(with, without);
    // An upgrade that reuses the values of a chart before `frr.enabled`.
    let reused = rendered("sheave-system", &[WITH_FRR[0], WITH_FRR[1], "frr.enabled=null"]);
    assert_eq!(reused, rendered("sheave-system", &WITH_FRR));
    // An upgrade without `--set-file`.
    let output = helm("sheave-system", &["announce=bgp"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("needs frr.peers, or frr.config"), "{said}");
}

#[test]
#[ignore = "needs helm"]
fn its_pods_are_replaced_when_either_of_its_files_changes() {
    let before = checksum(&rendered("sheave-system", &WITH_FRR));
    assert_ne!(before, checksum(&rendered("sheave-system", &[WITH_FRR[0], "frr.config=router bgp 64514"])));
    let chart = tempfile::tempdir().expect("a folder");
    copy_with(chart.path(), "files/frr/daemons", |text| text.replace("bfdd=yes", "bfdd=no"));
    let changed = objects(&helm_of(chart.path(), "sheave-system", &WITH_FRR), &WITH_FRR);
    assert!(text(&changed["ConfigMap sheave-frr-config"]["data"]["daemons"]).contains("bfdd=no"));
    assert_ne!(before, checksum(&changed));
}

/// An annotation that any reader of workloads sees must not let them try passwords.
#[test]
fn the_checksum_of_its_pods_has_no_data_of_secrets() {
    let text = files::text(format!("{CHART}/templates/_frr.tpl"));
    let read: Vec<&str> = text.lines().filter(|line| line.contains(r#"lookup "v1" "Secret""#)).collect();
    assert!(!read.is_empty() && read.iter().all(|line| !line.contains(".data")), "{read:?}");
}

/// Peers of two racks and of all nodes, with everything that values can say of them.
const PEERS: [&str; 22] = [
    "announce=bgp",
    "frr.myASN=4200000001",
    "frr.peers[0].peerAddress=192.0.2.1",
    "frr.peers[0].peerASN=4200000000",
    "frr.peers[0].rack=a",
    "frr.peers[0].passwordSecret.name=tor-a",
    "frr.peers[1].peerAddress=2001:db8::1",
    "frr.peers[1].dynamicASN=external",
    "frr.peers[1].rack=B_2",
    "frr.peers[1].peerPort=1179",
    "frr.peers[1].ebgpMultiHop=true",
    "frr.peers[1].sourceAddress=2001:db8::7",
    "frr.peers[1].holdTime=9s",
    "frr.peers[1].bfdProfile=",
    "frr.peers[2].interface=eth0",
    "frr.peers[2].dynamicASN=internal",
    "frr.advertisements[0].addresses={203.0.113.0/24,2001:db8:100::/112}",
    "frr.advertisements[0].communities={64513:100,no-export,large:64513:1:2}",
    "frr.advertisements[0].localPref=200",
    "frr.advertisements[1].addresses={198.51.100.0/24}",
    "frr.advertisements[1].aggregationLength=24",
    "frr.rackLabel=rack",
];

fn frr_conf(objects: &Objects, suffix: &str) -> String {
    text(&objects[&format!("ConfigMap sheave-frr-config{suffix}")]["data"]["frr.conf"]).to_owned()
}

#[test]
#[ignore = "needs helm"]
fn each_rack_has_its_own_peers_and_every_node_is_of_one() {
    let objects = rendered("sheave-system", &PEERS);
    let mut nodes = Vec::new();
    for (suffix, peers) in [("", [false, false]), ("-a", [true, false]), ("-b-2", [false, true])] {
        let config = frr_conf(&objects, suffix);
        assert_eq!(
            ["192.0.2.1", "2001:db8::1"].map(|peer| config.contains(&format!("neighbor {peer} "))),
            peers
        );
        assert!(config.contains("neighbor eth0 interface remote-as internal\n"), "{config}");
        let pod = &objects[&format!("DaemonSet sheave-frr{suffix}")]["spec"]["template"]["spec"];
        let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        nodes.push(terms["nodeSelectorTerms"][0]["matchExpressions"][1].clone());
        let volumes = pod["volumes"].as_array().expect("volumes");
        assert!(volumes.iter().any(|it| it["configMap"]["name"] == format!("sheave-frr-config{suffix}")));
        let secret = json!({"secret": {"name": "tor-a", "items": [{"key": "password", "path": "tor-a"}]}});
        assert!(volumes.iter().any(|it| it["projected"]["sources"][1] == secret), "{volumes:?}");
    }
    let of = |operator: &str, values: &[&str]| json!({"key": "rack", "operator": operator, "values": values});
    assert_eq!(nodes, [of("NotIn", &["B_2", "a"]), of("In", &["a"]), of("In", &["B_2"])]);
    let config = frr_conf(&objects, "-a");
    for line in [
        "router bgp 4200000001",
        " neighbor 192.0.2.1 remote-as 4200000000",
        " neighbor 192.0.2.1 password $(tor-a)",
        " set community 64513:100 no-export additive",
        " set large-community 64513:1:2 additive",
        "  aggregate-address 198.51.100.0/24 summary-only",
    ] {
        assert!(config.lines().any(|it| it == line), "{line}: {config}");
    }
}

#[test]
#[ignore = "needs helm"]
fn frr_understands_what_the_values_give() {
    let objects = rendered("sheave-system", &PEERS);
    let folder = tempfile::tempdir().expect("a folder");
    for suffix in ["", "-a", "-b-2"] {
        let config =
            frr_conf(&objects, suffix).replace("$(ROUTER_ID)", "192.0.2.7").replace("$(tor-a)", "secret");
        let file = folder.path().join("frr.conf");
        fs::write(&file, &config).expect("it is written");
        let output = Command::new("vtysh").args(["-C", "-f"]).arg(&file).output().expect("frr is installed");
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !said.contains('%'), "{said}{config}");
    }
}

#[test]
#[ignore = "needs helm"]
fn values_for_peers_that_cannot_be_are_refused() {
    let peer = ["announce=bgp", "frr.peers[0].peerAddress=192.0.2.1"];
    let asn = "frr.peers[0].peerASN=64512";
    for (values, named) in [
        (&[][..], "peerASN"),
        (&["frr.peers[0].peerASN=0"], "peerASN"),
        (&[asn, "frr.peers[0].password=secret"], "password"),
        (&[asn, "frr.peers[0].interface=eth0"], "peers"),
        (&[asn, "frr.peers[0].holdTime=1m"], "holdTime"),
        (&[asn, "frr.config=router bgp 1"], "frr.config is the whole of frr.conf"),
        (
            &[
                asn,
                "frr.advertisements[0].addresses={203.0.112.0/23}",
                "frr.advertisements[0].aggregationLength=24",
            ],
            "write 203.0.112.0/23 as prefixes with /24",
        ),
    ] {
        let output = helm("sheave-system", &[&peer, values].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{values:?}: {said}");
    }
}
