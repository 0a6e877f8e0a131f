//! Test of `kubectl rollout restart` of the gateways in `deploy/base`: two Pods share the node for a while, and clients notice
//! nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;

use crate::kubelet::DaemonSet;
use crate::scene::play;
use crate::stage::{ENDPOINTS, Role, Stage, pool, service, wait_for_addresses};
use crate::support::cluster::Cluster;
use crate::support::patience::eventually;
use crate::support::tcp::{self, Conversation};
use crate::support::udp;

const ROLLOUTS: usize = 3;
const FLOWS: u8 = 20;
const STICKY: u8 = 20;

/// An address that is routed to the machine.
fn client(number: u8) -> IpAddr {
    [198, 51, 100, number].into()
}

/// Services of the case, with their addresses.
struct Services {
    web: SocketAddr,
    sticky: SocketAddr,
    dns: SocketAddr,
}

fn services(cluster: &Cluster, stage: &Stage<'_>) -> Services {
    pool(cluster, &format!("rollout-{}", cluster.namespace()), "203.0.113.240-203.0.113.242");
    service(cluster, "web", "");
    service(cluster, "sticky", "sessionAffinity: ClientIP");
    for name in ["web", "sticky"] {
        stage.slice(name, &[0, 1, 2]);
    }
    let endpoints: Vec<String> = ENDPOINTS
        .iter()
        .map(|ip| format!("{{addresses: [{ip}], nodeName: {}, conditions: {{ready: true}}}}", stage.node()))
        .collect();
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: dns}}\nspec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, \
         allocateLoadBalancerNodePorts: false, ports: [{{name: dns, port: 53, protocol: UDP, targetPort: 8053}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: dns-1, labels: {{kubernetes.io/service-name: dns}}}}\n\
         addressType: IPv4\nports: [{{name: dns, port: 8053, protocol: UDP}}]\nendpoints: [{}]\n",
        endpoints.join(", ")
    ));
    let at = |name, port| SocketAddr::new(wait_for_addresses(cluster, name)[0], port);
    Services { web: at("web", 80), sticky: at("sticky", 80), dns: at("dns", 53) }
}

#[test]
fn a_rollout_of_the_gateways_is_noticed_by_nobody() {
    play("rollout", "", |scene| {
        let stage = scene.stage;
        let _endpoints = stage.endpoints();
        let _names = ENDPOINTS.map(|ip| {
            udp::Server::who_am_i(&stage.host, SocketAddr::new(ip.into(), 8053), &format!("endpoint-{ip}"))
        });
        let _controller = scene.start();
        stage.gateway_is(true, None);
        let services = services(scene.cluster, stage);
        let home = stage.home(Role::Gateway, scene.road, "");
        let mut gateways = DaemonSet::start(stage, &home);
        for served in [services.web, services.sticky] {
            stage.wait_until_served(served.ip(), served.port());
        }
        let before = status(scene.cluster);
        roll_beside_clients(stage, &services, &mut gateways);
        assert_eq!(status(scene.cluster), before, "a rollout costs no write of a Service");
    });
}

#[test]
fn a_rollout_that_is_undone_is_noticed_by_nobody() {
    play("undone", "", |scene| {
        let stage = scene.stage;
        let _endpoints = stage.endpoints();
        let _controller = scene.start();
        stage.gateway_is(true, None);
        pool(scene.cluster, &format!("undone-{}", scene.cluster.namespace()), "203.0.113.243");
        service(scene.cluster, "web", "");
        stage.slice("web", &[0, 1, 2]);
        let home = stage.home(Role::Gateway, scene.road, "");
        let mut gateways = DaemonSet::start(stage, &home);
        let web = SocketAddr::new(wait_for_addresses(scene.cluster, "web")[0], 80);
        stage.wait_until_served(web.ip(), web.port());
        beside_clients(stage, web, || {
            for _ in 0..ROLLOUTS {
                let ended = gateways.roll_in_vain().sheave.finish();
                assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
            }
        });
    });
}

fn status(cluster: &Cluster) -> Vec<Value> {
    let of = |name| cluster.get("Service", name).expect("it is there");
    ["web", "sticky", "dns"].map(|name| of(name)["status"]["loadBalancer"].clone()).into()
}

fn roll_beside_clients(stage: &Stage<'_>, services: &Services, gateways: &mut DaemonSet<'_>) {
    let flow = |number| {
        let client = udp::Client::new(&stage.host, client(number), services.dns);
        let first = eventually("the first answer", || client.ask());
        (client, first)
    };
    let flows: Vec<_> = (1..=FLOWS).map(flow).collect();
    let ask_sticky = |number| stage.host.run(|| tcp::ask_from(client(number), services.sticky)).unwrap().name;
    let stuck: Vec<_> = (1..=STICKY).map(|number| (number, ask_sticky(number))).collect();
    beside_clients(stage, services.web, || {
        for _ in 0..ROLLOUTS {
            roll_once(stage, services, gateways);
            for (client, first) in &flows {
                let answer = client.ask().expect("the flow goes on");
                assert_eq!((&answer.name, answer.peer), (&first.name, first.peer), "where it went");
            }
            for (number, name) in &stuck {
                assert_eq!(ask_sticky(*number), *name, "affinity is kept");
            }
        }
    });
}

/// Opens connections all the time until `during` returns. None may fail.
fn beside_clients(stage: &Stage<'_>, web: SocketAddr, during: impl FnOnce()) {
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let ask = || {
            stage.host.run(|| {
                while !over.load(Ordering::Relaxed) {
                    tcp::ask(web).expect("a new connection is served");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        let clients = [(); 2].map(|()| scope.spawn(ask));
        let during = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no client fails");
        }
        during.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(asked.into_inner() > ROLLOUTS);
}

fn roll_once(stage: &Stage<'_>, services: &Services, gateways: &mut DaemonSet<'_>) {
    let mut talk = stage.host.run(|| Conversation::open(services.web)).unwrap();
    let former = gateways.roll();
    talk.say("still there?").expect("an open connection stays with the former Pod");
    drop(talk);
    let ended = former.sheave.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
}
