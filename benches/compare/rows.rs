//! What is compared: one row for each kind of load, with its unit and the series that ratios refer to.

use crate::entrant::{Entrant, Scene, Subject};
use crate::sample::Units;

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Streams as fast as they go.
    Bulk {
        /// At the same time.
        streams: usize,
    },
    /// Requests on connections that stay open.
    Request {
        /// Each with one request under way.
        connections: usize,
        /// Bytes of a request, and of its answer.
        size: usize,
    },
    /// Connect, one request, close.
    Connect {
        /// Connections under way.
        parallel: usize,
    },
    /// Connections that do nothing.
    Idle,
    /// Datagrams and their answers.
    Datagram {
        /// Client ports.
        flows: usize,
        /// Bytes of a datagram.
        size: usize,
    },
    /// Datagrams that leave the client in bundles which the kernel cuts up (UDP_SEGMENT), and their answers.
    Bundle {
        /// Client ports, each with one bundle under way.
        flows: usize,
        /// Bytes of a datagram.
        size: usize,
        /// Datagrams of a bundle.
        count: usize,
    },
    /// One connection after another, each to a frontend that nobody used before.
    NewFrontends,
    /// One connection after another, each from a client that was not there before.
    NewClients,
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// As it is written in the table and on the command line.
    pub(crate) name: &'static str,
    /// What is done.
    pub(crate) load: Load,
    /// More than one: Sheave runs alone, once in each scene.
    scenes: &'static [Scene],
}

/// Services of the large table.
pub(crate) const MANY_SERVICES: u32 = 30_000;
/// Services of the small one.
pub(crate) const FEW_SERVICES: u32 = 10;
/// Clients that an affinity record is kept for.
pub(crate) const RECORDS: u32 = 100_000;

const TABLES: &[Scene] = &[Scene::Services(FEW_SERVICES), Scene::Services(MANY_SERVICES)];
const AFFINITY: &[Scene] = &[Scene::Records(0), Scene::Records(RECORDS)];
const EDITS: &[Scene] = &[Scene::Usual, Scene::Swapping];

/// All rows, in the order of the table.
pub(crate) static ROWS: [Row; 14] = [
    Row::all("bulk-1", Load::Bulk { streams: 1 }),
    Row::all("bulk-4", Load::Bulk { streams: 4 }),
    Row::all("request-1b", Load::Request { connections: 64, size: 1 }),
    Row::all("request-1k", Load::Request { connections: 64, size: 1024 }),
    Row::all("request-64k", Load::Request { connections: 16, size: 65_536 }),
    Row::all("latency", Load::Request { connections: 1, size: 1024 }),
    Row::all("connect", Load::Connect { parallel: 32 }),
    Row::all("idle", Load::Idle),
    Row::all("udp-64", Load::Datagram { flows: 32, size: 64 }),
    Row::all("udp-1200", Load::Datagram { flows: 32, size: 1200 }),
    Row::all("udp-gso-1200", Load::Bundle { flows: 4, size: 1200, count: 40 }),
    Row { name: "frontends", load: Load::NewFrontends, scenes: TABLES },
    Row { name: "affinity", load: Load::NewClients, scenes: AFFINITY },
    Row { name: "swap", load: Load::Request { connections: 64, size: 1024 }, scenes: EDITS },
];

impl Row {
    const fn all(name: &'static str, load: Load) -> Self {
        Self { name, load, scenes: &[Scene::Usual] }
    }

    /// Whether Sheave is compared with itself.
    pub(crate) fn is_of_scenes(&self) -> bool {
        self.scenes.len() > 1
    }

    /// Who runs, in the order of the runs. Kernel paths have no workers, and one connection has no use for a second one.
    pub(crate) fn entrants(&self, subjects: &[Subject], workers: &[usize]) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        for subject in subjects.iter().copied().filter(|subject| self.suits(*subject)) {
            let counts = if subject.is_proxy() && self.scales() { workers } else { &workers[..1] };
            for workers in counts.iter().copied() {
                entrants.extend(self.scenes.iter().map(|scene| Entrant { subject, workers, scene: *scene }));
            }
        }
        entrants
    }

    /// Whom the ratios of `entrant` refer to: HAProxy, or nginx where HAProxy does not take part, with as many workers; or
    /// Sheave in its first scene.
    pub(crate) fn reference(&self, entrant: Entrant) -> Entrant {
        if self.is_of_scenes() {
            return Entrant { scene: self.scenes[0], ..entrant };
        }
        Entrant { subject: self.peer(), ..entrant }
    }

    /// Whom ratios refer to, in a word.
    pub(crate) fn reference_name(&self) -> String {
        let named = |workers| Entrant { subject: Subject::Sheave, workers, scene: self.scenes[0] };
        if self.is_of_scenes() { self.reference(named(1)).label() } else { self.peer().name().to_owned() }
    }

    /// The same row in its last scene, which is the one that the first is compared with.
    pub(crate) fn last_scene(&self) -> Scene {
        self.scenes[self.scenes.len() - 1]
    }

    fn peer(&self) -> Subject {
        if self.load.is_tcp() { Subject::Haproxy } else { Subject::Nginx }
    }

    fn suits(&self, subject: Subject) -> bool {
        match subject {
            Subject::Sheave => true,
            _ if self.is_of_scenes() => false,
            // HAProxy does not forward arbitrary datagrams.
            Subject::Haproxy => self.load.is_tcp(),
            // Without a proxy there is no process to weigh.
            Subject::Direct | Subject::Dnat => self.load != Load::Idle,
            Subject::Nginx => true,
        }
    }

    /// Whether more workers have something to share.
    pub(crate) fn scales(&self) -> bool {
        let one_after_another = matches!(
            self.load,
            Load::Bulk { streams: 1 } | Load::Request { connections: 1, .. } | Load::Idle
        );
        !self.is_of_scenes() && !one_after_another
    }
}

impl Load {
    /// Whether HAProxy can forward it.
    pub(crate) fn is_tcp(self) -> bool {
        !matches!(self, Self::Datagram { .. } | Self::Bundle { .. })
    }

    /// Whether its median latency is that of the path, not of a queue. Then all run on one core.
    pub(crate) fn is_one_at_a_time(self) -> bool {
        matches!(self, Self::Request { connections: 1, .. } | Self::NewFrontends | Self::NewClients)
    }

    /// In words.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Bulk { streams: 1 } => "1 stream, client to server".to_owned(),
            Self::Bulk { streams } => format!("{streams} streams, client to server"),
            Self::Request { connections: 1, size } => {
                format!(
                    "request and answer of {size} B, 1 connection, all on one core; added: beyond the routed path's p50"
                )
            }
            Self::Request { connections, size } => {
                format!("request and answer of {size} B, {connections} connections kept alive")
            }
            Self::Connect { parallel } => {
                format!("connect, request and answer of 64 B, close; {parallel} under way")
            }
            Self::Idle => "connections that did one exchange and stay".to_owned(),
            Self::Datagram { flows, size } => format!("datagram and answer of {size} B, {flows} flows"),
            Self::Bundle { flows, size, count } => {
                format!(
                    "bundles of {count} datagrams of {size} B and their answers (UDP_SEGMENT), {flows} flows"
                )
            }
            Self::NewFrontends => {
                "connect and first answer at frontends never used before, one at a time, all on one core"
                    .to_owned()
            }
            Self::NewClients => {
                "connect and first answer of clients new to ClientIP affinity, one at a time, all on one core"
                    .to_owned()
            }
        }
    }

    /// Its units.
    pub(crate) fn units(self) -> Units {
        const MICROSECONDS: f64 = 1e6;
        let each = |rate, cost| Units { rate, rate_scale: 1e-3, cost, cost_scale: MICROSECONDS };
        match self {
            Self::Bulk { .. } => {
                Units { rate: "Gbit/s", rate_scale: 8e-9, cost: "s/GiB", cost_scale: f64::from(1 << 30) }
            }
            Self::Request { .. } => each("k req/s", "us/req"),
            Self::Connect { .. } | Self::Idle | Self::NewFrontends | Self::NewClients => {
                each("k conn/s", "us/conn")
            }
            Self::Datagram { .. } | Self::Bundle { .. } => each("k dgram/s", "us/dgram"),
        }
    }
}
