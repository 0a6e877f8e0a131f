//! The next write for MultiClusterServices, where it differs from that for Services.

use serde_json::Value;

use super::*;
use crate::api::karmada::MultiClusterService;
use crate::controller::tests::objects::{fleet_desired_status as fleet, multi_cluster_service};

const FOREIGN: &str = "karmada.io/multi-cluster-service-controller";

fn object(differences: &Value) -> ServiceObject {
    ServiceObject::from(&Arc::new(multi_cluster_service(differences)))
}

fn step(object: &ServiceObject, desired: &Desired) -> WriteStep {
    next_step(
        &Seen { object, status_cleared: false, now: at(0) },
        desired,
        &Ownership::new(OUR_CLASS, SHARED),
    )
}

fn publish(object: &ServiceObject, desired_status: DesiredStatus) -> WriteStep {
    step(object, &Desired::Published(desired_status))
}

fn applied(step: &WriteStep) -> &Value {
    match step {
        WriteStep::ApplyStatus(body) | WriteStep::ClearStatus(body) => body,
        other => panic!("not applied: {other:?}"),
    }
}

fn published(ready: u32) -> ServiceObject {
    let bare = object(&json!({"metadata": {"finalizers": [FINALIZER]}}));
    let step = publish(&bare, fleet(ready));
    object(&json!({"metadata": {"finalizers": [FINALIZER]}, "status": applied(&step)["status"]}))
}

#[test]
fn its_own_finalizer_comes_before_the_address_and_the_shared_one_never() {
    let step = publish(&object(&json!({"metadata": {"finalizers": [FOREIGN]}})), fleet(7));
    let WriteStep::AddFinalizer(body) = &step else { panic!("{step:?}") };
    assert_eq!(
        *body,
        json!({"metadata": {"uid": "m1", "resourceVersion": "100", "finalizers": [FOREIGN, FINALIZER]}})
    );
}

#[test]
fn without_an_address_it_gets_conditions_and_no_finalizer() {
    let step = publish(&object(&json!({})), DesiredStatus { ingress: Vec::new(), ..fleet(7) });
    assert_eq!(applied(&step)["status"]["loadBalancer"], json!({"ingress": []}));
    let types: Vec<&str> = applied(&step)["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        [
            "sheave.dev/Accepted",
            "sheave.dev/ResolvedRefs",
            "sheave.dev/Allocated",
            "sheave.dev/Programmed",
            "sheave.dev/Degraded"
        ]
    );
}

#[test]
fn the_status_names_kind_version_and_generation() {
    let bare = object(&json!({"metadata": {"finalizers": [FINALIZER]}}));
    let step = publish(&bare, fleet(7));
    let body = applied(&step);
    assert_eq!(
        (&body["apiVersion"], &body["kind"]),
        (&json!("networking.karmada.io/v1alpha1"), &json!("MultiClusterService"))
    );
    assert_eq!(
        body["metadata"],
        json!({"name": "web", "namespace": "shop", "uid": "m1", "resourceVersion": "100"})
    );
    for condition in body["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["observedGeneration"], 4);
    }
}

#[test]
fn ports_are_there_only_with_an_error() {
    let bare = object(&json!({"metadata": {"finalizers": [FINALIZER]}}));
    let mut desired_status = fleet(7);
    desired_status.ingress.push(ingress("203.0.113.8", Some(reason::BIND_FAILED)));
    let step = publish(&bare, desired_status);
    assert_eq!(
        applied(&step)["status"]["loadBalancer"]["ingress"],
        json!([
            {"ip": "203.0.113.7", "ipMode": "Proxy"},
            {"ip": "203.0.113.8", "ipMode": "Proxy",
             "ports": [{"port": 80, "protocol": "TCP", "error": "sheave.dev/BindFailed"}]},
        ])
    );
}

#[test]
fn a_name_that_karmada_would_refuse_is_not_kept() {
    let bare = object(&json!({"metadata": {"finalizers": [FINALIZER]}}));
    for (name, kept) in [("web.example.com", true), ("Web_1", false), ("203.0.113.7", false)] {
        let mut desired_status = fleet(7);
        desired_status.ingress[0].hostname = Some(name.to_owned());
        let step = publish(&bare, desired_status);
        let said = &applied(&step)["status"]["loadBalancer"]["ingress"][0];
        assert_eq!(said.get("hostname").is_some(), kept, "{name}");
    }
}

#[test]
fn what_locks_the_object_goes_before_the_finalizer_comes() {
    let locked = object(&json!({"status": {"loadBalancer": {"ingress": [{"hostname": "Bad_Name"}]}}}));
    let step = publish(&locked, fleet(7));
    assert_eq!(applied(&step)["status"]["loadBalancer"], json!({"ingress": []}));
}

#[test]
fn what_locks_the_object_goes_before_the_finalizer_does() {
    let ingress = json!([{"ip": "198.51.100.1"}, {"ip": "nonsense"}]);
    let locked = object(
        &json!({"metadata": {"finalizers": [FINALIZER]}, "status": {"loadBalancer": {"ingress": ingress}}}),
    );
    let seen = Seen { object: &locked, status_cleared: true, now: at(0) };
    let step = next_step(&seen, &Desired::Released, &Ownership::default());
    let WriteStep::RemoveRest(body) = &step else { panic!("{step:?}") };
    assert_eq!(
        *body,
        json!({"metadata": {"uid": "m1", "resourceVersion": "100"},
               "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}})
    );
}

#[test]
fn at_rest_nothing_is_written() {
    assert_eq!(publish(&published(7), fleet(7)), WriteStep::Nothing);
}

#[test]
fn a_count_is_minor_and_everything_else_is_not() {
    let object = published(7);
    let minor = |desired_status: DesiredStatus| {
        let desired = Desired::Published(desired_status);
        let step = step(&object, &desired);
        assert!(matches!(step, WriteStep::ApplyStatus(_)));
        urgency(&step, &object, &desired) == Urgency::Minor
    };
    assert!(minor(fleet(6)));
    assert!(!minor(fleet(0)), "it is degraded now");
    let other_address = DesiredStatus { ingress: vec![ingress("203.0.113.9", None)], ..fleet(7) };
    assert!(!minor(other_address));
    let broken_port =
        DesiredStatus { ingress: vec![ingress("203.0.113.7", Some(reason::BIND_FAILED))], ..fleet(7) };
    assert!(!minor(broken_port));
}

#[test]
fn it_is_released_in_order_and_foreign_finalizers_stay() {
    let mut object = published(7);
    let ServiceObject::MultiClusterService(service) = &mut object else { panic!() };
    let service: &mut MultiClusterService = Arc::make_mut(service);
    service.metadata.finalizers = Some(vec![FOREIGN.into(), FINALIZER.into(), SHARED_FINALIZER.into()]);
    let first = step(&object, &Desired::Released);
    assert!(matches!(first, WriteStep::ClearStatus(_)), "{first:?}");
    let ServiceObject::MultiClusterService(service) = &mut object else { panic!() };
    Arc::make_mut(service).status = None;
    let last = step(&object, &Desired::Released);
    assert!(matches!(last, WriteStep::RemoveFinalizer(_)), "{last:?}");
    assert_eq!(*finalizers(&last), json!([FOREIGN, SHARED_FINALIZER]));
}

#[test]
fn one_that_never_had_an_address_loses_its_conditions_once() {
    let mut object = published(7);
    let ServiceObject::MultiClusterService(service) = &mut object else { panic!() };
    Arc::make_mut(service).metadata.finalizers = None;
    let clear = step(&object, &Desired::Released);
    assert_eq!(applied(&clear)["status"], json!({}));
    let seen = Seen { object: &object, status_cleared: true, now: at(0) };
    assert_eq!(next_step(&seen, &Desired::Released, &Ownership::default()), WriteStep::Nothing);
    // The finalizer of the other installation shows that the conditions belong to it.
    let theirs = Ownership::new("example.com/inside", false);
    let ServiceObject::MultiClusterService(service) = &mut object else { panic!() };
    Arc::make_mut(service).metadata.finalizers = Some(vec![theirs.finalizer().to_owned()]);
    assert_eq!(step(&object, &Desired::Released), WriteStep::Nothing);
}

#[test]
fn one_that_was_never_ours_is_left_alone() {
    let foreign = object(&json!({"metadata": {"finalizers": [FOREIGN]},
        "status": {"loadBalancer": {"ingress": [{"hostname": "Bad_Name"}]}}}));
    assert_eq!(step(&foreign, &Desired::Released), WriteStep::Nothing);
}
