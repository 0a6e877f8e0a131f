//! Recorded files in the order of recording, with what was done before and between their steps without being
//! recorded.

use serde_json::{Value, json};

/// File with its circumstances.
pub(super) struct Scene {
    pub(super) file: &'static str,
    /// Actions before steps.
    pub(super) before: &'static [(usize, Before)],
    /// Corrections of recorded bodies that differ from what was sent, since the recorder changed or omitted
    /// them.
    pub(super) corrections: &'static [(usize, Correction)],
}

/// Restores the body that was sent.
pub(super) type Correction = fn(&mut Value);

/// Action that was not recorded.
pub(super) enum Before {
    /// Request: method, path and body.
    Send(&'static str, &'static str, fn() -> Value),
    /// A Service of the namespace corresponds to the recorded one.
    Is(&'static str, fn() -> Value),
}

use Before::{Is, Send};

const SERVICES_PATH: &str = "/api/v1/namespaces/rec/services";

const fn plain(file: &'static str) -> Scene {
    Scene { file, before: &[], corrections: &[] }
}

const fn after(file: &'static str, before: &'static [(usize, Before)]) -> Scene {
    Scene { file, before, corrections: &[] }
}

/// Service as created by the recorder.
fn service(name: &str, more: &Value) -> Value {
    let mut spec =
        json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080}], "selector": {"app": name}});
    json_patch::merge(&mut spec, more);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn balancer(name: &str) -> Value {
    service(name, &json!({"type": "LoadBalancer", "loadBalancerClass": "lb.example.com/l4"}))
}

fn ingress(ip: &str) -> Value {
    json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}})
}

fn with_finalizers(mut service: Value, finalizers: &[&str]) -> Value {
    service["metadata"]["finalizers"] = json!(finalizers);
    service
}

fn revision(revision: &str) -> Value {
    json!({"metadata": {"resourceVersion": revision}})
}

/// Service with every field that depends on its type.
fn full(name: &str) -> Value {
    let spec = json!({
        "type": "LoadBalancer",
        "loadBalancerClass": "lb.example.com/l4",
        "externalTrafficPolicy": "Local",
        "loadBalancerIP": "203.0.113.5",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "sessionAffinity": "ClientIP",
        "ports": [
            {"name": "http", "port": 80, "targetPort": 8080, "appProtocol": "http"},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ],
    });
    with_finalizers(service(name, &spec), &["lb.example.com/cleanup"])
}

fn full_status() -> Value {
    let condition = json!({"type": "lb.example.com/Programmed", "status": "True", "reason": "Programmed",
        "message": "ok", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"metadata": {"annotations": {"k": "v"}}, "status": {
        "loadBalancer": {"ingress": [{"ip": "203.0.113.5", "ipMode": "Proxy"}]}, "conditions": [condition]}})
}

pub(super) const SERVICES: &[Scene] = &[
    plain("02-service-create/lb-with-class"),
    plain("02-service-create/lb-minimal"),
    plain("02-service-create/lb-no-selector"),
    plain("02-service-create/lb-no-nodeports"),
    plain("02-service-create/lb-nodeports-toggle"),
    plain("02-service-create/lb-etp-local"),
    plain("02-service-create/lb-dual-stack"),
    plain("02-service-create/mixed-protocol"),
    plain("02-service-create/named-target-port"),
    plain("02-service-create/session-affinity"),
    plain("02-service-create/session-affinity-toggle"),
    plain("02-service-create/source-ranges"),
    plain("02-service-create/external-ips"),
    plain("02-service-create/loadbalancer-ip"),
    plain("02-service-create/class-rejects"),
    after(
        "02-service-create/class-immutable",
        &[(0, Send("POST", SERVICES_PATH, || service("c-nil", &json!({"type": "LoadBalancer"}))))],
    ),
    plain("02-service-create/port-rejects"),
    plain("02-service-create/misc-rejects"),
    plain("02-service-create/name-rules"),
    Scene {
        file: "02-service-create/create-errors",
        before: &[(0, Send("POST", SERVICES_PATH, || balancer("web")))],
        corrections: &[(6, |body| body["metadata"]["name"] = json!("c-unk"))],
    },
    plain("02-service-create/source-ranges-more"),
];

pub(super) const STATUSES: &[Scene] = &[
    after("03-status/merge-patch-ingress", &[(0, Send("POST", SERVICES_PATH, || balancer("s-m")))]),
    after(
        "03-status/noop-writes",
        &[(
            0,
            Send(
                "PATCH",
                "/api/v1/namespaces/rec/services/s-m/status",
                || json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "Proxy"}]}}}),
            ),
        )],
    ),
    after("03-status/ingress-rejects", &[(0, Send("POST", SERVICES_PATH, || balancer("s-r")))]),
    plain("03-status/ingress-ports"),
    plain("03-status/conditions"),
    after("03-status/merge-vs-smp", &[(0, Send("POST", SERVICES_PATH, || balancer("s-x")))]),
    after("03-status/wrong-type", &[(0, Send("POST", SERVICES_PATH, || service("s-cip", &json!({}))))]),
    after("03-status/subresource-isolation", &[(0, Send("POST", SERVICES_PATH, || balancer("s-i")))]),
    after("03-status/ssa-basic", &[(0, Send("POST", SERVICES_PATH, || balancer("s-a")))]),
    after("03-status/ssa-conflict", &[(0, Send("POST", SERVICES_PATH, || balancer("s-c")))]),
    after("03-status/ssa-vs-update-manager", &[(0, Send("POST", SERVICES_PATH, || balancer("s-u")))]),
    Scene {
        file: "03-status/put-conflict",
        before: &[
            (0, Send("POST", SERVICES_PATH, || balancer("s-p"))),
            (0, Is("s-p", || steps_body("03-status/put-conflict", 0))),
            (0, Send("PATCH", "/api/v1/namespaces/rec/services/s-p/status", || ingress("203.0.113.9"))),
        ],
        corrections: &[(3, |body| body["metadata"]["name"] = json!("s-p"))],
    },
    after(
        "03-status/put-status-creates",
        &[
            (0, Send("POST", SERVICES_PATH, || balancer("ghost"))),
            (0, Is("ghost", || steps_body("03-status/put-status-creates", 0))),
            (0, Send("DELETE", "/api/v1/namespaces/rec/services/ghost", || Value::Null)),
            (5, Send("DELETE", "/api/v1/namespaces/rec/services/ghost", || Value::Null)),
        ],
    ),
    after(
        "03-status/user-agent-manager",
        &[(0, Send("POST", SERVICES_PATH, || service("ua", &json!({"type": "LoadBalancer"}))))],
    ),
    Scene {
        file: "03-status/large-status",
        before: &[],
        corrections: &[(0, |body| {
            *body = json!({"metadata": {"annotations": {"large": "x".repeat(262_200)}}});
        })],
    },
    plain("03-status/put-status-partial-body"),
];

pub(super) const DELETIONS: &[Scene] = &[
    after(
        "04-finalizer-delete-type/finalizer-json-patch",
        &[(0, Send("POST", SERVICES_PATH, || balancer("f-j"))), (0, Is("f-j", || revision("733")))],
    ),
    after(
        "04-finalizer-delete-type/finalizer-merge-patch",
        &[
            (
                0,
                Send("POST", SERVICES_PATH, || {
                    with_finalizers(balancer("f-m"), &["lb.example.com/cleanup", "x.example.com/other"])
                }),
            ),
            (0, Is("f-m", || revision("738"))),
        ],
    ),
    after(
        "04-finalizer-delete-type/delete-with-finalizer",
        &[
            (
                0,
                Send("POST", SERVICES_PATH, || with_finalizers(balancer("f-d"), &["lb.example.com/cleanup"])),
            ),
            (0, Send("PATCH", "/api/v1/namespaces/rec/services/f-d/status", || ingress("203.0.113.1"))),
            (0, Is("f-d", || revision("749"))),
            (12, Send("POST", SERVICES_PATH, || balancer("f-d"))),
        ],
    ),
    after(
        "04-finalizer-delete-type/delete-plain",
        &[
            (0, Send("POST", SERVICES_PATH, || balancer("d-1"))),
            (0, Is("d-1", || steps_answer("04-finalizer-delete-type/delete-plain", 2))),
            (5, Send("POST", SERVICES_PATH, || balancer("d-2"))),
            (5, Is("d-2", || revision("776"))),
        ],
    ),
    after(
        "04-finalizer-delete-type/type-lb-to-clusterip-patch",
        &[
            (0, Send("POST", SERVICES_PATH, || full("t-1"))),
            (0, Send("PATCH", "/api/v1/namespaces/rec/services/t-1/status", full_status)),
        ],
    ),
    after(
        "04-finalizer-delete-type/type-lb-to-clusterip-put",
        &[
            (0, Send("POST", SERVICES_PATH, || full("t-2"))),
            (0, Send("PATCH", "/api/v1/namespaces/rec/services/t-2/status", full_status)),
            (0, Is("t-2", || steps_body("04-finalizer-delete-type/type-lb-to-clusterip-put", 0))),
        ],
    ),
    after(
        "04-finalizer-delete-type/type-lb-to-clusterip-explicit",
        &[(0, Send("POST", SERVICES_PATH, || full("t-3")))],
    ),
    after(
        "04-finalizer-delete-type/type-lb-to-nodeport",
        &[
            (0, Send("POST", SERVICES_PATH, || full("t-4"))),
            (0, Send("PATCH", "/api/v1/namespaces/rec/services/t-4/status", full_status)),
        ],
    ),
    after(
        "04-finalizer-delete-type/type-lb-to-externalname",
        &[
            (0, Send("POST", SERVICES_PATH, || full("t-5"))),
            (0, Send("PATCH", "/api/v1/namespaces/rec/services/t-5/status", full_status)),
        ],
    ),
    plain("04-finalizer-delete-type/type-round-trip"),
    plain("04-finalizer-delete-type/type-change-ssa"),
    after(
        "04-finalizer-delete-type/namespace-terminating",
        &[
            (0, Send("POST", "/api/v1/namespaces", || json!({"metadata": {"name": "dying"}}))),
            (0, Send("POST", "/api/v1/namespaces/dying/services", || service("a", &json!({})))),
            (0, Send("DELETE", "/api/v1/namespaces/dying", || Value::Null)),
        ],
    ),
];

pub(super) const CUSTOM: &[Scene] = &[
    plain("06-karmada/mcs-create"),
    Scene {
        file: "06-karmada/mcs-spec-rejects",
        before: &[],
        corrections: &[(10, |body| body["metadata"]["name"] = json!("b11"))],
    },
    plain("06-karmada/mcs-status-ssa"),
    plain("06-karmada/mcs-status-rejects"),
    Scene {
        file: "06-karmada/mcs-put",
        before: &[],
        corrections: &[(0, without_revision), (1, without_revision)],
    },
];

pub(super) const WORKS: &[Scene] = &[plain("06-karmada/work-endpointslice")];

fn without_revision(body: &mut Value) {
    body["metadata"]["resourceVersion"] = Value::Null;
}

fn steps_body(file: &str, step: usize) -> Value {
    super::replay::steps(file)[step]["request"]["body"].clone()
}

fn steps_answer(file: &str, step: usize) -> Value {
    super::replay::steps(file)[step]["response"]["body"].clone()
}
