//! Tests of frontends that close and reopen while clients continue: the remains of old ones do not interfere.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::gateway::Gateway;
use crate::support::load::Load;
use crate::support::manifest::{App, at};
use crate::support::patience::{eventually, eventually_within, patience};
use crate::support::tcp::{self, Conversation};
use crate::support::world::{CLIENTS, Family, World};
use crate::support::{sockets, udp};

for_both_families!(
    a_service_made_again_serves_while_an_old_client_still_sends,
    a_frontend_that_reopens_under_load_serves_everyone,
);

fn vip(family: Family) -> SocketAddr {
    at(family.vip(0), 53)
}

fn dns(family: Family) -> App {
    App::new("dns", &[family.vip(0)]).udp(53, 5300)
}

fn datagram_client(world: &World, family: Family) -> udp::Client {
    udp::Client::new(&world.client, family.client(0), vip(family))
}

/// Removes the Service's endpoints, and waits until the frontend has closed.
fn retire(world: &World, gateway: &Gateway<'_>, family: Family) {
    gateway.apply(&[dns(family)]);
    eventually("the frontend has closed", || match sockets::udp_bound(&world.gateway, vip(family)) {
        bound if bound.is_empty() => Ok(()),
        bound => Err(format!("{bound:?}")),
    });
}

fn a_service_made_again_serves_while_an_old_client_still_sends(family: Family) {
    let world = World::new(1);
    let _servers = udp::Server::on_every_backend(&world, family, 5300);
    let gateway = Gateway::start(&world, &[dns(family).ready(family.backend(0))]);
    let old = datagram_client(&world, family);
    old.ask().unwrap();
    let sending = Load::start(&world.client, 1, move |_| {
        // Answers and errors do not matter here: the client never falls silent.
        drop(old.send(b"?"));
        Ok::<(), Infallible>(())
    });
    sending.wait_for(10);
    retire(&world, &gateway, family);
    sending.wait_for(10);
    gateway.apply(&[]);
    sending.wait_for(10);
    gateway.apply(&[dns(family).ready(family.backend(0))]);
    let serve = |client: u16| {
        udp::Client::new(&world.client, family.client(client), vip(family)).ask_briefly().map(drop)
    };
    eventually_within(patience(5.0), "new clients are served", || (0..CLIENTS).try_for_each(serve));
    // Both workers have their sockets, and each new flow reaches either.
    for _ in 0..5 {
        (0..CLIENTS).try_for_each(serve).unwrap();
    }
    assert_eq!(gateway.problems(), Vec::<String>::new());
    sending.expect_no_failure();
}

/// Threads of load, each of which is a client with its own address.
const THREADS: u16 = CLIENTS;
/// How often the endpoints are removed and added.
const TOGGLES: u32 = 25;

/// Counter of phases: odd while the frontend is open throughout, otherwise even.
#[derive(Default)]
struct Phase(AtomicU64);

impl Phase {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn change(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Allows `request` to fail, unless the frontend was open from its start to its end.
    fn judge<T, E>(&self, request: impl FnOnce() -> Result<T, E>) -> Result<(), E> {
        let before = self.now();
        match request() {
            Err(error) if before % 2 == 1 && before == self.now() => Err(error),
            _ => Ok(()),
        }
    }
}

fn a_frontend_that_reopens_under_load_serves_everyone(family: Family) {
    let (world, web) = (World::new(1), App::new("web", &[family.vip(0)]).tcp(80, 9000));
    let (open, vip) = (web.clone().ready(family.backend(0)), at(family.vip(0), 80));
    let _servers = tcp::Server::on_every_backend(&world, family, 9000);
    let gateway = Gateway::start(&world, std::slice::from_ref(&web));
    let phase = Arc::new(Phase::default());
    let seen = Arc::clone(&phase);
    let load = Load::start_restless(&world.client, usize::from(THREADS), move |thread| {
        let client = family.client(u16::try_from(thread).expect("few threads"));
        seen.judge(|| tcp::greet_from(client, vip))
    });
    let mut talks = Vec::new();
    for toggle in 0..TOGGLES {
        load.wait_for(20);
        gateway.apply(std::slice::from_ref(&open));
        phase.change();
        let bound = sockets::listening(&world.gateway, vip);
        talks.push(world.client.run(|| Conversation::open(vip)).unwrap());
        // The last wait takes seconds, so that late reactions of a worker would show.
        load.wait_for(if toggle + 1 < TOGGLES { 200 } else { 4000 });
        assert_eq!(sockets::listening(&world.gateway, vip), bound, "nobody bound it again");
        talks.iter_mut().try_for_each(|talk: &mut Conversation| talk.say("still there?")).unwrap();
        if toggle + 1 < TOGGLES {
            phase.change();
            gateway.apply(std::slice::from_ref(&web));
        }
    }
    load.expect_no_failure();
    assert!(!gateway.log().contains("broken"), "{}", gateway.warnings());
}
