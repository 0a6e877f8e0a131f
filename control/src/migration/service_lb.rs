//! ServiceLB of k3s: publishes the addresses of all Nodes, or of those with a label.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::draft::{PoolDraft, left};
use crate::net;
use crate::sources::manifests::RawObject;

/// Label of enabled Nodes.
const ENABLE: &str = "svccontroller.k3s.cattle.io/enablelb";
/// Label of Nodes and of Services with a pool.
pub(super) const POOL: &str = "svccontroller.k3s.cattle.io/lbpool";
/// Label of the DaemonSets that ServiceLB creates.
const OF_SERVICE: &str = "svccontroller.k3s.cattle.io/svcname";
/// Label of gateway nodes.
const GATEWAY: &str = "node-role.kubernetes.io/gateway";

/// Translates the objects of ServiceLB.
pub(super) fn translate<'a>(objects: &'a [RawObject], findings: &mut Findings<'a>) {
    let has = |it: &&RawObject, label: &str| it.texts("labels").contains_key(label);
    let is_ours = |it: &&RawObject| match it.kind() {
        "Node" => has(it, ENABLE) || has(it, POOL),
        "DaemonSet" => has(it, OF_SERVICE),
        // Services with a class do not belong to a cloud provider such as ServiceLB.
        "Service" => has(it, POOL) && it.at(&["spec", "loadBalancerClass"]).is_none(),
        _ => false,
    };
    let Some(first) = objects.iter().find(is_ours) else { return };
    let mut draft = PoolDraft::new(first, "servicelb");
    draft.spec.from_gateway_nodes = true;
    draft.comments.push("The nodes' own addresses, as ServiceLB publishes them.".to_owned());
    findings.pools.push(draft);
    let nodes: BTreeMap<&str, BTreeMap<String, String>> = objects
        .iter()
        .filter(|it| it.kind() == "Node" && it.group().is_empty())
        .map(|node| (node.name(), node.texts("labels")))
        .collect();
    // Once any Node has the label, only Nodes with "true" are used.
    let enabled: Vec<&str> = nodes
        .iter()
        .filter(|(_, labels)| labels.get(ENABLE).is_some_and(|value| value == "true"))
        .map(|(name, _)| *name)
        // The name becomes part of a command.
        .filter(|name| net::is_host_name(name))
        .collect();
    let chosen = nodes.values().any(|labels| labels.contains_key(ENABLE));
    findings.steps.push(match enabled.as_slice() {
        _ if !chosen => format!("kubectl label node --all {GATEWAY}="),
        [] => format!(
            "kubectl label node NODE {GATEWAY}=, for each Node that is to be a gateway: no Node that was read has {ENABLE}=true."
        ),
        enabled => format!("kubectl label node {} {GATEWAY}=", enabled.join(" ")),
    });
    findings.steps.push(
        "Start k3s with --disable=servicelb: ServiceLB has the ports of its Services on each Node."
            .to_owned(),
    );
    let pools: BTreeSet<&String> = nodes.values().filter_map(|labels| labels.get(POOL)).collect();
    if pools.len() > 1 {
        let named = objects.iter().filter(|it| it.kind() == "Node" && has(it, POOL));
        findings.left.extend(named.map(|node| {
            let message = "all Services get the addresses of all gateway nodes; a second installation of another class can have other Nodes";
            left(node, &format!("metadata.labels[{POOL}]"), message)
        }));
    }
}
