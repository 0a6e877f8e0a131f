//! Tests of removal without leftovers: `sheave uninstall`, and the shared finalizer for tools that wait for it.

use serde_json::json;

use crate::scene::{
    Bystanders, has_finalizer, is_clean, is_held, our_conditions, play, wait_for, wait_until_clean,
};
use crate::stage::{Role, pool, published, service, wait_for_addresses, wait_until_gone};
use crate::support::cluster::Cluster;

/// Finalizer of cloud providers' service controllers.
const SHARED: &str = "service.kubernetes.io/load-balancer-cleanup";
/// `EX_UNAVAILABLE`.
const UNAVAILABLE: Option<i32> = Some(69);

#[test]
fn uninstall_refuses_while_a_controller_leads_and_then_cleans_everything() {
    play("gone", "", |scene| {
        let cluster = scene.cluster;
        let bystanders = Bystanders::new(cluster);
        pool(cluster, "gone", "203.0.113.220-203.0.113.229");
        let controller = scene.start();
        for name in ["web", "next", "going"] {
            service(cluster, name, "");
            wait_for_addresses(cluster, name);
        }
        keep_condition_of_others(cluster, "web");
        let administrator = scene.stage.home(Role::Run, scene.road, "");
        let uninstall = |arguments: &[&str]| scene.stage.command(&administrator, "uninstall", arguments);

        let refused = uninstall(&[]);
        assert_eq!(refused.code(), UNAVAILABLE);
        let holder = controller.page("/api/status")["controller"]["leader"].clone();
        assert!(refused.stderr.contains("would put everything back"), "{}", refused.stderr);
        assert!(refused.stderr.contains(holder.as_str().unwrap_or("?")), "{holder} {}", refused.stderr);
        assert!(is_held(&cluster.get("Service", "web").unwrap()));

        scene.crash(controller);
        cluster.delete("Service", "going");
        let shown = uninstall(&["--dry-run"]).expect_success();
        for name in ["web", "next", "going"] {
            let of_service = format!("{}/{name}: ", cluster.namespace());
            let line = shown.lines().find(|line| line.starts_with(&of_service)).expect(&shown);
            assert!(line.contains("203.0.113.22") && line.contains("finalizer sheave.dev/"), "{line}");
        }
        assert!(shown.contains("nothing was changed"), "{shown}");
        assert!(is_held(&cluster.get("Service", "web").unwrap()), "a dry run changes nothing");

        let done = uninstall(&[]).expect_success();
        assert!(done.contains(&format!("{}/web: ", cluster.namespace())), "{done}");
        for name in ["web", "next"] {
            let service = cluster.get("Service", name).unwrap();
            assert!(is_clean(&service), "{service}");
        }
        wait_until_gone(cluster, "Service", "going");
        let web = cluster.get("Service", "web").unwrap();
        assert_eq!(web["status"]["conditions"][0]["type"], "example.com/Seen", "{web}");
        bystanders.expect_untouched();
        let again = uninstall(&[]).expect_success();
        assert!(again.contains("0 Services cleaned"), "{again}");
        cluster.delete("Service", "web");
        wait_until_gone(cluster, "Service", "web");
    });
}

#[test]
fn the_shared_finalizer_comes_and_goes_with_ours() {
    play("both", "sharedFinalizer: true\n", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "both", "203.0.113.230-203.0.113.231");
        let bystanders = Bystanders::new(cluster);
        let controller = scene.start();
        for name in ["typed", "deleted", "left"] {
            service(cluster, name, if name == "left" { "loadBalancerIP: 203.0.113.230" } else { "" });
        }
        for name in ["typed", "deleted", "left"] {
            wait_for(cluster, ("Service", name), "has both", |it| is_held(it) && has_finalizer(it, SHARED));
        }
        cluster.merge("Service", "typed", "someone", &json!({"spec": {"type": "ClusterIP"}})).unwrap();
        let typed = wait_until_clean(cluster, "typed");
        assert!(!has_finalizer(&typed, SHARED), "{typed}");
        cluster.delete("Service", "deleted");
        wait_until_gone(cluster, "Service", "deleted");
        assert!(controller.stop().success());
        let administrator = scene.stage.home(Role::Run, scene.road, "sharedFinalizer: true\n");
        scene.stage.command(&administrator, "uninstall", &[]).expect_success();
        let left = cluster.get("Service", "left").unwrap();
        assert!(is_clean(&left) && !has_finalizer(&left, SHARED), "{left}");
        bystanders.expect_untouched();
    });
}

/// Without the setting it belongs to others, who may still have to clean up.
#[test]
fn the_shared_finalizer_of_others_is_left_alone() {
    play("theirs", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "theirs", "203.0.113.232");
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web, finalizers: [{SHARED}]}}\nspec: {{type: LoadBalancer, \
             loadBalancerClass: sheave.dev/l4, ports: [{{name: http, port: 80, protocol: TCP}}]}}\n"
        ));
        let _controller = scene.start();
        wait_for_addresses(cluster, "web");
        cluster.delete("Service", "web");
        let web = wait_for(cluster, ("Service", "web"), "is let go by us", |it| !is_held(it));
        assert!(has_finalizer(&web, SHARED), "{web}");
        assert!(our_conditions(&web).is_empty() && published(&web).is_empty(), "{web}");
        cluster.merge("Service", "web", "someone", &json!({"metadata": {"finalizers": null}})).unwrap();
        wait_until_gone(cluster, "Service", "web");
    });
}

fn keep_condition_of_others(cluster: &Cluster, name: &str) {
    let condition = json!({"type": "example.com/Seen", "status": "True", "reason": "Seen", "message": "",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let path = format!(
        "/api/v1/namespaces/{}/services/{name}/status?fieldManager=auditor&force=true",
        cluster.namespace()
    );
    let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                      "status": {"conditions": [condition]}});
    cluster.send("PATCH", &path, "application/apply-patch+yaml", &body).unwrap();
}
