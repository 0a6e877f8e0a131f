//! Tests of the condition that reports which gateways announce a Service's addresses: its state after their reports, and how
//! rarely it is written.

use serde_json::{Value, json};

use crate::reporter::Reporter;
use crate::scene::{CONTROLLER, Scene, is_clean, play, wait_for};
use crate::stage::{REST, Role, condition, pool, service, wait_for_addresses, wait_for_condition};
use crate::support::cluster::Cluster;
use crate::support::patience::let_pass;

const ANNOUNCED: &str = "sheave.dev/Announced";
const WEB: (&str, &str) = ("Service", "web");

/// Two gateways whose reports contain the given announcements.
struct Gateways([Reporter; 2]);

impl Gateways {
    /// Starts without announcements.
    fn start(scene: &Scene<'_>) -> Self {
        let gateways = Self([Reporter::start(scene.stage), Reporter::start(scene.stage)]);
        gateways.announce([None, None]);
        for (name, reporter) in ["one", "two"].into_iter().zip(&gateways.0) {
            scene.stage.gateway_of_name(name, true, reporter.port);
        }
        gateways
    }

    /// Sets the addresses that `gw-1` and `gw-2` announce.
    fn announce(&self, addresses: [Option<&[&str]>; 2]) {
        for ((node, reporter), addresses) in ["gw-1", "gw-2"].into_iter().zip(&self.0).zip(addresses) {
            let mut report = json!({"node": node, "generation": 1});
            if let Some(addresses) = addresses {
                report["announced"] = json!(addresses);
            }
            reporter.report(report);
        }
    }

    fn wait_until_heard(&self) {
        self.0.iter().for_each(Reporter::wait_until_heard);
    }

    fn leave(&self, scene: &Scene<'_>) {
        for (name, reporter) in ["one", "two"].into_iter().zip(&self.0) {
            scene.stage.gateway_of_name(name, false, reporter.port);
        }
    }
}

/// Waits until the condition has this reason, and a message with this text.
fn wait_for_announced(cluster: &Cluster, reason: &str, part: &str) {
    wait_for(cluster, WEB, &format!("is {reason}: {part}"), |web| {
        condition(web, ANNOUNCED).is_some_and(|(status, now, message)| {
            (status == "True") == (reason == "Announced") && now == reason && message.contains(part)
        })
    });
}

/// Number of the controller's writes to the status of `web`, where they are recorded.
fn writes(cluster: &Cluster) -> Option<usize> {
    let writes = cluster.test_server()?.writes();
    let of_web = writes.iter().filter(|it| it.user == CONTROLLER && it.name.as_deref() == Some("web"));
    Some(of_web.count())
}

fn revision(cluster: &Cluster) -> Value {
    cluster.get("Service", "web").expect("the Service is there")["metadata"]["resourceVersion"].clone()
}

#[test]
fn an_address_that_moves_is_one_write() {
    play("moves", "", |scene| {
        let cluster = scene.cluster;
        let gateways = Gateways::start(scene);
        gateways.announce([Some(&["203.0.113.110"]), Some(&[])]);
        pool(cluster, "moves", "203.0.113.110");
        let controller = scene.start();
        service(cluster, "web", "");
        wait_for_addresses(cluster, "web");
        wait_for_announced(cluster, "Announced", "Gateways announce 203.0.113.110 on gw-1.");
        wait_for_condition(cluster, WEB, "sheave.dev/Programmed", "True");

        let (before, revision_before) = (writes(cluster), revision(cluster));
        gateways.announce([Some(&[]), Some(&["203.0.113.110"])]);
        gateways.wait_until_heard();
        assert_eq!(revision(cluster), revision_before, "it may move back");
        wait_for_announced(cluster, "Announced", "Gateways announce 203.0.113.110 on gw-2.");
        assert_eq!(writes(cluster), before.map(|count| count + 1));

        let revision_before = revision(cluster);
        let_pass(REST);
        assert_eq!(revision(cluster), revision_before, "at rest nothing is written");
        assert!(controller.stop().success());
        let controller = scene.start();
        gateways.wait_until_heard();
        assert_eq!(revision(cluster), revision_before, "the new leader has nothing to add");

        scene.crash(controller);
        let administrator = scene.stage.home(Role::Run, scene.road, "");
        scene.stage.command(&administrator, "uninstall", &[]).expect_success();
        let web = cluster.get("Service", "web").expect("the Service is there");
        assert!(is_clean(&web), "{web}");
        gateways.leave(scene);
    });
}

#[test]
fn what_none_or_two_gateways_announce_is_called_so() {
    play("twice", "", |scene| {
        let cluster = scene.cluster;
        let gateways = Gateways::start(scene);
        let ours: Option<&[&str]> = Some(&["203.0.113.120"]);
        gateways.announce([ours, Some(&[])]);
        pool(cluster, "twice", "203.0.113.120");
        let _controller = scene.start();
        service(cluster, "web", "");
        wait_for_announced(cluster, "Announced", "203.0.113.120 on gw-1");

        gateways.announce([Some(&[]), Some(&["203.0.113.121"])]);
        wait_for_announced(cluster, "NotAnnounced", "No gateway announces 203.0.113.120.");
        gateways.announce([ours, ours]);
        wait_for_announced(cluster, "AnnouncedTwice", "203.0.113.120 by gw-1 and gw-2");
        let revision_before = revision(cluster);
        gateways.wait_until_heard();
        assert_eq!(revision(cluster), revision_before, "while it lasts nothing is written");
        gateways.announce([Some(&[]), ours]);
        wait_for_announced(cluster, "Announced", "203.0.113.120 on gw-2");

        let before = writes(cluster);
        gateways.announce([None, None]);
        let web = wait_for(cluster, WEB, "has no such condition", |web| condition(web, ANNOUNCED).is_none());
        assert_eq!(writes(cluster), before.map(|count| count + 1));
        assert_eq!(condition(&web, "sheave.dev/Programmed").map(|it| it.0).as_deref(), Some("True"));
        gateways.wait_until_heard();
        assert_eq!(revision(cluster), web["metadata"]["resourceVersion"], "at rest nothing is written");
        gateways.leave(scene);
    });
}

#[test]
fn the_addresses_of_gateway_nodes_need_no_announcing() {
    play("nodes-own", "", |scene| {
        let cluster = scene.cluster;
        let gateways = Gateways::start(scene);
        gateways.announce([Some(&["203.0.113.130"]), Some(&[])]);
        cluster.apply(&format!(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: nodes-own}}\nspec: {{fromGatewayNodes: \
             true, priority: 1, namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}}}\n",
            cluster.namespace()
        ));
        let _controller = scene.start();
        service(cluster, "web", "");
        wait_for_condition(cluster, WEB, "sheave.dev/FromGatewayNodes", "True");
        gateways.wait_until_heard();
        let web = cluster.get("Service", "web").expect("the Service is there");
        assert_eq!(condition(&web, ANNOUNCED), None, "{web}");
        gateways.leave(scene);
    });
}
