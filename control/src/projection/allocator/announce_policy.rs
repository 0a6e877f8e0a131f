//! Announcement of the addresses of pools: by the gateways of which Nodes, and on which interfaces.
//!
//! Every gateway must reach the same result without the controller. So it depends only on pools and Nodes: not on the Services
//! that have an address, nor on Namespaces, which gateways do not know.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::pool::Pool;
use super::selector::PoolSelector;
use crate::api::address_pool::{AddressPool, KIND, PoolAnnouncement, is_interface_name};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};

/// Policies of all pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnouncePolicies {
    /// Pools with their policy, in the order in which the allocator tries them.
    pools: Vec<(Pool, AnnouncePolicy)>,
}

/// Announcement of a pool's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncePolicy {
    /// Name of the pool.
    pub pool: Arc<str>,
    /// Nodes whose gateways may announce the addresses; `None` means all.
    pub nodes: Option<BTreeSet<Arc<str>>>,
    /// Interfaces on which the addresses are announced; empty means those in each gateway's configuration.
    pub interfaces: Vec<Arc<str>>,
}

impl AnnouncePolicy {
    /// Whether the gateway of this Node may announce the addresses.
    pub fn selects(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }

    fn read(
        name: &Arc<str>,
        spec: &PoolAnnouncement,
        nodes: &BTreeMap<Arc<str>, Arc<Node>>,
        report: &mut Report,
    ) -> Self {
        const FIELD: &str = "spec.announce.nodeSelector";
        let selector = PoolSelector::read(spec.node_selector.as_ref(), FIELD, None, report);
        let selected = (!selector.is_empty()).then(|| {
            let none = BTreeMap::new();
            let matches = |node: &Node| selector.matches(node.metadata.labels.as_ref().unwrap_or(&none));
            let selected = nodes.iter().filter(|(_, node)| matches(node));
            selected.map(|(name, _)| Arc::clone(name)).collect::<BTreeSet<_>>()
        });
        // Manifests may come without Nodes.
        if selected.as_ref().is_some_and(BTreeSet::is_empty) && !nodes.is_empty() {
            report.invalid(FIELD, "it matches no Node, so no gateway announces these addresses");
        }
        for (index, interface) in spec.interfaces.iter().enumerate() {
            if !is_interface_name(interface) {
                let message =
                    format!("{interface:?} is not the name of a network interface; none matches it");
                report.invalid(format!("spec.announce.interfaces[{index}]"), message);
            }
        }
        let interfaces = spec.interfaces.iter().map(|name| name.as_str().into()).collect();
        Self { pool: Arc::clone(name), nodes: selected, interfaces }
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.nodes, &self.interfaces) == (&other.nodes, &other.interfaces)
    }
}

impl AnnouncePolicies {
    /// Reads the policies of the pools. Returns them with their Problems.
    pub(crate) fn read(
        pools: &BTreeMap<Arc<str>, Arc<AddressPool>>,
        nodes: &BTreeMap<Arc<str>, Arc<Node>>,
    ) -> (Self, Vec<Problem>) {
        let nothing = PoolAnnouncement::default();
        let mut read: Vec<(Pool, AnnouncePolicy, Report)> = Vec::with_capacity(pools.len());
        for (name, pool) in pools {
            let mut report =
                Report::about(ObjectRef { kind: KIND, namespace: "".into(), name: Arc::clone(name) });
            let spec = pool.spec.announce.as_ref().unwrap_or(&nothing);
            let policy = AnnouncePolicy::read(name, spec, nodes, &mut report);
            // The allocator reports the other Problems of the pool.
            let (pool, _) = Pool::read(name, pool, &[], true);
            read.push((pool, policy, report));
        }
        read.sort_by_cached_key(|(pool, ..)| pool.order());
        for later in 1..read.len() {
            let (before, from) = read.split_at_mut(later);
            let Some((pool, policy, report)) = from.first_mut() else { continue };
            let other = |(first, its, _): &&(Pool, AnnouncePolicy, Report)| {
                !policy.is_like(its) && pool.overlaps(first)
            };
            for (_, first, _) in before.iter().filter(other) {
                let message = format!(
                    "some of them are in AddressPool {} as well, which comes first: these are announced as that one says",
                    first.pool
                );
                report.invalid("spec.addresses", message);
            }
        }
        let mut problems = Vec::new();
        let mut policies = Vec::with_capacity(read.len());
        for (pool, policy, report) in read {
            problems.extend(report.into_problems());
            policies.push((pool, policy));
        }
        (Self { pools: policies }, problems)
    }

    /// The policy for an address: that of the first pool that spans it, in the order in which the allocator tries them; `None` if
    /// no pool does.
    pub fn of(&self, ip: IpAddr) -> Option<&AnnouncePolicy> {
        self.pools.iter().find(|(pool, _)| pool.spans(ip)).map(|(_, policy)| policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "[{metadata: {name: a, labels: {rack: r1}}}, {metadata: {name: b, labels: {rack: r2}}}, {metadata: {name: c}}]";

    fn read(pools: &[(&str, &str)]) -> (AnnouncePolicies, Vec<String>) {
        read_with(pools, NODES)
    }

    fn read_with(pools: &[(&str, &str)], nodes: &str) -> (AnnouncePolicies, Vec<String>) {
        let nodes: Vec<Node> = serde_saphyr::from_str(nodes).unwrap();
        let nodes =
            nodes.into_iter().map(|node| (node.metadata.name.as_deref().unwrap().into(), node.into()));
        let pool = |(name, spec): &(&str, &str)| {
            let spec = serde_saphyr::from_str(spec).unwrap();
            (Arc::from(*name), Arc::new(AddressPool { spec, ..AddressPool::default() }))
        };
        let (policies, problems) =
            AnnouncePolicies::read(&pools.iter().map(pool).collect(), &nodes.collect());
        (policies, problems.iter().map(ToString::to_string).collect())
    }

    /// The pool that applies to an address, and the Nodes that it selects.
    fn of(policies: &AnnouncePolicies, ip: &str) -> Option<(String, Option<Vec<String>>)> {
        let policy = policies.of(ip.parse().unwrap())?;
        let nodes = policy.nodes.as_ref().map(|nodes| nodes.iter().map(ToString::to_string).collect());
        Some((policy.pool.to_string(), nodes))
    }

    fn policy(pool: &str, nodes: Option<&[&str]>) -> (String, Option<Vec<String>>) {
        (pool.to_owned(), nodes.map(|nodes| nodes.iter().map(|&node| node.to_owned()).collect()))
    }

    #[test]
    fn a_selector_picks_nodes_by_their_labels() {
        let pools = [
            ("all", "{addresses: [203.0.113.1]}"),
            ("empty", "{addresses: [203.0.113.2], announce: {nodeSelector: {}}}"),
            (
                "one",
                "{addresses: [203.0.113.3], announce: {nodeSelector: {matchLabels: {rack: r1}}, interfaces: [eth1]}}",
            ),
            (
                "two",
                "{addresses: [203.0.113.4], announce: {nodeSelector: {matchExpressions: \
                 [{key: rack, operator: NotIn, values: [r2]}]}}}",
            ),
        ];
        let (policies, problems) = read(&pools);
        assert_eq!(problems, [""; 0]);
        assert_eq!(of(&policies, "203.0.113.1"), Some(policy("all", None)));
        assert_eq!(of(&policies, "203.0.113.2"), Some(policy("empty", None)));
        assert_eq!(of(&policies, "203.0.113.3"), Some(policy("one", Some(&["a"]))));
        assert_eq!(of(&policies, "203.0.113.4"), Some(policy("two", Some(&["a", "c"]))));
        assert_eq!(of(&policies, "203.0.113.5"), None, "in no pool");
        let interfaces = |ip: &str| policies.of(ip.parse().unwrap()).unwrap().interfaces.clone();
        assert_eq!(interfaces("203.0.113.3"), ["eth1".into()]);
        assert!(interfaces("203.0.113.4").is_empty());
        let one = policies.of("203.0.113.3".parse().unwrap()).unwrap();
        assert!(one.selects("a") && !one.selects("b"));
    }

    #[test]
    fn a_selector_that_matches_no_node_or_cannot_be_read_is_reported_and_selects_nobody() {
        let spec =
            |selector: &str| format!("{{addresses: [203.0.113.1], announce: {{nodeSelector: {selector}}}}}");
        let typo = spec("{matchLabels: {rack: r9}}");
        let (policies, problems) = read(&[("p", &typo)]);
        assert_eq!(of(&policies, "203.0.113.1"), Some(policy("p", Some(&[]))));
        let expected = "AddressPool p: InvalidValue: spec.announce.nodeSelector: it matches no Node, so no gateway announces \
                        these addresses";
        assert_eq!(problems, [expected]);
        let (policies, problems) = read_with(&[("p", &typo)], "[]");
        assert_eq!(of(&policies, "203.0.113.1"), Some(policy("p", Some(&[]))));
        assert_eq!(problems, [""; 0], "no Node is known");
        let invalid = spec("{matchExpressions: [{key: rack, operator: Is, values: [r1]}]}");
        let (policies, problems) = read(&[("p", &invalid)]);
        assert_eq!(of(&policies, "203.0.113.1"), Some(policy("p", Some(&[]))));
        assert!(problems[0].contains("spec.announce.nodeSelector.matchExpressions[0]: "), "{problems:?}");
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn names_that_no_interface_can_have_are_reported_and_stay() {
        for bad in ["", "a/b", "eth0:1", "two words", "sixteen-letters-", ".."] {
            let spec = format!("{{addresses: [203.0.113.1], announce: {{interfaces: [eth0, {bad:?}]}}}}");
            let (policies, problems) = read(&[("p", &spec)]);
            assert_eq!(problems.len(), 1, "{bad:?}: {problems:?}");
            assert!(problems[0].contains("spec.announce.interfaces[1]: "), "{problems:?}");
            let policy = policies.of("203.0.113.1".parse().unwrap()).unwrap();
            assert_eq!(policy.interfaces, ["eth0".into(), bad.into()], "without it, all would be used");
        }
    }

    #[test]
    fn of_two_pools_with_an_address_the_one_counts_that_the_allocator_tries_first() {
        let r1 = "announce: {nodeSelector: {matchLabels: {rack: r1}}}";
        let r2 = "announce: {nodeSelector: {matchLabels: {rack: r2}}}";
        let (a, b) = (
            format!("{{addresses: [203.0.113.0/29], {r1}}}"),
            format!("{{addresses: [203.0.113.4-203.0.113.9], priority: 7, {r2}}}"),
        );
        let (policies, problems) = read(&[("a", &a), ("b", &b)]);
        assert_eq!(of(&policies, "203.0.113.3"), Some(policy("a", Some(&["a"]))));
        assert_eq!(
            of(&policies, "203.0.113.7"),
            Some(policy("b", Some(&["b"]))),
            "a priority of 0 comes last"
        );
        assert_eq!(of(&policies, "203.0.113.9"), Some(policy("b", Some(&["b"]))));
        assert_eq!(
            problems,
            [
                "AddressPool a: InvalidValue: spec.addresses: some of them are in AddressPool b as well, which comes first: these \
                 are announced as that one says"
            ]
        );
        let same = format!("{{addresses: [203.0.113.4-203.0.113.9], {r1}}}");
        assert_eq!(read(&[("a", &a), ("b", &same)]).1, [""; 0], "it makes no difference");
        let apart = format!("{{addresses: [203.0.113.16/29, '2001:db8::/64'], {r2}}}");
        assert_eq!(read(&[("a", &a), ("b", &apart)]).1, [""; 0]);
    }
}
