//! Long-lived clients that notice disruptions.

use std::net::SocketAddr;

use crate::support::load::Load;
use crate::support::manifest::{App, at};
use crate::support::tcp::{self, Conversation, Server};
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

/// The Service that they use, on TCP and UDP.
pub(crate) fn web(family: Family) -> SocketAddr {
    at(family.vip(0), 80)
}

/// Another Service, with session affinity.
pub(crate) fn sticky(family: Family) -> SocketAddr {
    at(family.vip(1), 80)
}

/// Both, on every endpoint of the world.
pub(crate) fn apps(world: &World, family: Family) -> [App; 2] {
    let endpoints = || (0..).zip(&world.backends).map(|(index, _)| family.backend(index));
    let app =
        |name, vip| App::new(name, &[family.vip(vip)]).tcp(80, 9000).udp(80, 9000).all_ready(endpoints());
    [app("web", 0), app("sticky", 1).affinity(600)]
}

/// Servers on every backend.
pub(crate) fn servers(world: &World, family: Family) -> (Vec<Server>, Vec<udp::Server>) {
    (Server::on_every_backend(world, family, 9000), udp::Server::on_every_backend(world, family, 9000))
}

/// Opens connections until stopped, none of which may fail.
pub(crate) fn new_connections(world: &World, family: Family) -> Load {
    Load::start(&world.client, 2, move |_| tcp::ask(web(family)).map(drop))
}

/// Long connections, UDP flows and clients with affinity.
pub(crate) struct Clients<'w> {
    world: &'w World,
    family: Family,
    talks: Vec<Conversation>,
    flows: Vec<(udp::Client, String, SocketAddr)>,
    sticky: Vec<(u16, String)>,
}

impl<'w> Clients<'w> {
    /// Opens some of each.
    pub(crate) fn open(world: &'w World, family: Family) -> Self {
        let talk = |_| world.client.run(|| Conversation::open(web(family))).expect("a connection");
        let flow = |number| {
            let client = udp::Client::new(&world.client, family.client(number), web(family));
            let answer = client.ask().expect("an answer");
            (client, answer.name, answer.peer)
        };
        let sticky = (0..CLIENTS).map(|number| (number, ask_sticky(world, family, number))).collect();
        let talks = (0..8).map(talk).collect();
        Self { world, family, talks, flows: (0..CLIENTS).map(flow).collect(), sticky }
    }

    /// Checks that all continue as before, with the same endpoint.
    pub(crate) fn expect_undisturbed(&mut self) {
        self.expect_open_undisturbed();
        for (number, name) in &self.sticky {
            assert_eq!(ask_sticky(self.world, self.family, *number), *name, "with its endpoint");
        }
    }

    /// Checks that everything open continues as before, all at once.
    pub(crate) fn expect_open_undisturbed(&mut self) {
        std::thread::scope(|scope| {
            for talk in &mut self.talks {
                scope.spawn(|| talk.say("still there?").expect("the connection goes on"));
            }
            for (client, name, peer) in &self.flows {
                scope.spawn(move || {
                    let answer = client.ask().expect("the flow goes on");
                    assert_eq!((&answer.name, answer.peer), (name, *peer), "with its endpoint and its port");
                });
            }
        });
    }
}

fn ask_sticky(world: &World, family: Family, number: u16) -> String {
    world.client.run(|| tcp::ask_from(family.client(number), sticky(family))).expect("an answer").name
}
