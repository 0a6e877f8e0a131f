//! Tests of a controller that dies between any two of its writes, or whose server dies before it answers. Only the test API
//! server can fail at a given write. Elsewhere, the controller dies at visible steps (`departures`).

use serde_json::json;

use crate::scene::{CONTROLLER, Scene, is_clean, play};
use crate::stage::{Sheave, pool, published, service, wait_for_addresses, wait_until_gone};
use crate::support::apiserver::ApiServer;
use crate::support::apiserver::faults::{Fault, Matching};
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};

const ADDRESS: &str = "203.0.113.40";
/// More writes than the test has.
const ALL: usize = 1000;

#[test]
fn a_crash_after_any_write_is_made_good() {
    play("crash", "", |scene| {
        let Some(server) = scene.cluster.test_server() else { return not_here() };
        pool(scene.cluster, "crash", ADDRESS);
        let mut writes = 1;
        while tell_story(scene, server, writes) == Outcome::Crashed {
            writes += 1;
            assert!(writes < ALL, "each life of the controller brings the story nearer to its end");
        }
        assert!(writes > 6, "the story has more writes than {writes}");
    });
}

#[test]
fn answers_that_are_lost_are_found_again() {
    play("lost", "", |scene| {
        let Some(server) = scene.cluster.test_server() else { return not_here() };
        pool(scene.cluster, "lost", ADDRESS);
        let _controller = scene.start();
        for resource in ["services", "services/status"] {
            let lose = || {
                server.faults().plan(Matching::new("patch", resource).by(CONTROLLER), 1, Fault::LoseAnswer);
            };
            lose();
            service(scene.cluster, "web", "");
            wait_for_addresses(scene.cluster, "web");
            lose();
            scene.cluster.delete("Service", "web");
            wait_until_gone(scene.cluster, "Service", "web");
        }
        assert_eq!(server.faults().outstanding(), 0);
    });
}

/// Whether the controller had to be restarted.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Crashed,
    Undisturbed,
}

/// A Service is created, changes its type away and back, and is deleted. After this many writes to Services and pools, the
/// answer is lost, no further writes succeed, and the controller dies.
fn tell_story(scene: &Scene<'_>, server: &ApiServer, writes: usize) -> Outcome {
    let cluster = scene.cluster;
    let mut life = Life { controller: Some(scene.start()), scene, server, outcome: Outcome::Undisturbed };
    let any = Matching::new("patch", "*").by(CONTROLLER);
    server.faults().plan(any.clone(), writes - 1, Fault::Pass);
    server.faults().plan(any.clone(), 1, Fault::LoseAnswer);
    server.faults().plan(any, ALL, Fault::Swallow);
    service(cluster, "web", "");
    life.wait("it is published", || is_published(cluster, "web"));
    let away = json!({"spec": {"type": "ClusterIP"}});
    cluster.merge("Service", "web", "someone", &away).unwrap();
    life.wait("it carries nothing of ours", || {
        cluster.get("Service", "web").is_some_and(|web| is_clean(&web))
    });
    let back = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4"}});
    cluster.merge("Service", "web", "someone", &back).unwrap();
    life.wait("it is published again", || is_published(cluster, "web"));
    cluster.delete("Service", "web");
    life.wait("it is gone", || cluster.get("Service", "web").is_none());
    service(cluster, "next", "");
    life.wait("the next one is published", || is_published(cluster, "next"));
    cluster.delete("Service", "next");
    life.wait("the next one is gone", || cluster.get("Service", "next").is_none());
    let outcome = life.outcome;
    scene.crash(life.controller.take().expect("one runs at any time"));
    server.faults().clear();
    outcome
}

fn is_published(cluster: &Cluster, name: &str) -> bool {
    let service = cluster.get("Service", name).expect("nobody has deleted it");
    let addresses = published(&service);
    assert!(addresses.len() <= 1, "{service}");
    addresses.first().is_some_and(|ip| ip.to_string() == ADDRESS)
}

/// A sequence of controllers.
struct Life<'s> {
    controller: Option<Sheave<'s>>,
    scene: &'s Scene<'s>,
    server: &'s ApiServer,
    outcome: Outcome,
}

impl Life<'_> {
    /// Waits for a condition, and starts another controller if the current one reaches its fatal write.
    fn wait(&mut self, what: &str, is_so: impl Fn() -> bool) {
        eventually_within(patience(30.0), what, || {
            if is_so() {
                return Ok(());
            }
            let met = (1..=ALL).contains(&self.server.faults().outstanding());
            if met && self.outcome == Outcome::Undisturbed {
                self.outcome = Outcome::Crashed;
                self.scene.crash(self.controller.take().expect("one runs at any time"));
                self.server.faults().clear();
                self.controller = Some(self.scene.start());
            }
            Err("not yet")
        });
    }
}

/// Reports on stderr that these cases did not run.
pub(crate) fn not_here() {
    eprintln!("not run: only the test API server has this fault");
}
