//! Tests of idle connections: what keeps one open.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at};
use crate::support::patience::let_pass;
use crate::support::tcp::{self, Conversation};
use crate::support::world::{Family, World};

for_both_families!(keepalives_of_a_client_count_as_traffic_where_its_service_says_so);

fn keepalives_of_a_client_count_as_traffic_where_its_service_says_so(family: Family) {
    let world = World::new(1);
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let idle = |name, vip| {
        let app = App::new(name, &[family.vip(vip)]).tcp(80, 9000).ready(family.backend(0));
        app.annotation("sheave.dev/idle-timeout", "4s")
    };
    let kept = idle("kept", 0).annotation("sheave.dev/idle-keepalives", "true");
    let gateway = Gateway::start(&world, &[kept, idle("plain", 1)]);
    let open = |vip, keepalives: bool| {
        let stream = world.client.run(|| tcp::connect(at(family.vip(vip), 80))).unwrap();
        let every =
            TcpKeepalive::new().with_time(Duration::from_secs(1)).with_interval(Duration::from_secs(1));
        if keepalives {
            SockRef::from(&stream).set_tcp_keepalive(&every).unwrap();
        }
        let mut talk = Conversation::on(stream).unwrap();
        talk.say("first").unwrap();
        talk
    };
    let (mut kept, mut silent, mut plain) = (open(0, true), open(0, false), open(1, true));
    let_pass(Duration::from_secs(12));
    kept.say("still here").expect("its keepalives count");
    silent.ended().expect("it sent none");
    plain.ended().expect("they do not count for its Service");
    let ended = gateway.metric("sheave_tcp_closed_total", &["reason=\"idle\""]);
    assert!((ended - 2.0).abs() < 0.5, "{ended}");
}
