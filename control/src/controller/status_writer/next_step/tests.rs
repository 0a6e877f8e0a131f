//! The next write, for every combination of marks on a Service.

mod multi_cluster;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use sheave_model::{FrontendAddr, Protocol};

use super::*;
use crate::api::names::{ALLOCATED, FINALIZER, OUR_CLASS, SHARED_FINALIZER};
use crate::api::problem::reason;
use crate::controller::desired_status::Announcement;
use crate::controller::port_errors::PortFailure;
use crate::controller::tests::objects::{at, desired_status, ingress, service};
use crate::projection::service_health::Fault;

const PLAIN: bool = false;
const SHARED: bool = true;

fn step(service: &Service, desired: &Desired, shared: bool) -> WriteStep {
    let options = Ownership::new(OUR_CLASS, shared);
    next_step(&Seen { object: &exposed(service), status_cleared: false, now: at(0) }, desired, &options)
}

fn exposed(service: &Service) -> ServiceObject {
    ServiceObject::from(&Arc::new(service.clone()))
}

fn publish(service: &Service) -> WriteStep {
    step(service, &Desired::Published(desired_status()), PLAIN)
}

fn release(service: &Service) -> WriteStep {
    step(service, &Desired::Released, PLAIN)
}

fn release_cleared(service: &Service) -> WriteStep {
    next_step(
        &Seen { object: &exposed(service), status_cleared: true, now: at(0) },
        &Desired::Released,
        &Ownership::default(),
    )
}

fn with_finalizers(finalizers: &[&str]) -> Service {
    service(&json!({"metadata": {"finalizers": finalizers}}))
}

/// The Service after all writes.
fn published(desired_status: &DesiredStatus) -> Service {
    let bare = with_finalizers(&[FINALIZER]);
    let WriteStep::ApplyStatus(body) = step(&bare, &Desired::Published(desired_status.clone()), PLAIN) else {
        panic!("no status")
    };
    service(&json!({"metadata": {"finalizers": [FINALIZER]}, "status": body["status"]}))
}

fn finalizers(step: &WriteStep) -> &Value {
    match step {
        WriteStep::AddFinalizer(body) | WriteStep::RemoveFinalizer(body) => &body["metadata"]["finalizers"],
        other => panic!("not about finalizers: {other:?}"),
    }
}

#[test]
fn the_finalizer_comes_first() {
    let step = publish(&with_finalizers(&["example.com/other"]));
    let WriteStep::AddFinalizer(body) = &step else { panic!("{step:?}") };
    assert_eq!(
        *body,
        json!({"metadata": {"uid": "u1", "resourceVersion": "100", "finalizers": ["example.com/other", FINALIZER]}})
    );
}

#[test]
fn then_the_status_is_applied() {
    let mut desired_status = desired_status();
    desired_status.ingress[0].hostname = Some("web.example.com".into());
    desired_status.ingress.push(ingress("203.0.113.8", Some(reason::PROTOCOL_NOT_SUPPORTED)));
    let step = step(&with_finalizers(&[FINALIZER]), &Desired::Published(desired_status), PLAIN);
    let WriteStep::ApplyStatus(body) = &step else { panic!("{step:?}") };
    assert_eq!(body["metadata"], json!({"name": "web", "namespace": "shop", "uid": "u1"}));
    assert_eq!(
        body["status"]["loadBalancer"]["ingress"],
        json!([
            {"ip": "203.0.113.7", "ipMode": "Proxy", "hostname": "web.example.com",
             "ports": [{"port": 80, "protocol": "TCP"}]},
            {"ip": "203.0.113.8", "ipMode": "Proxy",
             "ports": [{"port": 80, "protocol": "TCP", "error": "sheave.dev/ProtocolNotSupported"}]},
        ])
    );
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 3);
    assert_eq!(
        conditions[0],
        json!({"type": ALLOCATED, "status": "True", "reason": "Allocated",
               "message": "It has 203.0.113.7, 203.0.113.8.", "lastTransitionTime": "2027-01-15T08:00:00Z"})
    );
}

#[test]
fn then_nothing() {
    assert_eq!(publish(&published(&desired_status())), WriteStep::Nothing);
}

#[test]
fn no_address_is_said_as_an_empty_list() {
    let step = step(&with_finalizers(&[FINALIZER]), &Desired::Published(DesiredStatus::default()), PLAIN);
    let WriteStep::ApplyStatus(body) = &step else { panic!("{step:?}") };
    assert_eq!(body["status"]["loadBalancer"], json!({"ingress": []}));
    // The API server does not store an empty list.
    let stored = json!({"metadata": {"finalizers": [FINALIZER]},
                        "status": {"loadBalancer": {"ingress": null}, "conditions": body["status"]["conditions"]}});
    let again = next_step(
        &Seen { object: &exposed(&service(&stored)), status_cleared: false, now: at(9) },
        &Desired::Published(DesiredStatus::default()),
        &Ownership::default(),
    );
    assert_eq!(again, WriteStep::Nothing);
}

#[test]
fn whatever_differs_is_written() {
    let seen = published(&desired_status());
    let differences: [fn(&mut DesiredStatus); 6] = [
        |desired_status| desired_status.ingress[0] = ingress("203.0.113.9", None),
        |desired_status| desired_status.ingress[0].hostname = Some("web.example.com".into()),
        |desired_status| desired_status.ingress[0].ports[0].port = 81,
        |desired_status| desired_status.ingress[0].ports[0].error = Some(reason::ADDRESS_IN_USE),
        |desired_status| desired_status.gateways = 0,
        |desired_status| {
            let ip = "203.0.113.7".parse().unwrap();
            let (protocol, reason) = ("TCP", reason::BIND_FAILED);
            let failure = PortFailure { ip, port: 80, protocol, reason, everywhere: false };
            desired_status.failed_ports.push(failure);
        },
    ];
    for (index, differ) in differences.iter().enumerate() {
        let mut desired_status = desired_status();
        differ(&mut desired_status);
        let step = step(&seen, &Desired::Published(desired_status), PLAIN);
        assert!(matches!(step, WriteStep::ApplyStatus(_)), "difference {index}: {step:?}");
    }
}

#[test]
fn a_mode_that_others_set_is_put_right() {
    let mut seen = published(&desired_status());
    let status = seen.status.as_mut().unwrap().load_balancer.as_mut().unwrap();
    status.ingress.as_mut().unwrap()[0].ip_mode = Some("VIP".into());
    assert!(matches!(publish(&seen), WriteStep::ApplyStatus(_)));
}

#[test]
fn conditions_of_others_do_not_matter() {
    let mut seen = published(&desired_status());
    let conditions = seen.status.as_mut().unwrap().conditions.as_mut().unwrap();
    let mut other = conditions[0].clone();
    other.type_ = "example.com/Ready".into();
    conditions.insert(0, other);
    assert_eq!(publish(&seen), WriteStep::Nothing);
}

#[test]
fn a_service_of_another_type_is_not_published() {
    let seen = service(&json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(publish(&seen), WriteStep::Nothing);
}

#[test]
fn an_object_that_no_api_server_has_is_left_alone() {
    for missing in ["uid", "resourceVersion"] {
        let mut differences = json!({"metadata": {"finalizers": [FINALIZER]}});
        differences["metadata"][missing] = Value::Null;
        assert_eq!(publish(&service(&differences)), WriteStep::Nothing, "without {missing}");
        assert_eq!(release(&service(&differences)), WriteStep::Nothing, "without {missing}");
    }
}

#[test]
fn release_clears_the_status_and_then_takes_the_finalizer() {
    let seen = published(&desired_status());
    let step = release(&seen);
    let WriteStep::ClearStatus(body) = &step else { panic!("{step:?}") };
    assert_eq!(
        *body,
        json!({"apiVersion": "v1", "kind": "Service", "status": {},
               "metadata": {"name": "web", "namespace": "shop", "uid": "u1"}})
    );
    let bare = with_finalizers(&["a.example.com/x", FINALIZER, "b.example.com/y"]);
    let step = release(&bare);
    assert!(matches!(step, WriteStep::RemoveFinalizer(_)));
    assert_eq!(*finalizers(&step), json!(["a.example.com/x", "b.example.com/y"]));
    assert_eq!(release(&with_finalizers(&["a.example.com/x"])), WriteStep::Nothing);
}

#[test]
fn an_ingress_that_is_left_after_clearing_belongs_to_others() {
    let mut seen = published(&desired_status());
    seen.status.as_mut().unwrap().conditions = None;
    assert!(matches!(release(&seen), WriteStep::ClearStatus(_)));
    assert!(matches!(release_cleared(&seen), WriteStep::RemoveFinalizer(_)));
}

#[test]
fn conditions_of_ours_that_are_left_after_clearing_are_taken_out_by_name() {
    let mut seen = published(&desired_status());
    let conditions = seen.status.as_mut().unwrap().conditions.as_mut().unwrap();
    let mut other = conditions[0].clone();
    other.type_ = "example.com/Ready".into();
    conditions.insert(1, other.clone());
    let step = release_cleared(&seen);
    let WriteStep::RemoveRest(body) = &step else { panic!("{step:?}") };
    assert_eq!(body["metadata"], json!({"uid": "u1", "resourceVersion": "100"}));
    assert_eq!(body["status"], json!({"conditions": [other]}));
}

#[test]
fn a_service_that_changed_its_type_is_cleaned() {
    // The API server has removed the ingress and kept conditions and finalizers.
    let mut seen = published(&desired_status());
    seen.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    seen.status.as_mut().unwrap().load_balancer = None;
    assert!(matches!(release(&seen), WriteStep::ClearStatus(_)));
    seen.status = None;
    assert!(matches!(release(&seen), WriteStep::RemoveFinalizer(_)));
}

#[test]
fn a_service_that_is_deleted_is_released_whatever_is_desired() {
    let leaving = json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}});
    let mut seen = published(&desired_status());
    seen.metadata.deletion_timestamp = service(&leaving).metadata.deletion_timestamp;
    assert!(matches!(publish(&seen), WriteStep::ClearStatus(_)));
    seen.status = None;
    assert!(matches!(publish(&seen), WriteStep::RemoveFinalizer(_)));
    // The API server rejects new finalizers at that point.
    assert_eq!(publish(&service(&leaving)), WriteStep::Nothing);
}

#[test]
fn all_copies_of_the_finalizer_go() {
    let step = release(&with_finalizers(&[FINALIZER, "a.example.com/x", FINALIZER]));
    assert_eq!(*finalizers(&step), json!(["a.example.com/x"]));
}

#[test]
fn what_carries_nothing_of_ours_is_never_written() {
    let ingress = json!({"ingress": [{"ip": "198.51.100.1", "ipMode": "VIP"}]});
    let condition = json!({"type": "example.com/Ready", "status": "True", "reason": "Ready", "message": "",
                           "lastTransitionTime": "2027-01-15T08:00:00Z"});
    let foreign = service(&json!({
        "metadata": {"finalizers": [SHARED_FINALIZER]},
        "status": {"loadBalancer": ingress, "conditions": [condition]},
    }));
    for shared in [PLAIN, SHARED] {
        assert_eq!(step(&foreign, &Desired::Released, shared), WriteStep::Nothing);
    }
}

#[test]
fn without_the_finalizer_nothing_is_taken() {
    let mut seen = published(&desired_status());
    seen.metadata.finalizers = None;
    assert_eq!(release(&seen), WriteStep::Nothing);
    assert_eq!(release_cleared(&seen), WriteStep::Nothing);
    seen.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    assert_eq!(release(&seen), WriteStep::Nothing);
    // While the Service is ours, the finalizer is restored.
    seen.spec.as_mut().unwrap().type_ = Some("LoadBalancer".into());
    assert!(matches!(publish(&seen), WriteStep::AddFinalizer(_)));
}

/// The states that a Service passes through while `names` publishes and releases it.
fn life(names: &Ownership) -> Vec<Service> {
    let finalizers: Vec<&str> = names.finalizers().collect();
    let held = with_finalizers(&finalizers);
    let mut whole = published(&desired_status());
    whole.metadata.finalizers.clone_from(&held.metadata.finalizers);
    let mut moved = whole.clone();
    moved.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
    moved.status.as_mut().unwrap().load_balancer = None;
    let mut leaving = whole.clone();
    let deleted = service(&json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}}));
    leaving.metadata.deletion_timestamp = deleted.metadata.deletion_timestamp;
    let mut bare = whole.clone();
    bare.metadata.finalizers = None;
    vec![with_finalizers(&[]), held, whole, moved, leaving, bare]
}

#[test]
fn another_installations_service_is_never_written() {
    for shared in [PLAIN, SHARED] {
        let ours = Ownership::new(OUR_CLASS, shared);
        let theirs = Ownership::new("example.com/inside", shared);
        for (theirs, ours) in [(&theirs, &ours), (&ours, &theirs)] {
            for service in life(theirs) {
                for status_cleared in [false, true] {
                    let seen = Seen { object: &exposed(&service), status_cleared, now: at(0) };
                    assert_eq!(next_step(&seen, &Desired::Released, ours), WriteStep::Nothing, "{service:?}");
                }
            }
        }
    }
}

#[test]
fn a_service_that_moves_to_another_installation_is_let_go_with_what_that_one_says() {
    let theirs = Ownership::new("example.com/inside", false);
    let mut seen = published(&desired_status());
    seen.metadata.finalizers = Some(vec![FINALIZER.into(), theirs.finalizer().into()]);
    assert!(matches!(release(&seen), WriteStep::ClearStatus(_)));
    let step = release_cleared(&seen);
    assert!(matches!(step, WriteStep::RemoveFinalizer(_)), "{step:?}");
    assert_eq!(*finalizers(&step), json!([theirs.finalizer()]));
}

#[test]
fn the_shared_finalizer_is_touched_only_if_asked_for() {
    let both = with_finalizers(&[SHARED_FINALIZER, FINALIZER]);
    assert_eq!(*finalizers(&step(&both, &Desired::Released, PLAIN)), json!([SHARED_FINALIZER]));
    assert_eq!(*finalizers(&step(&both, &Desired::Released, SHARED)), json!([]));
    let published = Desired::Published(desired_status());
    let none = with_finalizers(&[]);
    assert_eq!(*finalizers(&step(&none, &published, PLAIN)), json!([FINALIZER]));
    assert_eq!(*finalizers(&step(&none, &published, SHARED)), json!([FINALIZER, SHARED_FINALIZER]));
    let own = with_finalizers(&[FINALIZER]);
    assert_eq!(*finalizers(&step(&own, &published, SHARED)), json!([FINALIZER, SHARED_FINALIZER]));
}

/// The finalizer goes even if a user has turned the setting off: otherwise the Service could never be deleted.
#[test]
fn the_shared_finalizer_that_we_set_goes_without_the_setting() {
    let key = format!("v:\"{SHARED_FINALIZER}\"");
    let set_by = |manager: &str, finalizers: &[&str]| {
        let mut service = with_finalizers(finalizers);
        service.metadata.managed_fields =
            serde_json::from_value(json!([{"manager": manager, "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:finalizers": {&key: {}}}}}]))
            .unwrap();
        service
    };
    let ours = Ownership::new(OUR_CLASS, PLAIN).field_manager().to_owned();
    let released = |manager: &str, held: &[&str]| step(&set_by(manager, held), &Desired::Released, PLAIN);
    assert_eq!(*finalizers(&released(&ours, &[SHARED_FINALIZER, FINALIZER])), json!([]));
    assert_eq!(
        *finalizers(&released(&ours, &[SHARED_FINALIZER, "a.example.com/x"])),
        json!(["a.example.com/x"])
    );
    assert_eq!(*finalizers(&released("cloud", &[SHARED_FINALIZER, FINALIZER])), json!([SHARED_FINALIZER]));
    assert_eq!(released("cloud", &[SHARED_FINALIZER]), WriteStep::Nothing);
}

fn announced_by(node: &str) -> DesiredStatus {
    let announcement = Announcement::ByOne([([203, 0, 113, 7].into(), node.to_owned())].into());
    DesiredStatus { announcement, ..desired_status() }
}

#[test]
fn a_condition_about_announcing_that_does_not_apply_is_taken_out_by_name() {
    let without = publish(&published(&announced_by("gw-1")));
    let WriteStep::RemoveRest(patch) = without else { panic!("{without:?}") };
    assert_eq!(patch["metadata"]["resourceVersion"], "100");
    let left = patch["status"]["conditions"].as_array().unwrap();
    let left: Vec<&str> = left.iter().filter_map(|condition| condition["type"].as_str()).collect();
    assert_eq!(left, ["sheave.dev/Allocated", "sheave.dev/Programmed", "sheave.dev/Ready"]);
    assert_eq!(patch["status"].as_object().unwrap().len(), 1, "nothing else is touched");
    // Both installations write conditions with the same names.
    let mut shared = published(&announced_by("gw-1"));
    let theirs = Ownership::new("example.com/inside", false).finalizer().to_owned();
    shared.metadata.finalizers.get_or_insert_default().push(theirs);
    assert_eq!(publish(&shared), WriteStep::Nothing);
}

#[test]
fn a_condition_about_announcing_stays_while_nothing_is_known() {
    let service = published(&announced_by("gw-1"));
    let unknown = DesiredStatus { announcement: Announcement::Unknown, ..desired_status() };
    let status = |desired: DesiredStatus| step(&service, &Desired::Published(desired), false);
    assert_eq!(status(unknown.clone()), WriteStep::Nothing);
    let WriteStep::ApplyStatus(patch) = status(DesiredStatus { gateways: 0, ..unknown }) else { panic!() };
    let before = json!(service.status.as_ref().unwrap().conditions.as_ref().unwrap()[3]);
    assert_eq!((&patch["status"]["conditions"][3], &before["type"]), (&before, &json!(ANNOUNCED)));
}

#[test]
fn only_another_gateway_has_time_to_settle() {
    let urgency_of = |before: &DesiredStatus, desired: DesiredStatus| {
        let (object, desired) = (exposed(&published(before)), Desired::Published(desired));
        let seen = Seen { object: &object, status_cleared: false, now: at(0) };
        urgency(&next_step(&seen, &desired, &Ownership::default()), &object, &desired)
    };
    let before = announced_by("gw-1");
    let addr = FrontendAddr { ip: [203, 0, 113, 7].into(), port: 80, protocol: Protocol::Tcp };
    let without_endpoints =
        DesiredStatus { faults: vec![(addr, Fault::NoEndpoint(0))], ..announced_by("gw-2") };
    let by_none = Announcement::ByNone([[203, 0, 113, 7].into()].into());
    assert_eq!(urgency_of(&before, announced_by("gw-2")), Urgency::Settled);
    assert_eq!(urgency_of(&before, without_endpoints), Urgency::Status, "that is not put off");
    assert_eq!(
        urgency_of(&before, DesiredStatus { announcement: by_none, ..desired_status() }),
        Urgency::Status
    );
    assert_eq!(urgency_of(&before, DesiredStatus { gateways: 0, ..announced_by("gw-2") }), Urgency::Status);
    assert_eq!(urgency_of(&before, desired_status()), Urgency::Now, "nothing is announced any more");
    assert_eq!(urgency_of(&desired_status(), before), Urgency::Status, "it is announced for the first time");
}
