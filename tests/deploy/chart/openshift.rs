//! Tests of the chart's SecurityContextConstraints with the Pods that they are for.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{helm, rendered, text};

/// Volume that the API server adds to every Pod: the token of its account.
const TOKEN: &str = "projected";

fn words(list: &Value) -> BTreeSet<&str> {
    list.as_array().expect("a list").iter().map(text).collect()
}

/// Kind of each volume, which is the field next to its name.
fn kinds_of_volumes(pod: &Value) -> BTreeSet<&str> {
    let volumes = pod["volumes"].as_array().expect("volumes");
    let fields = volumes.iter().flat_map(|volume| volume.as_object().expect("a volume").keys());
    fields.map(String::as_str).filter(|field| *field != "name").collect()
}

/// Seccomp profile of a Pod, as named in constraints.
fn profile_of(pod: &Value) -> String {
    let profile = &pod["securityContext"]["seccompProfile"];
    match text(&profile["type"]) {
        "RuntimeDefault" => "runtime/default".to_owned(),
        "Unconfined" => "unconfined".to_owned(),
        _ => format!("localhost/{}", text(&profile["localhostProfile"])),
    }
}

fn admit_exactly_the_gateways(values: &[&str]) {
    let objects = rendered("elsewhere", &[values, &["openshift=true"]].concat());
    let constraints = &objects["SecurityContextConstraints sheave-gateway"];
    let pod = &objects["DaemonSet sheave-gateway"]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let security = &container["securityContext"];

    let account = format!("system:serviceaccount:elsewhere:{}", text(&pod["serviceAccountName"]));
    assert_eq!(words(&constraints["users"]), [account.as_str()].into());
    assert_eq!(constraints["allowHostNetwork"], pod["hostNetwork"]);
    for (allowed, asked) in [
        ("allowHostPID", &pod["hostPID"]),
        ("allowHostIPC", &pod["hostIPC"]),
        ("allowHostPorts", &container["ports"]),
        ("allowPrivilegedContainer", &security["privileged"]),
    ] {
        assert_eq!((&constraints[allowed], asked), (&Value::Bool(false), &Value::Null), "{allowed}");
    }
    assert_eq!(constraints["allowPrivilegeEscalation"], security["allowPrivilegeEscalation"]);
    assert_eq!(constraints["readOnlyRootFilesystem"], security["readOnlyRootFilesystem"]);
    assert_eq!(constraints["requiredDropCapabilities"], security["capabilities"]["drop"]);
    assert_eq!(words(&constraints["allowedCapabilities"]), words(&security["capabilities"]["add"]));
    assert_eq!(words(&constraints["seccompProfiles"]), [profile_of(pod).as_str()].into());

    let mut kinds = kinds_of_volumes(pod);
    assert_eq!(constraints["allowHostDirVolumePlugin"], kinds.contains("hostPath"));
    kinds.insert(TOKEN);
    assert_eq!(words(&constraints["volumes"]), kinds);
    // Only the user of the Pod is needed, and constraints with a range would refuse it.
    assert_eq!((&security["runAsUser"], text(&constraints["runAsUser"]["type"])), (&0.into(), "RunAsAny"));
}

#[test]
#[ignore = "needs helm"]
fn constraints_admit_what_gateways_ask_for_and_nothing_else() {
    admit_exactly_the_gateways(&[]);
    admit_exactly_the_gateways(&["announce=l2"]);
    admit_exactly_the_gateways(&["announce=bgp", "frr.enabled=false"]);
    admit_exactly_the_gateways(&[
        "gateway.seccompProfile.type=Localhost",
        "gateway.seccompProfile.localhostProfile=profiles/sheave.json",
    ]);
}

#[test]
#[ignore = "needs helm"]
fn frr_has_no_constraints_and_is_refused() {
    let output = helm("elsewhere", &["openshift=true", "announce=bgp", "frr.config=router bgp 1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("frr.enabled"), "{said}");
}
