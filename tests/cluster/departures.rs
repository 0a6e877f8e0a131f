//! Tests of all ways in which a Service ceases to be ours, with a controller that may die at any step: the result is
//! the same.

use serde_json::{Value, json};

use crate::scene::{
    Bystanders, Scene, has_finalizer, is_clean, is_held, our_conditions, play, wait_for, wait_until_clean,
};
use crate::stage::{Sheave, pool, published, service, wait_for_addresses, wait_until_gone};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};

/// The only address of the pool, so that its next owner shows that it was released.
const ADDRESS: &str = "203.0.113.30";
const FOREIGN_FINALIZER: &str = "example.com/audit";

/// Way in which a Service ceases to be ours.
struct Departure {
    name: &'static str,
    act: fn(&Cluster),
    end: End,
}

/// Result for the Service.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The Service stays, but is not ours.
    Stays,
    /// The Service is removed.
    Gone,
    /// The Service would be removed, except for another finalizer.
    Detained,
    /// A new Service has the same name.
    Replaced,
}

/// Time at which the controller dies.
#[derive(Clone, Copy, Debug)]
enum Crash {
    Never,
    /// The controller is down when it happens.
    Before,
    AtOnce,
    /// The status no longer has anything of ours.
    WhenStatusIsClean,
    /// The finalizer or the Service is gone.
    WhenReleased,
}

const CRASHES: [Crash; 5] =
    [Crash::Never, Crash::Before, Crash::AtOnce, Crash::WhenStatusIsClean, Crash::WhenReleased];

#[test]
fn type_away_to_cluster_ip() {
    leave(&Departure {
        name: "cip",
        act: |cluster| retype(cluster, &json!({"type": "ClusterIP"})),
        end: End::Stays,
    });
}

#[test]
fn type_away_to_node_port() {
    leave(&Departure {
        name: "np",
        act: |cluster| retype(cluster, &json!({"type": "NodePort"})),
        end: End::Stays,
    });
}

#[test]
fn type_away_to_external_name() {
    leave(&Departure {
        name: "ext",
        act: |cluster| retype(cluster, &json!({"type": "ExternalName", "externalName": "example.com"})),
        end: End::Stays,
    });
}

/// The class of a LoadBalancer is immutable, so users change its type away and back quickly.
#[test]
fn class_away() {
    let act = |cluster: &Cluster| {
        retype(cluster, &json!({"type": "ClusterIP"}));
        retype(cluster, &json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/lb"}));
        let theirs = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.9"}]}}});
        cluster.merge_status("Service", "web", "example-lb", &theirs).unwrap();
    };
    leave(&Departure { name: "class", act, end: End::Stays });
}

#[test]
fn deletion() {
    leave(&Departure { name: "del", act: |cluster| cluster.delete("Service", "web"), end: End::Gone });
}

#[test]
fn deletion_with_a_foreign_finalizer() {
    let act = |cluster: &Cluster| {
        let web = cluster.get("Service", "web").unwrap();
        let mut finalizers = web["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.insert(0, json!(FOREIGN_FINALIZER));
        cluster.merge("Service", "web", "auditor", &json!({"metadata": {"finalizers": finalizers}})).unwrap();
        cluster.delete("Service", "web");
    };
    leave(&Departure { name: "held", act, end: End::Detained });
}

/// A user removes the finalizer, so that the Service is removed at once, and creates a new one.
#[test]
fn deletion_by_force_and_another_one_of_the_name() {
    let act = |cluster: &Cluster| {
        cluster.delete("Service", "web");
        if cluster.get("Service", "web").is_some() {
            // Fails if the controller was faster.
            drop(cluster.merge("Service", "web", "someone", &json!({"metadata": {"finalizers": null}})));
        }
        wait_until_gone(cluster, "Service", "web");
        service(cluster, "web", "");
    };
    leave(&Departure { name: "again", act, end: End::Replaced });
}

#[test]
fn deletion_while_it_waits_for_an_address() {
    play("pend", "", |scene| {
        let cluster = scene.cluster;
        for crash in [Crash::Never, Crash::Before, Crash::AtOnce] {
            let controller = scene.start();
            service(cluster, "web", "");
            wait_for(cluster, ("Service", "web"), "waits", |web| {
                is_held(web) && !our_conditions(web).is_empty()
            });
            let controller = disturb(scene, controller, crash, |cluster| cluster.delete("Service", "web"));
            wait_until_gone(cluster, "Service", "web");
            assert!(controller.stop().success());
        }
    });
}

/// Restarts on the way in: whichever step a Service has reached, the next controller continues from it.
#[test]
fn arrival() {
    play("arr", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "arr", ADDRESS);
        let reached: [fn(&Value) -> bool; 3] = [|_| true, is_held, |web| !published(web).is_empty()];
        for step in reached {
            let controller = scene.start();
            service(cluster, "web", "");
            wait_for(cluster, ("Service", "web"), "has reached the step", step);
            scene.crash(controller);
            let controller = scene.start();
            assert_eq!(wait_for_addresses(cluster, "web"), [ADDRESS.parse::<std::net::IpAddr>().unwrap()]);
            cluster.delete("Service", "web");
            wait_until_gone(cluster, "Service", "web");
            assert!(controller.stop().success());
        }
    });
}

#[test]
fn there_and_back_again() {
    play("back", "", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "back", ADDRESS);
        let ours =
            json!({"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "externalName": null});
        for away in [
            json!({"type": "ClusterIP"}),
            json!({"type": "NodePort"}),
            json!({"type": "ExternalName", "externalName": "example.com"}),
        ] {
            service(cluster, "web", "");
            let controller = scene.start();
            wait_for_addresses(cluster, "web");
            retype(cluster, &away);
            wait_until_clean(cluster, "web");
            retype(cluster, &ours);
            wait_for_addresses(cluster, "web");
            // And again without a controller: the finalizer was never removed.
            scene.crash(controller);
            retype(cluster, &away);
            retype(cluster, &ours);
            assert!(published(&cluster.get("Service", "web").unwrap()).is_empty(), "the server cleared it");
            let controller = scene.start();
            wait_for_addresses(cluster, "web");
            cluster.delete("Service", "web");
            wait_until_gone(cluster, "Service", "web");
            assert!(controller.stop().success());
        }
    });
}

#[test]
fn services_without_a_class_are_taken_only_if_the_configuration_says_so() {
    play("less", "handleUnclassified: true\n", |scene| {
        let cluster = scene.cluster;
        pool(cluster, "less", "203.0.113.31-203.0.113.32");
        let bystanders = Bystanders::new(cluster);
        let _controller = scene.start();
        wait_for_addresses(cluster, "classless");
        let classless = cluster.get("Service", "classless").unwrap();
        assert!(is_held(&classless), "{classless}");
        assert!(classless["spec"]["loadBalancerClass"].is_null(), "{classless}");
        for name in ["theirs", "internal"] {
            assert!(is_clean(&cluster.get("Service", name).unwrap()));
        }
        cluster.delete("Service", "classless");
        wait_until_gone(cluster, "Service", "classless");
        drop(bystanders);
    });
}

/// Changes the type as users do: the class is removed with the type.
fn retype(cluster: &Cluster, spec: &Value) {
    cluster.merge("Service", "web", "someone", &json!({"spec": spec})).unwrap();
}

/// Runs a departure once for each time at which the controller may die.
fn leave(departure: &Departure) {
    play(departure.name, "", |scene| {
        let bystanders = Bystanders::new(scene.cluster);
        pool(scene.cluster, departure.name, ADDRESS);
        for crash in CRASHES {
            let controller = scene.start();
            service(scene.cluster, "web", "");
            wait_for_addresses(scene.cluster, "web");
            let uid = uid(scene.cluster);
            let controller = disturb(scene, controller, crash, departure.act);
            expect_end(scene.cluster, departure.end, &uid);
            expect_address_is_free(scene.cluster);
            assert!(controller.stop().success(), "{crash:?}");
        }
        bystanders.expect_untouched();
    });
}

/// Acts while the controller dies at that time. Returns the controller that runs afterwards.
fn disturb<'s>(
    scene: &'s Scene<'_>,
    controller: Sheave<'s>,
    crash: Crash,
    act: impl FnOnce(&Cluster),
) -> Sheave<'s> {
    let cluster = scene.cluster;
    match crash {
        Crash::Never => {
            act(cluster);
            return controller;
        }
        Crash::Before => {
            scene.crash(controller);
            act(cluster);
            return scene.start();
        }
        Crash::AtOnce => act(cluster),
        Crash::WhenStatusIsClean => {
            act(cluster);
            wait_until(cluster, |web| our_conditions(web).is_empty());
        }
        Crash::WhenReleased => {
            act(cluster);
            wait_until(cluster, |web| !is_held(web));
        }
    }
    scene.crash(controller);
    scene.start()
}

/// Waits until the Service matches, is gone, or is a new one that is published.
fn wait_until(cluster: &Cluster, is_so: impl Fn(&Value) -> bool) {
    eventually_within(patience(30.0), "the step is reached", || match cluster.get("Service", "web") {
        Some(web) if !is_so(&web) && published(&web).is_empty() => Err(web.to_string()),
        _ => Ok(()),
    });
}

fn uid(cluster: &Cluster) -> Value {
    cluster.get("Service", "web").unwrap()["metadata"]["uid"].clone()
}

fn expect_end(cluster: &Cluster, end: End, uid_before: &Value) {
    match end {
        End::Gone => wait_until_gone(cluster, "Service", "web"),
        End::Stays => {
            let web = wait_until_clean(cluster, "web");
            assert_eq!(web["metadata"]["uid"], *uid_before);
            if web["spec"]["type"] == "LoadBalancer" {
                let theirs = &web["status"]["loadBalancer"]["ingress"][0]["ip"];
                assert_eq!(theirs, "198.51.100.9", "what the other class published is not ours to clear");
            }
            cluster.delete("Service", "web");
            wait_until_gone(cluster, "Service", "web");
        }
        End::Detained => {
            let web = wait_for(cluster, ("Service", "web"), "is let go by us", |web| !is_held(web));
            assert!(has_finalizer(&web, FOREIGN_FINALIZER), "{web}");
            assert!(is_clean(&web), "{web}");
        }
        End::Replaced => {
            wait_for_addresses(cluster, "web");
            assert_ne!(uid(cluster), *uid_before);
            cluster.delete("Service", "web");
            wait_until_gone(cluster, "Service", "web");
        }
    }
}

/// Checks that the next Service gets the address. Removes the rest of the first one as well.
fn expect_address_is_free(cluster: &Cluster) {
    service(cluster, "next", "");
    assert_eq!(wait_for_addresses(cluster, "next"), [ADDRESS.parse::<std::net::IpAddr>().unwrap()]);
    cluster.delete("Service", "next");
    wait_until_gone(cluster, "Service", "next");
    if cluster.get("Service", "web").is_some() {
        cluster.merge("Service", "web", "auditor", &json!({"metadata": {"finalizers": null}})).unwrap();
        wait_until_gone(cluster, "Service", "web");
    }
}
