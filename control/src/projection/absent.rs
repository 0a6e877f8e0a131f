//! Endpoints that a preview takes out: those on certain nodes, in certain zones or in certain clusters.

use std::collections::BTreeSet;

/// Endpoints that count as neither ready nor serving, whatever their conditions are. Empty in a gateway.
///
/// A node or zone is meant in every cluster that has one of this name, or in one cluster if it is written `CLUSTER/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbsentEndpoints {
    /// Names of nodes.
    pub nodes: BTreeSet<String>,
    /// Names of zones.
    pub zones: BTreeSet<String>,
    /// Names of clusters.
    pub clusters: BTreeSet<String>,
}

impl AbsentEndpoints {
    /// Whether nothing is taken out.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.zones.is_empty() && self.clusters.is_empty()
    }

    /// Whether an endpoint of this cluster, on this node and in this zone is taken out.
    pub fn has(&self, cluster: &str, node: &str, zone: &str) -> bool {
        !self.is_empty()
            && (self.clusters.contains(cluster)
                || is_named(&self.nodes, cluster, node)
                || is_named(&self.zones, cluster, zone))
    }
}

/// Whether the names have the node or zone, as such or in its cluster. An endpoint without a node or zone is meant by no name.
fn is_named(names: &BTreeSet<String>, cluster: &str, name: &str) -> bool {
    let in_cluster = |given: &String| given.split_once('/') == Some((cluster, name));
    !name.is_empty() && (names.contains(name) || names.iter().any(in_cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_meant_everywhere_or_in_one_cluster() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let everywhere = AbsentEndpoints { nodes: names(&["n1"]), ..AbsentEndpoints::default() };
        let in_one = AbsentEndpoints { nodes: names(&["east/n1"]), ..AbsentEndpoints::default() };
        assert!(everywhere.has("east", "n1", "") && everywhere.has("west", "n1", ""));
        assert!(in_one.has("east", "n1", "a") && !in_one.has("west", "n1", "a"));
        let others = AbsentEndpoints { zones: names(&["a", ""]), clusters: names(&["west"]), ..in_one };
        assert!(others.has("west", "", "") && others.has("east", "n2", "a"));
        assert!(!others.has("east", "n2", "") && !AbsentEndpoints::default().has("", "", ""));
    }
}
