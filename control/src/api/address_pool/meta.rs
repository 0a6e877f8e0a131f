//! Schemas of the Kubernetes types that the definition contains, with Kubernetes' own descriptions. `k8s-openapi` can derive
//! them, but only for all of its types, which takes a third of the build time of the whole project.

use schemars::{Schema, SchemaGenerator, json_schema};

/// An optional `LabelSelector`.
pub(super) fn selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "description": "matchExpressions is a list of label selector requirements. The requirements are ANDed.",
                "type": "array",
                "items": requirement(),
            },
            "matchLabels": {
                "description": "matchLabels is a map of {key,value} pairs. A single {key,value} in the matchLabels map is \
                    equivalent to an element of matchExpressions, whose key field is \"key\", the operator is \"In\", and \
                    the values array contains only \"value\". The requirements are ANDed.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
        },
    })
}

fn requirement() -> Schema {
    json_schema!({
        "description": "A label selector requirement is a selector that contains values, a key, and an operator that \
            relates the key and values.",
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"description": "key is the label key that the selector applies to.", "type": "string"},
            "operator": {
                "description": "operator represents a key's relationship to a set of values. Valid operators are In, \
                    NotIn, Exists and DoesNotExist.",
                "type": "string",
            },
            "values": {
                "description": "values is an array of string values. If the operator is In or NotIn, the values array \
                    must be non-empty. If the operator is Exists or DoesNotExist, the values array must be empty. This \
                    array is replaced during a strategic merge patch.",
                "type": "array",
                "items": {"type": "string"},
            },
        },
    })
}

/// Conditions as a map keyed by type, so that other field managers can add theirs with server-side apply.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "Condition contains details for one aspect of the current state of this API Resource.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "lastTransitionTime is the last time the condition transitioned from one status to \
                        another. This should be when the underlying condition changed.  If that is not known, then using \
                        the time when the API field changed is acceptable.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "message is a human readable message indicating details about the transition. This may \
                        be an empty string.",
                    "type": "string",
                },
                "observedGeneration": {
                    "description": "observedGeneration represents the .metadata.generation that the condition was set based \
                        upon. For instance, if .metadata.generation is currently 12, but the \
                        .status.conditions[x].observedGeneration is 9, the condition is out of date with respect to the \
                        current state of the instance.",
                    "type": "integer",
                    "format": "int64",
                },
                "reason": {
                    "description": "reason contains a programmatic identifier indicating the reason for the condition's last \
                        transition. Producers of specific condition types may define expected values and meanings for this \
                        field, and whether the values are considered a guaranteed API. The value should be a CamelCase \
                        string. This field may not be empty.",
                    "type": "string",
                },
                "status": {"description": "status of the condition, one of True, False, Unknown.", "type": "string"},
                "type": {
                    "description": "type of condition in CamelCase or in foo.example.com/CamelCase.",
                    "type": "string",
                },
            },
        },
    })
}
