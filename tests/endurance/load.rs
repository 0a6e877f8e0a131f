//! Clients: new connections at a steady rate, long-lived ones that exchange data, UDP flows that send queries, and clients with
//! affinity. Each kind is one thread, which continues after failures and counts them.

mod connections;
mod flows;
mod pace;
mod short_flows;
mod talks;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::scale::Amount;
use crate::support::host::Host;
use crate::support::patience::{eventually_within, patience};
use crate::timeline::Tally;

pub(crate) use connections::Connections;
pub(crate) use flows::Flows;
pub(crate) use short_flows::ShortFlows;
pub(crate) use talks::Talks;

/// State that a load and its owner share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    stop: Arc<AtomicBool>,
    /// Number of connections, flows or clients that have had a first answer.
    started: Arc<AtomicUsize>,
    /// Number of long-lived connections to replace with new ones.
    to_renew: Arc<AtomicUsize>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Thread of clients.
pub(crate) struct Client {
    shared: Shared,
    thread: JoinHandle<Tally>,
}

impl Client {
    /// Starts `clients` on the host.
    pub(crate) fn start(host: &Host, clients: impl FnOnce(&Shared) -> Tally + Send + 'static) -> Self {
        let shared = Shared::default();
        let own = shared.clone();
        Self { shared, thread: host.spawn(move || clients(&own)) }
    }

    /// Waits until this many have had a first answer.
    pub(crate) fn wait_for_start(&self, count: usize) {
        eventually_within(patience(30.0), "every client has had an answer", || {
            let started = self.shared.started.load(Ordering::SeqCst);
            if started >= count { Ok(()) } else { Err(format!("{started} of {count}")) }
        });
    }

    /// Replaces this many connections.
    pub(crate) fn renew(&self, count: usize) {
        self.shared.to_renew.fetch_add(count, Ordering::SeqCst);
    }

    /// Waits for requests under way, and returns the counts.
    pub(crate) fn stop(self) -> Tally {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("clients do not panic")
    }
}

/// Destinations and source addresses of the clients.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    /// Destination of new and long-lived connections.
    pub(crate) web: SocketAddr,
    /// Destination of flows, if there are any.
    pub(crate) dns: Option<SocketAddr>,
    /// Destination of connections with affinity, if there are any.
    pub(crate) sticky: Option<SocketAddr>,
    /// Addresses of the clients' host, for everything except connections with affinity.
    pub(crate) sources: Vec<IpAddr>,
    /// Addresses of the clients with affinity.
    pub(crate) sticky_sources: Vec<IpAddr>,
}

/// All four kinds of load.
pub(crate) struct Mixed {
    connections: Client,
    talks: Client,
    flows: Option<Client>,
    affinity: Option<Client>,
}

impl Mixed {
    /// Starts everything on the host, and waits until each client has had an answer.
    pub(crate) fn start(host: &Host, amount: Amount, targets: Targets) -> Self {
        let Targets { web, dns, sticky, sources, sticky_sources } = targets;
        let talks = Talks { sources: sources.clone(), to: web, count: amount.long_lived };
        let flows = dns.map(|to| Flows { sources: sources.clone(), to, count: amount.flows });
        let clients = sticky_sources.len();
        let affinity =
            sticky.map(|to| Connections { rate: clients as f64, sources: sticky_sources, to, sticky: true });
        let connections =
            Connections { sources, to: web, rate: amount.connections_per_second, sticky: false };
        let talks = Client::start(host, move |shared| talks.run(shared));
        let flows = flows.map(|flows| Client::start(host, move |shared| flows.run(shared)));
        let affinity = affinity.map(|it| Client::start(host, move |shared| it.run(shared)));
        talks.wait_for_start(amount.long_lived);
        flows.iter().for_each(|it| it.wait_for_start(amount.flows));
        affinity.iter().for_each(|it| it.wait_for_start(clients));
        let connections = Client::start(host, move |shared| connections.run(shared));
        connections.wait_for_start(1);
        Self { connections, talks, flows, affinity }
    }

    /// Replaces this many of the long-lived connections, oldest first.
    pub(crate) fn renew(&self, count: usize) {
        self.talks.renew(count);
    }

    /// Waits for requests under way, and returns the counts.
    pub(crate) fn stop(self) -> Vec<Tally> {
        let Self { connections, talks, flows, affinity } = self;
        [Some(connections), Some(talks), flows, affinity].into_iter().flatten().map(Client::stop).collect()
    }
}
