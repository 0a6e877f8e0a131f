//! Tests of the link to an endpoint, which is cut and restored, and whose MTU changes.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::clients::{apps, servers, web};
use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, let_pass};
use crate::support::tcp::{self, Conversation};
use crate::support::udp;
use crate::support::world::{Family, World};

for_both_families!(
    what_is_open_outlives_a_cut_and_what_is_new_is_served_at_its_end,
    streams_and_datagrams_follow_the_length_of_packets,
);

/// Longer than a connect timeout, so that clients do fail.
const CUT: Duration = Duration::from_secs(3);

fn what_is_open_outlives_a_cut_and_what_is_new_is_served_at_its_end(family: Family) {
    let world = World::new(1);
    let _servers = servers(&world, family);
    let gateway = Gateway::start(&world, &apps(&world, family));
    let mut talk = world.client.run(|| Conversation::open(web(family))).unwrap();
    let flow = udp::Client::new(&world.client, family.client(1), web(family));
    let peer = flow.ask().unwrap().peer;
    world.cut(0);
    let saying = std::thread::spawn(move || talk.say("still there?"));
    let refused = world.client.run(|| tcp::ask(web(family))).expect_err("nobody answers");
    assert_eq!(refused.kind(), ErrorKind::ConnectionReset, "it is told after the connect timeout");
    let_pass(CUT);
    world.mend(0);
    eventually("new connections are served", || world.client.run(|| tcp::ask(web(family))));
    saying.join().unwrap().expect("what was said during the cut arrives");
    let answer = eventually("the flow goes on", || flow.ask_briefly());
    assert_eq!(answer.peer, peer, "by the same port");
    assert_eq!(gateway.ask("/readyz").status, 200);
}

fn streams_and_datagrams_follow_the_length_of_packets(family: Family) {
    let world = World::new(1);
    let _tcp = tcp::Server::on_every_backend(&world, family, 9000);
    let _udp = udp::Server::echo(world.backend(0), at(family.backend(0), 9000));
    let app = App::new("web", &[family.vip(0)]).tcp(80, 9000).udp(80, 9000).ready(family.backend(0));
    let gateway = Gateway::start(&world, &[app]);
    let flow = udp::Client::new(&world.client, family.client(1), web(family));
    let mut talk = world.client.run(|| Conversation::open(web(family))).unwrap();
    let (over, echoed) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        scope.spawn(|| {
            let text = "long ".repeat(50_000);
            while !over.load(Ordering::Relaxed) {
                talk.say(&text).expect("the stream goes on");
                echoed.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The smallest MTU that IPv6 allows (RFC 8200, section 5), and that of data centers.
        for mtu in [1500, 1280, 9000, 1500, 1280, 1500] {
            world.set_mtu(0, mtu);
            [1, 1_200, 9_000, 60_000].into_iter().for_each(|size| expect_echoes(&flow, size, 1));
            // Sent so closely that they are forwarded as one bundle, whose datagrams may be too long for the path.
            expect_echoes(&flow, 1_400, 20);
            let before = echoed.load(Ordering::Relaxed);
            eventually("the stream goes on", || match echoed.load(Ordering::Relaxed) - before {
                0..10 => Err("it stands still"),
                _ => Ok(()),
            });
        }
    });
    assert_eq!(gateway.metric("sheave_udp_flows_total", &[]), 1.0, "the flow stays");
    assert_eq!(gateway.warnings(), "");
}

/// Waits for this many echoes. Fragments may be lost while the MTU changes or next to a stream, and echoes may arrive late.
fn expect_echoes(flow: &udp::Client, size: usize, count: usize) {
    let datagram = vec![7; size];
    eventually(&format!("{count} datagrams of {size} bytes are answered"), || {
        (0..count).try_for_each(|_| flow.send(&datagram))?;
        let echoes = std::iter::repeat_with(|| flow.receive_briefly());
        let of_size = echoes.filter(|echo| echo.as_ref().map_or(true, |echo| *echo == datagram));
        of_size.take(count).try_for_each(|echo| echo.map(drop))
    });
}

/// Also after a panic, which would otherwise wait for the stream.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
