//! Tests of other clients that write to the status of our Services: those that only set their own conditions, and those
//! that change ours.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::scene::{our_conditions, play, wait_for, wait_until_clean};
use crate::stage::{condition, pool, published, service, wait_for_addresses, wait_until_gone};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, let_pass, patience};

const THEIRS: &str = "example.com/Audited";
const RIVAL: &str = "rival-lb";

#[test]
fn conditions_of_others_survive_everything() {
    play("others", "", |scene| {
        let cluster = scene.cluster;
        let controller = scene.start();
        service(cluster, "web", "");
        cluster.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{type: LoadBalancer, loadBalancerClass: \
             sheave.dev/l4, allocateLoadBalancerNodePorts: false, ports: [{{name: http, port: 80, protocol: TCP, targetPort: \
             8080}}]}}\nstatus: {{conditions: [{}]}}\n",
            theirs()
        ));
        wait_for(cluster, ("Service", "web"), "has conditions of both", |web| {
            our_conditions(web).len() == 3 && condition(web, THEIRS).is_some()
        });
        pool(cluster, "others", "203.0.113.70");
        wait_for_addresses(cluster, "web");
        expect_theirs(cluster);
        scene.crash(controller);
        let _controller = scene.start();
        cluster.merge("Service", "web", "someone", &json!({"spec": {"type": "ClusterIP"}})).unwrap();
        wait_until_clean(cluster, "web");
        expect_theirs(cluster);
        let back = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4"}});
        cluster.merge("Service", "web", "someone", &back).unwrap();
        wait_for_addresses(cluster, "web");
        expect_theirs(cluster);
    });
}

/// A merge patch replaces the whole list of conditions.
#[test]
fn conditions_that_others_wipe_out_come_back_beside_theirs() {
    play("wipe", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "wipe", "203.0.113.71");
        let _controller = scene.start();
        service(cluster, "web", "");
        wait_for_addresses(cluster, "web");
        for _ in 0..2 {
            cluster
                .merge_status("Service", "web", RIVAL, &json!({"status": {"conditions": [theirs()]}}))
                .unwrap();
            wait_for(cluster, ("Service", "web"), "has conditions of both", |web| {
                our_conditions(web).len() == 3 && condition(web, THEIRS).is_some()
            });
        }
        cluster.merge("Service", "web", "someone", &json!({"spec": {"type": "ClusterIP"}})).unwrap();
        wait_until_clean(cluster, "web");
        expect_theirs(cluster);
    });
}

#[test]
fn a_rival_for_the_addresses_is_named_and_fought_ever_more_slowly() {
    play("rival", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "rival", "203.0.113.72");
        let _controller = scene.start();
        service(cluster, "web", "");
        let ours = wait_for_addresses(cluster, "web");
        let theirs = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.66"}]}}});
        let over = AtomicBool::new(false);
        let lost = std::thread::scope(|scope| {
            let rival = scope.spawn(|| {
                let mut lost = 0;
                while !over.load(Ordering::Relaxed) {
                    let web = cluster.get("Service", "web").expect("nobody deletes it");
                    if published(&web) == ours {
                        cluster.merge_status("Service", "web", RIVAL, &theirs).expect("a plain patch wins");
                        lost += 1;
                    }
                    let_pass(std::time::Duration::from_millis(20));
                }
                lost
            });
            let note = wait_for_event(cluster, "StatusContested");
            // Long enough for hundreds of rounds without a pause.
            let_pass(std::time::Duration::from_secs(4));
            over.store(true, Ordering::Relaxed);
            assert!(note.contains(RIVAL), "{note}");
            rival.join().expect("the rival has no other trouble")
        });
        assert!((2..=8).contains(&lost), "{lost} rounds");
        wait_for(cluster, ("Service", "web"), "is ours in the end", |web| published(web) == ours);
        cluster.delete("Service", "web");
        wait_until_gone(cluster, "Service", "web");
    });
}

/// Note of the first Event about Service `web` with this reason.
fn wait_for_event(cluster: &Cluster, reason: &str) -> String {
    eventually_within(patience(30.0), &format!("an Event says {reason}"), || {
        let events = cluster.list("Event");
        let found = events.iter().find(|it| it["reason"] == reason && it["regarding"]["name"] == "web");
        found.map(|it| it["note"].to_string()).ok_or_else(|| format!("{events:?}"))
    })
}

fn theirs() -> Value {
    json!({"type": THEIRS, "status": "True", "reason": "Seen", "message": "all is well",
           "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn expect_theirs(cluster: &Cluster) {
    let web = cluster.get("Service", "web").unwrap();
    let expected = Some(("True".to_owned(), "Seen".to_owned(), "all is well".to_owned()));
    assert_eq!(condition(&web, THEIRS), expected, "{web}");
}
