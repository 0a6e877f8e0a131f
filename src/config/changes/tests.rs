//! Checks that every key is in the table, and that a change of each is either applied or reported.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::config::{Overrides, REFERENCE, values};

/// Each setting, with a file that changes only it.
const CHANGED: &[(&str, &str)] = &[
    ("node", "node: other"),
    ("kubeconfig", "kubeconfig: /other"),
    ("cluster", "cluster: other"),
    ("loadBalancerClass", "loadBalancerClass: example.com/other"),
    ("handleUnclassified", "handleUnclassified: true"),
    ("frontends", "frontends: [LoadBalancer, NodePort]"),
    ("externalIPs.allow", "externalIPs: {allow: [192.0.2.0/24]}"),
    ("acceptProxy.allow", "acceptProxy: {allow: [10.0.0.0/8]}"),
    ("nodePortAddresses", "nodePortAddresses: [192.0.2.0/24]"),
    ("reservedPorts", "reservedPorts: []"),
    ("internalCIDRs", "internalCIDRs: [192.0.2.0/24]"),
    ("workers", "workers: 7"),
    ("busyPoll", "busyPoll: 50us"),
    ("steering", "steering: always"),
    ("path", "path: auto"),
    ("admin.listen", "admin: {listen: '127.0.0.1:1'}"),
    ("healthz.listen", "healthz: {listen: '127.0.0.1:1'}"),
    ("timeouts.connect", "timeouts: {connect: 7s}"),
    ("timeouts.idle", "timeouts: {idle: 7s}"),
    ("timeouts.udpIdle", "timeouts: {udpIdle: 7s}"),
    ("timeouts.udpUnanswered", "timeouts: {udpUnanswered: 7s}"),
    ("timeouts.lameDuck", "timeouts: {lameDuck: 7s}"),
    ("timeouts.drain", "timeouts: {drain: 7s}"),
    ("limits.connections", "limits: {connections: 7}"),
    ("limits.udpFlows", "limits: {udpFlows: 7}"),
    ("limits.memory", "limits: {memory: 1Gi}"),
    ("limits.perService.connections", "limits: {perService: {connections: 7}}"),
    ("limits.perService.connectionRate", "limits: {perService: {connectionRate: 7}}"),
    ("limits.perClient.connections", "limits: {perClient: {connections: 7}}"),
    ("limits.perClient.connectionRate", "limits: {perClient: {connectionRate: 7}}"),
    ("limits.perClient.ipv6Prefix", "limits: {perClient: {ipv6Prefix: 56}}"),
    ("report.listen", "report: {listen: '127.0.0.1:1'}"),
    ("report.authorization", "report: {authorization: kubernetes}"),
    ("metrics.listen", "metrics: {listen: '127.0.0.1:1'}"),
    ("metrics.authorization", "metrics: {tokenFile: /other}"),
    ("metrics.tls.certificate", "metrics: {tls: {certificate: /other, key: /other}}"),
    ("metrics.maxFrontends", "metrics: {maxFrontends: 7}"),
    ("metrics.maxEndpoints", "metrics: {maxEndpoints: 7}"),
    ("connectionLog.sample", "connectionLog: {sample: 7%}"),
    ("connectionLog.linesPerService", "connectionLog: {linesPerService: 7}"),
    ("announce.mode", "announce: {mode: l2, heartbeat: {keys: /other}}"),
    ("announce.interfaces", "announce: {interfaces: [eth1]}"),
    ("announce.repeat", "announce: {repeat: 7s}"),
    ("announce.onConflict", "announce: {onConflict: withdraw}"),
    ("announce.heartbeat.port", "announce: {heartbeat: {port: 7}}"),
    ("announce.heartbeat.interval", "announce: {heartbeat: {interval: 70ms}}"),
    ("announce.heartbeat.failAfter", "announce: {heartbeat: {failAfter: 700ms, failAfterMax: 1400ms}}"),
    ("announce.heartbeat.failAfterMax", "announce: {heartbeat: {failAfterMax: 700ms}}"),
    ("announce.weight", "announce: {weight: 2}"),
    ("announce.holdDown", "announce: {holdDown: 7s}"),
    ("announce.tieBreaker", "announce: {tieBreaker: none}"),
    ("announce.bgp.interface", "announce: {bgp: {interface: vips}}"),
    ("announce.bgp.drain", "announce: {bgp: {drain: 7s}}"),
    ("gateways.service", "gateways: {service: a/b}"),
    ("gateways.tokenFile", "gateways: {tokenFile: /other}"),
    ("leaderElection.lease", "leaderElection: {lease: a/b}"),
    ("leaderElection.leaseDuration", "leaderElection: {leaseDuration: 16s}"),
    ("leaderElection.renewDeadline", "leaderElection: {renewDeadline: 9s}"),
    ("leaderElection.retryPeriod", "leaderElection: {retryPeriod: 1s}"),
    ("sharedFinalizer", "sharedFinalizer: true"),
    ("massDeletion.hold", "massDeletion: {hold: 7s}"),
    ("stateDir", "stateDir: /other"),
    ("logging.format", "logging: {format: json}"),
    ("logging.level", "logging: {level: debug}"),
    ("gatewayAPI.mode", "gatewayAPI: {mode: on}"),
    ("gatewayAPI.controllerName", "gatewayAPI: {controllerName: example.com/other}"),
    ("karmada.kubeconfig", "karmada: {kubeconfig: /other}"),
    ("karmada.handleUnclassified", "karmada: {handleUnclassified: false}"),
    ("karmada.notReadyHold", "karmada: {notReadyHold: 7s}"),
    ("karmada.exportServices", "karmada: {exportServices: true}"),
    ("karmada.serviceWorks", "karmada: {serviceWorks: true}"),
    ("clusters", "clusters: {member2: {interface: wg0, allow: [10.2.0.0/16]}}"),
    ("failover.overprovisioning", "failover: {overprovisioning: 200}"),
    ("failover.panicThreshold", "failover: {panicThreshold: 7}"),
];

/// Parses a file, for a Node that the file may name.
pub(crate) fn config(text: &str) -> Config {
    let environment = super::super::node::Environment { host_name: Some("n".to_owned()), node_name: None };
    Config::parse(text, &Overrides::default(), &environment).unwrap()
}

/// Each setting by its first key, with a configuration that changes only it, and what makes the change take effect.
pub(crate) fn each_changed(parts: ProcessParts) -> impl Iterator<Item = (&'static str, Config, TakesEffect)> {
    CHANGED.iter().map(move |(key, text)| {
        let row = KEYS.iter().find(|row| row.keys[0] == *key).unwrap();
        (*key, config(text), row.takes_effect(parts))
    })
}

fn leaves(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            let under = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            fields.iter().for_each(|(key, value)| leaves(&under(key), value, found));
        }
        None => drop(found.insert(path.to_owned())),
    }
}

#[test]
fn the_table_has_every_key() {
    let mut keys = BTreeSet::new();
    leaves("", &values::document(REFERENCE).unwrap(), &mut keys);
    let rows: Vec<String> = KEYS.iter().flat_map(|row| row.keys).map(|key| (*key).to_owned()).collect();
    assert_eq!(rows.iter().cloned().collect::<BTreeSet<_>>(), keys);
    assert_eq!(rows.len(), keys.len());
    assert!(KEYS.iter().map(|row| row.keys[0]).eq(CHANGED.iter().map(|(key, _)| *key)));
}

#[test]
fn a_change_of_each_key_is_either_in_force_or_named() {
    let former = config("");
    for parts in [ProcessParts::Gateway, ProcessParts::Controller, ProcessParts::Both] {
        assert!(merge(&former, former.clone(), parts).1.is_empty());
        for (key, read, effect) in each_changed(parts) {
            let (merged, changes) = merge(&former, read.clone(), parts);
            let ConfigChanges { live, upgrade, restart, unused } = changes;
            let named = match effect {
                TakesEffect::Unused => &unused,
                TakesEffect::Live => &live,
                TakesEffect::Upgrade => &upgrade,
                TakesEffect::Restart => &restart,
            };
            assert_eq!(named.first(), Some(&key), "{key}");
            let keys = KEYS.iter().find(|row| row.keys[0] == key).unwrap().keys.len();
            assert_eq!([live, upgrade, restart, unused].concat().len(), keys, "{key}");
            let expected = if effect > TakesEffect::Live { &former } else { &read };
            assert_eq!(&merged, expected, "{key}");
        }
    }
}
