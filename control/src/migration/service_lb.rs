//! ServiceLB of k3s: every Node, or those with a label, and their own addresses.

use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
use super::draft::{PoolDraft, left};
use crate::net;
use crate::sources::manifests::RawObject;

/// Labels of Nodes.
const ENABLE: &str = "svccontroller.k3s.cattle.io/enablelb";
/// Label of Nodes and of Services.
pub(super) const POOL: &str = "svccontroller.k3s.cattle.io/lbpool";
/// Label of the DaemonSets that ServiceLB makes.
const OF_SERVICE: &str = "svccontroller.k3s.cattle.io/svcname";
/// The label of gateways.
const GATEWAY: &str = "node-role.kubernetes.io/gateway";

/// Translates what is ServiceLB's.
pub(super) fn translate<'a>(objects: &'a [RawObject], findings: &mut Findings<'a>) {
    let has = |it: &&RawObject, label: &str| it.texts("labels").contains_key(label);
    let is_ours = |it: &&RawObject| match it.kind() {
        "Node" => has(it, ENABLE) || has(it, POOL),
        "DaemonSet" => has(it, OF_SERVICE),
        // Those with a class are no concern of a cloud provider's, as ServiceLB is one.
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
    // Once a Node has the label, only those with "true" are used.
    let enabled: Vec<&str> = nodes
        .iter()
        .filter(|(_, labels)| labels.get(ENABLE).is_some_and(|value| value == "true"))
        .map(|(name, _)| *name)
        // This becomes a command.
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
