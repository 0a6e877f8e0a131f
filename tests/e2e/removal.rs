//! Tests of Services and endpoints that are removed while they have open connections and flows: new ones are refused at once,
//! connections of a Service have the time of a drain, those of an endpoint the time that the Service sets, and flows end.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::gateway::{Gateway, Settings};
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, let_pass};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    connections_of_a_removed_service_end_after_a_drain_and_flows_at_once,
    connections_of_a_service_that_comes_back_go_on,
    connections_of_a_removed_endpoint_end_where_its_service_says_so,
);

fn app(family: Family) -> App {
    App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(53, 5300).ready(family.backend(0))
}

fn web(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

fn dns(family: Family) -> SocketAddr {
    at(family.vip(0), 53)
}

fn servers(world: &World, family: Family) -> (Vec<tcp::Server>, Vec<udp::Server>) {
    let tcp = tcp::Server::on_every_backend(world, family, 9000);
    (tcp, udp::Server::on_every_backend(world, family, 5300))
}

fn drain(time: &'static str) -> Settings {
    Settings { drain: time, ..Settings::default() }
}

fn connections_of_a_removed_service_end_after_a_drain_and_flows_at_once(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let gateway = Gateway::start_with(&world, &[app(family)], &drain("4s"));
    let mut talk = world.client.run(|| Conversation::open(web(family))).unwrap();
    let flow = udp::Client::new(&world.client, family.client(0), dns(family));
    flow.ask().unwrap();
    gateway.apply(&[]);
    tcp::until_refused(&world.client, web(family));
    eventually("the flow has ended", || match flow.ask_briefly() {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        other => Err(format!("{other:?}")),
    });
    talk.say("still there?").unwrap();
    let stranger = udp::Client::new(&world.client, family.client(1), dns(family));
    assert_eq!(stranger.ask().unwrap_err().kind(), ErrorKind::ConnectionRefused);

    talk.ended().expect("FIN");
    let ended = gateway.metric("sheave_gateway_tcp_closed_total", &["reason=\"removed\""]);
    assert!((ended - 1.0).abs() < 0.5, "{ended}");
}

fn connections_of_a_service_that_comes_back_go_on(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let gateway = Gateway::start_with(&world, &[app(family)], &drain("2s"));
    let mut talk = world.client.run(|| Conversation::open(web(family))).unwrap();
    gateway.apply(&[]);
    tcp::until_refused(&world.client, web(family));
    gateway.apply(&[app(family)]);
    let_pass(Duration::from_secs(4));
    talk.say("still there?").unwrap();
}

fn connections_of_a_removed_endpoint_end_where_its_service_says_so(family: Family) {
    let world = World::new(2);
    let _servers = servers(&world, family);
    let ending = || {
        App::new("ending", &[family.vip(0)])
            .tcp(80, 9000)
            .annotation("sheave.dev/removed-endpoint-grace", "1s")
    };
    let plain = || App::new("plain", &[family.vip(1)]).tcp(80, 9000);
    let apps = |backend: u16| {
        let endpoint = family.backend(backend);
        [ending().ready(endpoint), plain().ready(endpoint)]
    };
    let gateway = Gateway::start(&world, &apps(0));
    let open = |vip| world.client.run(|| Conversation::open(at(family.vip(vip), 80))).unwrap();
    let (mut ending, mut plain) = (open(0), open(1));
    gateway.apply(&apps(1));
    ending.ended().expect("FIN");
    assert_eq!(open(0).with.name, "backend-1");
    plain.say("its Service lets it go on").unwrap();
    let ended = gateway.metric("sheave_tcp_closed_total", &["e2e/ending", "reason=\"removed\""]);
    assert!((ended - 1.0).abs() < 0.5, "{ended}");
}
