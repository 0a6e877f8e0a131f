//! Tests of a controller that makes Karmada collect endpoints: which MultiClusterServices it exports, and what it leaves
//! alone.

use serde_json::{Value, json};

use crate::fleet_kit::{
    EAST, Fleet, IN_EAST, KIND, WEST, change, exposed, is_tainted, place, play, serves_exports, template,
    wait_for_addresses, wait_until_clean,
};
use crate::scene::wait_for;
use crate::stage::{REST, condition, pool, wait_until_gone};
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::apiserver::status::Status;
use crate::support::cluster::Account;
use crate::support::patience::{eventually, let_pass};

const EXPORT: &str = "ServiceExport";
const POLICY: &str = "PropagationPolicy";
/// Name of the policy for `web`.
const WEB_POLICY: &str = "sheave-export-web";
/// Member that joins later.
const NORTH: &str = "sheave-north";
const LABEL: &str = "sheave.dev/managed-by";

/// Runs a case in a fleet with the export kinds.
fn play_exports(name: &str, case: impl FnOnce(&Fleet<'_>)) {
    play(name, |fleet| {
        fleet.plane.define_exports();
        fleet.plane.allow_exports();
        case(fleet);
    });
}

/// Clusters of the test fleet that a policy selects for the export; a real fleet may have others.
fn clusters(policy: &Value) -> Vec<&str> {
    let affinity = &policy["spec"]["placement"]["clusterAffinity"];
    let excluded = affinity["exclude"].as_array().cloned().unwrap_or_default();
    let names = affinity["clusterNames"].as_array().into_iter().flatten();
    let names = names.filter(|name| !excluded.contains(name)).filter_map(Value::as_str);
    names.filter(|name| name.starts_with("sheave-")).collect()
}

/// Waits until `web` is exported to these clusters.
fn wait_until_exported(fleet: &Fleet<'_>, to: &[&str]) -> [Value; 2] {
    let policy =
        wait_for(fleet.plane, (POLICY, WEB_POLICY), &format!("is for {to:?}"), |it| clusters(it) == to);
    [fleet.plane.get(EXPORT, "web").expect("exports come first"), policy]
}

/// Waits until Karmada's scheduler has placed the export of `web` in these clusters.
fn wait_until_scheduled(fleet: &Fleet<'_>, to: &[&str]) {
    let to: Vec<Value> = to.iter().map(|name| json!({"name": name})).collect();
    wait_for(fleet.plane, ("ResourceBinding", "web-serviceexport"), &format!("is in {to:?}"), |it| {
        it["spec"]["clusters"] == json!(to)
    });
}

fn wait_until_withdrawn(fleet: &Fleet<'_>) {
    wait_until_gone(fleet.plane, EXPORT, "web");
    wait_until_gone(fleet.plane, POLICY, WEB_POLICY);
}

/// Records that Karmada has scheduled the Service to these members.
fn bind(fleet: &Fleet<'_>, members: &[&str]) {
    let clusters: Vec<Value> = members.iter().map(|name| json!({"name": name})).collect();
    let binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": {"name": "web-service"},
        "spec": {"clusters": clusters, "resource": {"apiVersion": "v1", "kind": "Service", "name": "web",
                                                    "namespace": fleet.plane.namespace()}},
    });
    fleet.plane.apply(&binding.to_string());
}

/// Creates an export or policy like a user, with these labels.
fn made_by_user(fleet: &Fleet<'_>, kind: &str, labels: &Value) -> Value {
    let web = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": EXPORT, "name": "web"});
    let object = if kind == EXPORT {
        json!({"apiVersion": web["apiVersion"], "kind": EXPORT, "metadata": {"name": "web", "labels": labels}})
    } else {
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": POLICY,
               "metadata": {"name": WEB_POLICY, "labels": labels}, "spec": {"resourceSelectors": [web]}})
    };
    fleet.plane.create(&object).unwrap()
}

fn versions(fleet: &Fleet<'_>) -> Vec<String> {
    let all = [EXPORT, POLICY].iter().flat_map(|kind| fleet.plane.list(kind));
    all.map(|it| format!("{} {}", it["metadata"]["name"], it["metadata"]["resourceVersion"])).collect()
}

#[test]
fn an_export_follows_its_service_from_cluster_to_cluster_until_both_go() {
    play_exports("export", |fleet| {
        let controller = fleet.exporter();
        fleet.web("web");
        let [export, policy] = wait_until_exported(fleet, &[EAST, WEST]);
        let web = fleet.plane.get(KIND, "web").unwrap();
        for object in [&export, &policy] {
            // Karmada's webhook may add labels.
            assert_eq!(object["metadata"]["labels"][LABEL], "sheave");
            let owner = json!([{"apiVersion": "networking.karmada.io/v1alpha1", "kind": KIND, "name": "web",
                                "uid": web["metadata"]["uid"]}]);
            assert_eq!(object["metadata"]["ownerReferences"], owner);
        }
        let selected = json!([{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": EXPORT, "name": "web",
                               "namespace": fleet.plane.namespace()}]);
        assert_eq!(policy["spec"]["resourceSelectors"], selected);

        bind(fleet, &[EAST]);
        wait_until_exported(fleet, &[EAST]);
        change(fleet.plane, "web", &json!({"spec": {"providerClusters": [{"name": WEST}]}})).unwrap();
        wait_until_exported(fleet, &[WEST]);
        change(fleet.plane, "web", &json!({"spec": {"providerClusters": null}})).unwrap();
        bind(fleet, &[WEST, EAST]);
        wait_until_exported(fleet, &[EAST, WEST]);
        fleet.plane.delete("ResourceBinding", "web-service");
        wait_until_exported(fleet, &[EAST, WEST]);

        // It has no address, so no finalizer holds it.
        fleet.plane.delete(KIND, "web");
        wait_until_withdrawn(fleet);
        // Objects of a removed owner that are not garbage collected yet. Creating them needs all permissions.
        for kind in [EXPORT, POLICY] {
            made_by_user(fleet, kind, &json!({LABEL: "sheave"}));
        }
        assert!(controller.stop().success());
        let controller = fleet.exporter();
        fleet.web("web");
        wait_for(fleet.plane, (EXPORT, "web"), "is owned", |it| it["metadata"]["ownerReferences"].is_array());
        wait_for(fleet.plane, (POLICY, WEB_POLICY), "is owned", |it| {
            it["metadata"]["ownerReferences"].is_array()
        });
        assert!(controller.stop().success());
        let Some(server) = fleet.plane.test_server() else { return };
        assert_eq!(server.refused(), []);
        let unused = server.unused_rules(fleet.plane.user(Account::Controller));
        let unused = unused.iter().map(|it| format!("{it:?}"));
        assert_eq!(
            unused.filter(|it| it.contains("export") || it.contains("polic")).collect::<Vec<_>>(),
            [""; 0]
        );
    });
}

/// Sets the number of leader changes of Karmada's own controller.
fn led_after(fleet: &Fleet<'_>, changes: u32) {
    fleet.plane.apply(&format!(
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: karmada-controller-manager, namespace: \
         karmada-system}}\nspec: {{holderIdentity: manager_{changes}, leaseTransitions: {changes}, leaseDurationSeconds: 15}}\n"
    ));
}

/// A karmada-controller-manager that has just started does not collect existing exports until they change.
#[test]
fn an_export_changes_after_karmadas_controller_has_restarted_or_else_its_service_is_degraded() {
    play_exports("export-restart", |fleet| {
        let Some(server) = fleet.plane.test_server() else { return };
        led_after(fleet, 3);
        let _controller = fleet.exporter();
        fleet.web("web");
        let term = |it: &Value| it["metadata"]["annotations"]["sheave.dev/collector-term"].to_string();
        let first = wait_for(fleet.plane, (EXPORT, "web"), "names a term", |it| term(it).ends_with("/3\""));
        let refusal = Fault::Answer(Status::new(422, "Invalid", "a webhook said so"));
        let user = fleet.plane.user(Account::Controller);
        server.faults().plan(Matching::new("patch", "serviceexports").by(user), 1, refusal);
        led_after(fleet, 4);
        wait_for(fleet.plane, (KIND, "web"), "is degraded", |it| {
            condition(it, "sheave.dev/Degraded").is_some_and(|(_, reason, _)| reason == "EndpointsOutdated")
        });
        assert_eq!(term(&fleet.plane.get(EXPORT, "web").unwrap()), term(&first));
        // A refused write is retried after a minute, or at once by the next leader.
        led_after(fleet, 5);
        wait_for(fleet.plane, (EXPORT, "web"), "changes again", |it| term(it).ends_with("/5\""));
        wait_for(fleet.plane, (KIND, "web"), "is healthy", |it| {
            condition(it, "sheave.dev/Degraded").is_some_and(|(status, _, _)| status == "False")
        });
        assert_eq!(server.refused(), []);
    });
}

/// Karmada's scheduler skips clusters whose API it does not list yet, and retries only when the policy changes.
#[test]
fn clusters_whose_api_comes_late_and_clusters_that_join_late_are_exported_then() {
    play_exports("export-late", |fleet| {
        if fleet.plane.test_server().is_none() {
            return;
        }
        for member in [EAST, WEST] {
            serves_exports(fleet.plane, member, false);
        }
        let _controller = fleet.exporter();
        template(fleet.plane, "web");
        exposed(fleet.plane, "web", "{}", "");
        bind(fleet, &[EAST, WEST]);
        wait_until_scheduled(fleet, &[]);
        wait_until_exported(fleet, &[]);

        serves_exports(fleet.plane, EAST, true);
        wait_until_scheduled(fleet, &[EAST]);
        fleet.collected(EAST, "web", &[IN_EAST]);
        let waits = format!("In trouble: {WEST} has no endpoint: Karmada does not list ServiceExport");
        wait_for(fleet.plane, (KIND, "web"), "says who is waited for", |it| {
            condition(it, "sheave.dev/Degraded")
                .is_some_and(|(status, _, message)| status == "True" && message.starts_with(&waits))
        });

        serves_exports(fleet.plane, WEST, true);
        wait_until_scheduled(fleet, &[EAST, WEST]);
        fleet.plane.delete("ResourceBinding", "web-service");
        fleet.plane.make_execution_space(&place(NORTH));
        serves_exports(fleet.plane, NORTH, false);
        wait_until_scheduled(fleet, &[EAST, WEST]);
        serves_exports(fleet.plane, NORTH, true);
        wait_until_scheduled(fleet, &[EAST, NORTH, WEST]);
    });
}

/// Sheave itself keeps new traffic away; the collected endpoints are needed for open connections.
#[test]
fn a_taint_evicts_no_export() {
    play_exports("export-taint", |fleet| {
        if fleet.plane.test_server().is_none() {
            return;
        }
        let _controller = fleet.exporter();
        fleet.web("web");
        wait_until_scheduled(fleet, &[EAST, WEST]);
        is_tainted(fleet.plane, WEST, "{key: example.com/maintenance, effect: NoExecute}");
        wait_for(fleet.plane, (KIND, "web"), "says that it drains", |it| {
            condition(it, "sheave.dev/Degraded")
                .is_some_and(|(_, _, message)| message.contains("NoExecute taint"))
        });
        wait_until_scheduled(fleet, &[EAST, WEST]);
    });
}

#[test]
fn an_undisturbed_export_is_written_once() {
    play_exports("export-rest", |fleet| {
        fleet.web("web");
        let controller = fleet.exporter();
        wait_until_exported(fleet, &[EAST, WEST]);
        let before = versions(fleet);
        assert_eq!(before.len(), 2);
        let expect_no_writes = || {
            let Some(server) = fleet.plane.test_server() else { return };
            let mut writes = server.writes();
            writes.retain(|it| ["serviceexports", "propagationpolicies"].contains(&it.resource.as_str()));
            assert_eq!(writes, []);
        };
        if let Some(server) = fleet.plane.test_server() {
            server.forget_requests();
        }
        fleet.plane_road.cut();
        let_pass(REST);
        assert!(controller.stop().success());
        let controller = fleet.exporter();
        let_pass(REST);
        assert!(controller.stop().success());
        assert_eq!(versions(fleet), before);
        expect_no_writes();
    });
}

#[test]
fn what_is_let_go_is_exported_no_more() {
    play_exports("export-class", |fleet| {
        let _controller = fleet.exporter();
        pool(fleet.cluster, "export-class", "203.0.113.60");
        fleet.web("web");
        wait_for_addresses(fleet.plane, "web");
        wait_until_exported(fleet, &[EAST, WEST]);
        // It may be recreated. Without the export, the endpoints of all clusters would be removed at once.
        fleet.plane.delete("Service", "web");
        let before = versions(fleet);
        let_pass(REST);
        assert_eq!(versions(fleet), before);
        template(fleet.plane, "web");

        let class =
            |class: Value| json!({"metadata": {"annotations": {"sheave.dev/load-balancer-class": class}}});
        change(fleet.plane, "web", &class(json!("example.com/other"))).unwrap();
        wait_until_clean(fleet.plane, "web");
        wait_until_withdrawn(fleet);
        change(fleet.plane, "web", &class(Value::Null)).unwrap();
        wait_until_exported(fleet, &[EAST, WEST]);
        wait_for_addresses(fleet.plane, "web");
        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, KIND, "web");
        wait_until_withdrawn(fleet);
    });
}

#[test]
fn what_others_made_is_left_alone() {
    play_exports("export-theirs", |fleet| {
        let export = made_by_user(fleet, EXPORT, &json!({}));
        fleet.web("web");
        fleet.web("ours");
        let controller = fleet.exporter();
        wait_for(fleet.plane, (POLICY, "sheave-export-ours"), "is there", |_| true);
        let_pass(REST);
        assert_eq!(fleet.plane.get(EXPORT, "web").unwrap(), export);
        assert_eq!(fleet.plane.get(POLICY, WEB_POLICY), None, "whoever exports it brings it to the clusters");
        assert!(controller.stop().success());

        fleet.plane.delete(EXPORT, "web");
        let policy = made_by_user(fleet, POLICY, &json!({LABEL: "other"}));
        let _controller = fleet.exporter();
        eventually("an Event tells that the name is taken", || {
            let events = fleet.plane.list("Event");
            let told = |it: &&Value| it["reason"] == "ExportNameTaken" && it["regarding"]["name"] == "web";
            let notes: Vec<_> = events.iter().filter(told).map(|it| it["note"].clone()).collect();
            match &notes[..] {
                [note] if note.to_string().contains("PropagationPolicy sheave-export-web") => Ok(()),
                _ => Err(format!("{notes:?}")),
            }
        });
        fleet.plane.delete(KIND, "web");
        wait_until_gone(fleet.plane, EXPORT, "web");
        assert_eq!(fleet.plane.get(POLICY, WEB_POLICY).unwrap(), policy);
    });
}

#[test]
fn what_others_put_in_the_place_of_ours_is_left_alone() {
    play_exports("export-swap", |fleet| {
        let _controller = fleet.exporter();
        fleet.web("web");
        wait_until_exported(fleet, &[EAST, WEST]);
        fleet.plane.delete(POLICY, WEB_POLICY);
        wait_until_gone(fleet.plane, POLICY, WEB_POLICY);
        let policy = made_by_user(fleet, POLICY, &json!({}));
        // Policies are not watched: this change triggers a write to the policy that is no longer ours.
        bind(fleet, &[EAST]);
        eventually("an Event tells that the name is taken", || {
            let events = fleet.plane.list("Event");
            let reasons = events.iter().filter_map(|it| it["reason"].as_str());
            let ours: Vec<_> = reasons.filter(|reason| reason.starts_with("Export")).collect();
            if ours == ["ExportNameTaken"] { Ok(()) } else { Err(format!("{ours:?}")) }
        });
        assert_eq!(fleet.plane.get(POLICY, WEB_POLICY).unwrap()["spec"], policy["spec"]);
    });
}

#[test]
fn only_those_that_are_ours_are_exported_and_only_if_asked_for() {
    play_exports("export-off", |fleet| {
        fleet.web("web");
        let controller = fleet.controller();
        wait_for(fleet.plane, (KIND, "web"), "is spoken of", |it| it["status"]["conditions"].is_array());
        let_pass(REST);
        assert_eq!(versions(fleet), [""; 0]);
        assert!(controller.stop().success());
        template(fleet.plane, "theirs");
        exposed(fleet.plane, "theirs", "{sheave.dev/load-balancer-class: example.com/other}", "");
        exposed(fleet.plane, "lone", "{}", "");
        let _controller = fleet.exporter();
        wait_until_exported(fleet, &[EAST, WEST]);
        let_pass(REST);
        assert_eq!(versions(fleet).len(), 2);
    });
}

#[test]
fn a_server_that_fails_or_refuses_is_asked_again() {
    play_exports("export-fails", |fleet| {
        let Some(server) = fleet.plane.test_server() else { return };
        let user = fleet.plane.user(Account::Controller);
        let fails = |code, reason| Fault::Answer(Status::new(code, reason, "a webhook said so"));
        let exports = || Matching::new("create", "serviceexports").by(user);
        server.faults().plan(exports(), 1, fails(500, "InternalError"));
        server.faults().plan(exports(), 1, fails(409, "AlreadyExists"));
        let policies = Matching::new("create", "propagationpolicies").by(user);
        server.faults().plan(policies, 1, fails(422, "Invalid"));
        fleet.web("web");
        let _controller = fleet.exporter();
        eventually("an Event tells of the refusal", || {
            let events = fleet.plane.list("Event");
            if events.iter().any(|it| it["reason"] == "ExportRefused") { Ok(()) } else { Err("not yet") }
        });
        assert!(fleet.plane.get(EXPORT, "web").is_some());
        // Only after a minute, unless something changes.
        bind(fleet, &[EAST]);
        wait_until_exported(fleet, &[EAST]);
        assert_eq!(server.faults().outstanding(), 0);
    });
}

#[test]
fn without_definitions_and_rights_everything_else_goes_on() {
    play("export-lacks", |fleet| {
        if fleet.plane.test_server().is_none() {
            return;
        }
        pool(fleet.cluster, "export-lacks", "203.0.113.61");
        fleet.web("web");
        let controller = fleet.exporter();
        wait_for_addresses(fleet.plane, "web");
        let missing = "may not list serviceexports.multicluster.x-k8s.io";
        controller.wait_for_log(missing);
        fleet.plane.allow_exports();
        let unknown = "does not know serviceexports.multicluster.x-k8s.io";
        controller.wait_for_log(unknown);
        fleet.plane.define_exports();
        wait_until_exported(fleet, &[EAST, WEST]);
        let log = controller.log();
        for part in [missing, unknown] {
            assert_eq!(log.matches(part).count(), 1, "{log}");
        }
    });
}
