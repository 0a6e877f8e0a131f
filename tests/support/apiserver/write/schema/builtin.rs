//! Schemas of the built-in kinds, transcribed from the Go types of k8s.io/api and their list markers.

use std::collections::BTreeMap;

use serde_json::json;

use super::Presence::{Always, NonZero, Pointer};
use super::Schema::{Flag, Int32, Int64, IntOrText, MicroTime, Opaque, Text, Time};
use super::{Field, ListKey, ListKind, Presence, Schema, Struct};
use crate::apiserver::kind::Kind;

/// Schema of a built-in kind. Kinds that are not listed keep whatever they are sent.
pub(crate) fn builtin(kind: &Kind) -> Schema {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Service") => service(),
        ("", "Node") => node(),
        ("", "Namespace") => namespace(),
        ("", "Event") => core_event(),
        ("events.k8s.io", "Event") => event(),
        ("discovery.k8s.io", "EndpointSlice") => endpoint_slice(),
        ("coordination.k8s.io", "Lease") => lease(),
        _ => open(object("", [])),
    }
}

type Fields<const N: usize> = [(&'static str, Presence, Schema); N];

fn structure<const N: usize>(go_name: &'static str, fields: Fields<N>) -> Schema {
    let fields: BTreeMap<_, _> = fields
        .into_iter()
        .map(|(name, presence, schema)| (name.to_owned(), Field { schema, presence }))
        .collect();
    Schema::Struct(Struct { go_name, fields, atomic: false, open: false })
}

/// Structure with the fields that every object has.
fn object<const N: usize>(go_name: &'static str, fields: Fields<N>) -> Schema {
    let mut schema = structure(go_name, fields);
    if let Schema::Struct(known) = &mut schema {
        for (name, schema) in [("apiVersion", Text), ("kind", Text), ("metadata", object_meta())] {
            known.fields.insert(name.to_owned(), Field { schema, presence: Always });
        }
    }
    schema
}

fn atomic(mut schema: Schema) -> Schema {
    if let Schema::Struct(known) = &mut schema {
        known.atomic = true;
    }
    schema
}

fn open(mut schema: Schema) -> Schema {
    if let Schema::Struct(known) = &mut schema {
        known.open = true;
    }
    schema
}

fn atomic_list(items: Schema) -> Schema {
    Schema::List(Box::new(items), ListKind::Atomic)
}

fn set_of_texts() -> Schema {
    Schema::List(Box::new(Text), ListKind::Set)
}

fn keyed(key: &str, items: Schema) -> Schema {
    let keys = vec![ListKey { name: key.to_owned(), default: None }];
    Schema::List(Box::new(items), ListKind::Keyed { keys, patch_key: key.to_owned() })
}

fn map_of(values: Schema) -> Schema {
    Schema::Map { values: Box::new(values), atomic: false }
}

fn atomic_map(values: Schema) -> Schema {
    Schema::Map { values: Box::new(values), atomic: true }
}

/// `metav1.ObjectMeta`.
pub(crate) fn object_meta() -> Schema {
    let owner = structure(
        "OwnerReference",
        [
            ("apiVersion", Always, Text),
            ("kind", Always, Text),
            ("name", Always, Text),
            ("uid", Always, Text),
            ("controller", Pointer, Flag),
            ("blockOwnerDeletion", Pointer, Flag),
        ],
    );
    structure(
        "ObjectMeta",
        [
            ("name", NonZero, Text),
            ("generateName", NonZero, Text),
            ("namespace", NonZero, Text),
            ("selfLink", NonZero, Text),
            ("uid", NonZero, Text),
            ("resourceVersion", NonZero, Text),
            ("generation", NonZero, Int64),
            ("creationTimestamp", Pointer, Time),
            ("deletionTimestamp", Pointer, Time),
            ("deletionGracePeriodSeconds", Pointer, Int64),
            ("labels", NonZero, map_of(Text)),
            ("annotations", NonZero, map_of(Text)),
            ("ownerReferences", NonZero, keyed("uid", atomic(owner))),
            ("finalizers", NonZero, set_of_texts()),
            // A pointer, since an empty list means "remove all managers".
            ("managedFields", Pointer, atomic_list(Opaque)),
        ],
    )
}

fn condition() -> Schema {
    structure(
        "Condition",
        [
            ("type", Always, Text),
            ("status", Always, Text),
            ("observedGeneration", NonZero, Int64),
            ("lastTransitionTime", Always, Time),
            ("reason", Always, Text),
            ("message", Always, Text),
        ],
    )
}

fn service() -> Schema {
    object("Service", [("spec", Always, service_spec()), ("status", Always, service_status())])
}

fn service_spec() -> Schema {
    let client_ip = structure("ClientIPConfig", [("timeoutSeconds", Pointer, Int32)]);
    let affinity = structure("SessionAffinityConfig", [("clientIP", Pointer, client_ip)]);
    structure(
        "ServiceSpec",
        [
            ("ports", NonZero, service_ports()),
            ("selector", NonZero, atomic_map(Text)),
            ("clusterIP", NonZero, Text),
            ("clusterIPs", NonZero, atomic_list(Text)),
            ("type", NonZero, Text),
            ("externalIPs", NonZero, atomic_list(Text)),
            ("sessionAffinity", NonZero, Text),
            ("loadBalancerIP", NonZero, Text),
            ("loadBalancerSourceRanges", NonZero, atomic_list(Text)),
            ("externalName", NonZero, Text),
            ("externalTrafficPolicy", NonZero, Text),
            ("healthCheckNodePort", NonZero, Int32),
            ("publishNotReadyAddresses", NonZero, Flag),
            ("sessionAffinityConfig", Pointer, affinity),
            ("ipFamilies", NonZero, atomic_list(Text)),
            ("ipFamilyPolicy", Pointer, Text),
            ("allocateLoadBalancerNodePorts", Pointer, Flag),
            ("loadBalancerClass", Pointer, Text),
            ("internalTrafficPolicy", Pointer, Text),
            ("trafficDistribution", Pointer, Text),
        ],
    )
}

fn service_ports() -> Schema {
    let port = structure(
        "ServicePort",
        [
            ("name", NonZero, Text),
            ("protocol", NonZero, Text),
            ("appProtocol", Pointer, Text),
            ("port", Always, Int32),
            ("targetPort", NonZero, IntOrText),
            ("nodePort", NonZero, Int32),
        ],
    );
    let keys = vec![
        ListKey { name: "port".to_owned(), default: None },
        ListKey { name: "protocol".to_owned(), default: Some(json!("TCP")) },
    ];
    Schema::List(Box::new(port), ListKind::Keyed { keys, patch_key: "port".to_owned() })
}

fn service_status() -> Schema {
    let port = structure(
        "PortStatus",
        [("port", Always, Int32), ("protocol", Always, Text), ("error", Pointer, Text)],
    );
    let ingress = structure(
        "LoadBalancerIngress",
        [
            ("ip", NonZero, Text),
            ("hostname", NonZero, Text),
            ("ipMode", Pointer, Text),
            ("ports", NonZero, atomic_list(port)),
        ],
    );
    let load_balancer = structure("LoadBalancerStatus", [("ingress", NonZero, atomic_list(ingress))]);
    structure(
        "ServiceStatus",
        [("loadBalancer", Always, load_balancer), ("conditions", NonZero, keyed("type", condition()))],
    )
}

fn endpoint_slice() -> Schema {
    let conditions = structure(
        "EndpointConditions",
        [("ready", Pointer, Flag), ("serving", Pointer, Flag), ("terminating", Pointer, Flag)],
    );
    let hint = || atomic_list(structure("ForZone", [("name", Always, Text)]));
    let hints = structure("EndpointHints", [("forZones", NonZero, hint()), ("forNodes", NonZero, hint())]);
    let endpoint = structure(
        "Endpoint",
        [
            ("addresses", Always, atomic_list(Text)),
            ("conditions", Always, conditions),
            ("hostname", Pointer, Text),
            ("targetRef", Pointer, object_reference()),
            ("deprecatedTopology", NonZero, map_of(Text)),
            ("nodeName", Pointer, Text),
            ("zone", Pointer, Text),
            ("hints", Pointer, hints),
        ],
    );
    let port = structure(
        "EndpointPort",
        [
            ("name", Pointer, Text),
            ("protocol", Pointer, Text),
            ("port", Pointer, Int32),
            ("appProtocol", Pointer, Text),
        ],
    );
    object(
        "EndpointSlice",
        [
            ("addressType", Always, Text),
            ("endpoints", Always, atomic_list(endpoint)),
            ("ports", Always, atomic_list(port)),
        ],
    )
}

fn lease() -> Schema {
    let spec = structure(
        "LeaseSpec",
        [
            ("holderIdentity", Pointer, Text),
            ("leaseDurationSeconds", Pointer, Int32),
            ("acquireTime", Pointer, MicroTime),
            ("renewTime", Pointer, MicroTime),
            ("leaseTransitions", Pointer, Int32),
            ("strategy", Pointer, Text),
            ("preferredHolder", Pointer, Text),
        ],
    );
    object("Lease", [("spec", Always, spec)])
}

fn object_reference() -> Schema {
    atomic(structure(
        "ObjectReference",
        [
            ("kind", NonZero, Text),
            ("namespace", NonZero, Text),
            ("name", NonZero, Text),
            ("uid", NonZero, Text),
            ("apiVersion", NonZero, Text),
            ("resourceVersion", NonZero, Text),
            ("fieldPath", NonZero, Text),
        ],
    ))
}

fn event_source() -> Schema {
    structure("EventSource", [("component", NonZero, Text), ("host", NonZero, Text)])
}

fn event_series() -> Schema {
    structure("EventSeries", [("count", Always, Int32), ("lastObservedTime", Always, MicroTime)])
}

fn event() -> Schema {
    object(
        "Event",
        [
            ("eventTime", Always, MicroTime),
            ("series", Pointer, event_series()),
            ("reportingController", NonZero, Text),
            ("reportingInstance", NonZero, Text),
            ("action", NonZero, Text),
            ("reason", NonZero, Text),
            ("regarding", Always, object_reference()),
            ("related", Pointer, object_reference()),
            ("note", NonZero, Text),
            ("type", NonZero, Text),
            ("deprecatedSource", Always, event_source()),
            ("deprecatedFirstTimestamp", Always, Time),
            ("deprecatedLastTimestamp", Always, Time),
            ("deprecatedCount", NonZero, Int32),
        ],
    )
}

fn core_event() -> Schema {
    object(
        "Event",
        [
            ("involvedObject", Always, object_reference()),
            ("reason", NonZero, Text),
            ("message", NonZero, Text),
            ("source", Always, event_source()),
            ("firstTimestamp", Always, Time),
            ("lastTimestamp", Always, Time),
            ("count", NonZero, Int32),
            ("type", NonZero, Text),
            ("eventTime", Always, MicroTime),
            ("series", Pointer, event_series()),
            ("action", NonZero, Text),
            ("related", Pointer, object_reference()),
            ("reportingComponent", Always, Text),
            ("reportingInstance", Always, Text),
        ],
    )
}

/// Fields of a Node that matter to load balancing; the rest is kept as sent.
fn node() -> Schema {
    let taint = structure(
        "Taint",
        [
            ("key", Always, Text),
            ("value", NonZero, Text),
            ("effect", Always, Text),
            ("timeAdded", Pointer, Time),
        ],
    );
    let spec = open(structure(
        "NodeSpec",
        [
            ("podCIDR", NonZero, Text),
            ("podCIDRs", NonZero, set_of_texts()),
            ("providerID", NonZero, Text),
            ("unschedulable", NonZero, Flag),
            ("taints", NonZero, atomic_list(taint)),
        ],
    ));
    let address = structure("NodeAddress", [("type", Always, Text), ("address", Always, Text)]);
    let status = open(structure(
        "NodeStatus",
        [
            ("capacity", NonZero, map_of(Opaque)),
            ("allocatable", NonZero, map_of(Opaque)),
            ("phase", NonZero, Text),
            ("conditions", NonZero, keyed("type", open(structure("NodeCondition", [])))),
            ("addresses", NonZero, keyed("type", address)),
        ],
    ));
    object("Node", [("spec", Always, spec), ("status", Always, status)])
}

fn namespace() -> Schema {
    let spec = structure("NamespaceSpec", [("finalizers", NonZero, atomic_list(Text))]);
    let status = structure(
        "NamespaceStatus",
        [
            ("phase", NonZero, Text),
            ("conditions", NonZero, keyed("type", open(structure("NamespaceCondition", [])))),
        ],
    );
    object("Namespace", [("spec", Always, spec), ("status", Always, status)])
}
