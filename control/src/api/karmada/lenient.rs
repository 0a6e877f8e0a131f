//! Lenient decoding of status fields: a field that cannot be parsed counts as absent, so that the object around it is not lost.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The value, or the default if it cannot be parsed.
pub(super) fn value<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// The text, or an empty one if it cannot be parsed.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    value(deserializer)
}

/// The items that can be parsed.
pub(crate) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let items: Vec<Value> = value(deserializer)?;
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::api::karmada::{Cluster, Work};

    #[test]
    fn a_cluster_is_there_whatever_is_said_of_it() {
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {"name": "member1"},
            "spec": {"region": 7, "zones": "a", "taints": ["x", {"key": "k", "effect": "NoExecute"}]},
            "status": {"conditions": [null, {"type": "Ready", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}], "remedyActions": "TrafficControl"},
        }))
        .unwrap();
        assert_eq!((cluster.spec.region.as_str(), cluster.spec.zones.len()), ("", 0));
        assert_eq!((cluster.spec.taints.len(), cluster.status.conditions.len()), (1, 1));
        assert_eq!(cluster.status.remedy_actions, [] as [&str; 0]);
    }

    #[test]
    fn a_work_carries_what_it_carries_whatever_its_status_is() {
        for status in [json!("x"), json!({"manifestStatuses": ["x"]}), json!({"manifestStatuses": {}})] {
            let work: Work = serde_json::from_value(json!({
                "metadata": {"name": "web", "namespace": "karmada-es-member1"},
                "spec": {"workload": {"manifests": [{"kind": "Other"}]}},
                "status": status,
            }))
            .unwrap();
            assert_eq!((work.manifests().len(), work.manifest_statuses().len()), (1, 0));
        }
    }
}
