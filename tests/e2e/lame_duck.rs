//! Tests of the time between SIGTERM and the drain: load balancers stop sending traffic, and clients that come
//! nevertheless are served.

use std::net::IpAddr;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at, vip};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    a_lame_duck_is_not_ready_and_serves_on,
    a_lame_duck_drains_when_its_time_is_over,
    an_interrupted_gateway_drains_at_once,
);

/// A lame duck time longer than the case.
fn long() -> Settings {
    Settings { lame_duck: "1h", ..Settings::default() }
}

fn named(name: &str, vips: &[IpAddr]) -> App {
    App::new(name, vips).tcp(80, 9000)
}

fn apps(family: Family) -> [App; 2] {
    let web = named("web", &[family.vip(0), family.vip(1)]).ready(family.backend(0));
    [web, App::new("dns", &[family.vip(0)]).udp(53, 5300).ready(family.backend(0))]
}

fn a_lame_duck_is_not_ready_and_serves_on(family: Family) {
    let world = World::new(2);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let _resolvers = udp::Server::on_every_backend(&world, family, 5300);
    let mut gateway = Gateway::start_with(&world, &apps(family), &long());
    gateway.terminate();
    gateway.wait_for_status("lameDuck");
    let readiness = gateway.ask("/readyz");
    assert_eq!((readiness.status, readiness.body.as_str()), (503, "not ready: about to drain\n"));
    assert_eq!(gateway.ask("/livez").status, 200);
    world.client.run(|| tcp::ask(vip(family))).unwrap();
    udp::Client::new(&world.client, family.client(0), at(family.vip(0), 53)).ask().unwrap();
    // Changes take effect meanwhile, but clients that only know a former address of the Service are served there, too.
    let [web, dns] = apps(family);
    let elsewhere = |app: App| app.without_endpoints().ready(family.backend(1));
    gateway.apply(&[elsewhere(web), dns.clone()]);
    gateway.apply(&[elsewhere(named("web", &[family.vip(0)])), dns.clone()]);
    for vip in [0, 1] {
        assert_eq!(world.client.run(|| tcp::ask(at(family.vip(vip), 80))).unwrap().name, "backend-1");
    }
    gateway.apply(&[dns]);
    tcp::until_refused(&world.client, vip(family));
    tcp::until_refused(&world.client, at(family.vip(1), 80));
    // A second signal ends the wait.
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0));
}

fn a_lame_duck_drains_when_its_time_is_over(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let settings = Settings { lame_duck: "1s", ..Settings::default() };
    let mut gateway = Gateway::start_with(&world, &apps(family)[..1], &settings);
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    gateway.terminate();
    gateway.wait_for_status("draining");
    tcp::until_refused(&world.client, vip(family));
    talk.say("still there?").unwrap();
    drop(talk);
    assert_eq!(gateway.wait().code(), Some(0));
}

fn an_interrupted_gateway_drains_at_once(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let mut gateway = Gateway::start_with(&world, &apps(family)[..1], &long());
    let mut talk = world.client.run(|| Conversation::open(vip(family))).unwrap();
    gateway.interrupt();
    gateway.wait_for_status("draining");
    tcp::until_refused(&world.client, vip(family));
    talk.say("still there?").unwrap();
    drop(talk);
    assert_eq!(gateway.wait().code(), Some(0));
}
