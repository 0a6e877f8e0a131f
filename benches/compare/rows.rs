//! Rows of the comparison: a kind of load, with its marks, unit and reference series.

use crate::entrant::{Entrant, Scene, Subject};
use crate::marks::{Mark, Rival};
use crate::sample::Metric::{
    IdleKib, MachineCost, OtherSlowdown, P50, P99, ProcessCost, Rate, Refused, Standstill,
};
use crate::sample::Units;

/// Kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Streams at full speed.
    Bulk {
        /// Concurrent streams.
        streams: usize,
    },
    /// Requests on connections that stay open.
    Request {
        /// Connections, each with one request under way.
        connections: usize,
        /// Bytes of a request and of its answer.
        size: usize,
    },
    /// Connect, one request, close.
    Connect {
        /// Connections under way.
        parallel: usize,
    },
    /// Connect, one request, close by the client, to a Service with several endpoints; requests to another Service beside it.
    CloseFirst,
    /// Idle connections.
    Idle,
    /// Very many connections that take turns in sending requests.
    Crowd {
        /// Bytes of a request and of its answer.
        size: usize,
    },
    /// Datagrams and their answers.
    Datagram {
        /// Client ports.
        flows: usize,
        /// Bytes of a datagram.
        size: usize,
    },
    /// Datagrams that leave the client in bundles that the kernel splits (UDP_SEGMENT), and their answers.
    Bundle {
        /// Client ports, each with one bundle under way.
        flows: usize,
        /// Bytes of a datagram.
        size: usize,
        /// Datagrams of a bundle.
        count: usize,
    },
    /// A Service with UDP flows is deleted; requests to another Service meanwhile.
    RemoveFlows,
    /// Single connections, each to a frontend that was not used before.
    NewFrontends,
    /// Single connections, each from a client that was not seen before.
    NewClients,
}

/// Row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// Name in the table and on the command line.
    pub(crate) name: &'static str,
    pub(crate) load: Load,
    /// More than one: Sheave is compared with itself in the first; a peer that takes part does so in the others.
    pub(crate) scenes: &'static [Scene],
    /// Marks of Sheave.
    pub(crate) marks: &'static [Mark],
    /// In an open loop: the arrival rate.
    pub(crate) open_loop: Option<ArrivalRate>,
    /// Factor of the usual length of runs.
    pub(crate) length: u32,
}

/// How much an open loop asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArrivalRate {
    /// So much of what the slowest entrant does in a closed loop.
    Share(f64),
    /// So many units a second.
    Fixed(f64),
}

/// Services of the large table.
pub(crate) const MANY_SERVICES: u32 = 30_000;
/// Services of the small table.
pub(crate) const FEW_SERVICES: u32 = 10;
/// Clients with an affinity record.
pub(crate) const RECORDS: u32 = 100_000;

const TABLES: &[Scene] = &[Scene::Services(FEW_SERVICES), Scene::Services(MANY_SERVICES)];
/// Open status pages of the row `watched`.
pub(crate) const PAGES: u32 = 10;

const AFFINITY: &[Scene] = &[Scene::Records(0), Scene::Records(RECORDS)];
const EDITS: &[Scene] = &[Scene::Usual, Scene::Swapping];
const WATCHERS: &[Scene] = &[Scene::Watched(0), Scene::Watched(PAGES)];

const LOCAL: &[Scene] = &[Scene::Local];
/// UDP flows of the Service that is deleted, where the limit of open files allows as many.
pub(crate) const MANY_FLOWS: u16 = 16_000;

const FLOWS: &[Scene] = &[Scene::Flows(1_000), Scene::Flows(MANY_FLOWS)];
const PORTS: &[Scene] = &[Scene::ReusedPorts, Scene::DefaultPorts];

/// Connections a second of the row in which clients close first: more than the ports of a dozen endpoints allow for long.
pub(crate) const CLOSE_FIRST_RATE: f64 = 6_000.0;

const HAPROXY: Rival = Rival::Subject(Subject::Haproxy);
const NGINX: Rival = Rival::Subject(Subject::Nginx);

/// Marks that several rows share.
const AHEAD_OF_NGINX: [Mark; 2] = [
    Mark::at_least("rate", Rate, NGINX, 1.0, None),
    Mark::at_most("CPU per unit", ProcessCost, NGINX, 1.0, None),
];
/// Marks of the kernel path.
const AS_FAST_AS_ROUTED: Mark =
    Mark::at_least("rate", Rate, Rival::Subject(Subject::Tracked), 0.95, Some(0.99))
        .of(Subject::SheaveKernel);
const AS_FAST_AS_KUBE_PROXY: Mark =
    Mark::at_least("rate", Rate, Rival::Subject(Subject::KubeProxy), 1.0, None).of(Subject::SheaveKernel);
const CHEAPER_THAN_THE_PROXY: Mark =
    Mark::at_most("CPU of the machine", MachineCost, Rival::Subject(Subject::Sheave), 0.6, None)
        .of(Subject::SheaveKernel);
const MUCH_FASTER_THAN_HAPROXY: Mark = Mark::at_least("rate", Rate, HAPROXY, 1.10, Some(1.25));
const TAIL_OF_TWO_WORKERS: Mark = Mark::tail_of_two_workers(HAPROXY, 1.0, 0.8);

/// Share of the slowest entrant's rate that an open loop offers: busy, and far enough from full that queues do not grow without end.
const BUSY: ArrivalRate = ArrivalRate::Share(0.6);
/// The same on connections so many that each request finds the caches cold.
const BUSY_AND_COLD: ArrivalRate = ArrivalRate::Share(0.4);

/// All rows, in the order of the runs. The last one is last because it leaves routing rules behind, and a namespace that ever
/// had any looks up every route in a slower way (`fib_has_custom_rules` in the kernel's net/ipv4/fib_rules.c).
pub(crate) static ROWS: [Row; 21] = [
    Row::new(
        "bulk-1",
        Load::Bulk { streams: 1 },
        &[
            Mark::at_most("CPU per GiB", ProcessCost, HAPROXY, 0.77, Some(0.65)),
            MUCH_FASTER_THAN_HAPROXY,
            AS_FAST_AS_ROUTED,
            AS_FAST_AS_KUBE_PROXY,
        ],
    ),
    Row::new(
        "bulk-4",
        Load::Bulk { streams: 4 },
        &[
            Mark::at_most("CPU per GiB", ProcessCost, HAPROXY, 0.48, Some(0.40)),
            MUCH_FASTER_THAN_HAPROXY,
            Mark::second_worker(),
        ],
    ),
    Row::new(
        "request-1b",
        Load::Request { connections: 64, size: 1 },
        &[AHEAD_OF_NGINX[0], AHEAD_OF_NGINX[1], TAIL_OF_TWO_WORKERS],
    ),
    Row::new(
        "request-1k",
        Load::Request { connections: 64, size: 1024 },
        &[
            Mark::at_most("CPU per request", ProcessCost, HAPROXY, 0.70, Some(0.60)),
            Mark::at_most("p99", P99, HAPROXY, 0.80, Some(0.70)),
            AS_FAST_AS_ROUTED,
            AS_FAST_AS_KUBE_PROXY,
            CHEAPER_THAN_THE_PROXY,
            AHEAD_OF_NGINX[0],
            AHEAD_OF_NGINX[1],
            TAIL_OF_TWO_WORKERS,
            Mark::second_worker(),
        ],
    ),
    Row::new(
        "request-64k",
        Load::Request { connections: 16, size: 65_536 },
        &[AHEAD_OF_NGINX[0], AHEAD_OF_NGINX[1], TAIL_OF_TWO_WORKERS],
    ),
    Row::new("request-tail", Load::Request { connections: 64, size: 1024 }, &[TAIL_OF_TWO_WORKERS])
        .in_open_loop(BUSY),
    Row::new(
        "latency",
        Load::Request { connections: 1, size: 1024 },
        &[
            Mark::at_least("rate", Rate, NGINX, 1.02, Some(1.10)),
            Mark::at_most("CPU per request", ProcessCost, NGINX, 0.95, Some(0.80)),
        ],
    ),
    Row::new(
        "connect",
        Load::Connect { parallel: 32 },
        &[
            Mark::at_most("CPU per connection", ProcessCost, HAPROXY, 0.82, Some(0.70)),
            Mark::at_least("rate", Rate, HAPROXY, 1.15, Some(1.30)),
            AS_FAST_AS_ROUTED,
            AS_FAST_AS_KUBE_PROXY,
            CHEAPER_THAN_THE_PROXY,
            Mark::second_worker(),
        ],
    ),
    Row::new("connect-tail", Load::Connect { parallel: 32 }, &[]).in_open_loop(BUSY),
    Row::new(
        "client-closes",
        Load::CloseFirst,
        &[
            Mark::at_most("CPU per connection", ProcessCost, Rival::FirstScene, 1.15, None),
            Mark::at_most(
                "median of another Service, to that without load",
                OtherSlowdown,
                Rival::Nobody,
                1.2,
                None,
            ),
        ],
    )
    .in_scenes(PORTS)
    .in_open_loop(ArrivalRate::Fixed(CLOSE_FIRST_RATE))
    .for_longer(5),
    Row::new("idle", Load::Idle, &[Mark::at_most("KiB per connection", IdleKib, Rival::Nobody, 0.31, None)]),
    Row::new("crowd", Load::Crowd { size: 1024 }, &[]).in_open_loop(BUSY_AND_COLD),
    Row::new("udp-64", Load::Datagram { flows: 32, size: 64 }, &[Mark::per_cpu_second(NGINX, 1.81, 2.5)]),
    Row::new(
        "udp-1200",
        Load::Datagram { flows: 32, size: 1200 },
        &[Mark::per_cpu_second(NGINX, 1.6, 3.0), Mark::second_worker()],
    ),
    Row::new(
        "udp-gso-1200",
        Load::Bundle { flows: 4, size: 1200, count: 40 },
        &[Mark::per_cpu_second(NGINX, 10.0, 20.0)],
    ),
    Row::new(
        "udp-removal",
        Load::RemoveFlows,
        &[Mark::at_most("longest wait of a request, in ms,", Standstill, Rival::Nobody, 20.0, None)],
    )
    .in_scenes(FLOWS),
    Row::new(
        "frontends",
        Load::NewFrontends,
        &[
            Mark::at_most("refused connections", Refused, Rival::Nobody, 0.0, None),
            Mark::at_most("median of first connections", P50, Rival::FirstScene, 1.10, Some(1.0)),
        ],
    )
    .in_scenes(TABLES),
    Row::new(
        "affinity",
        Load::NewClients,
        &[Mark::at_most("median of connections", P50, Rival::FirstScene, 1.10, Some(1.0))],
    )
    .in_scenes(AFFINITY),
    Row::new(
        "swap",
        Load::Request { connections: 64, size: 1024 },
        &[Mark::at_most("p99", P99, Rival::FirstScene, 1.10, Some(1.0))],
    )
    .in_scenes(EDITS),
    Row::new(
        "watched",
        Load::Request { connections: 64, size: 1024 },
        &[Mark::at_least("rate", Rate, Rival::FirstScene, 0.98, Some(1.0))],
    )
    .in_scenes(WATCHERS)
    .for_longer(5),
    Row::new(
        "connect-local",
        Load::Connect { parallel: 32 },
        &[
            Mark::at_most("CPU per connection", ProcessCost, HAPROXY, 1.0, Some(0.80)),
            Mark::at_least("rate", Rate, HAPROXY, 1.0, None),
        ],
    )
    .in_scenes(LOCAL),
];

impl Row {
    const fn new(name: &'static str, load: Load, marks: &'static [Mark]) -> Self {
        Self { name, load, scenes: &[Scene::Usual], marks, open_loop: None, length: 1 }
    }

    const fn in_scenes(self, scenes: &'static [Scene]) -> Self {
        Self { scenes, ..self }
    }

    const fn for_longer(self, length: u32) -> Self {
        Self { length, ..self }
    }

    const fn in_open_loop(self, rate: ArrivalRate) -> Self {
        Self { open_loop: Some(rate), ..self }
    }

    /// Whether Sheave is compared with itself.
    pub(crate) fn is_of_scenes(&self) -> bool {
        self.scenes.len() > 1
    }

    /// Entrants, in the order of the runs. Kernel paths have no workers, and a single connection cannot use a second one.
    pub(crate) fn entrants(&self, subjects: &[Subject], workers: &[usize]) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        for subject in subjects.iter().copied().filter(|subject| self.suits(*subject)) {
            let counts = if subject.is_proxy() && self.scales() { workers } else { &workers[..1] };
            for workers in counts.iter().copied() {
                let scenes = self.scenes_of(subject).iter();
                entrants.extend(scenes.map(|scene| Entrant { subject, workers, scene: *scene }));
            }
        }
        entrants
    }

    /// Reference of the ratios of `entrant`: HAProxy with as many workers, or nginx if HAProxy does not take part; or Sheave in its
    /// first scene.
    pub(crate) fn reference(&self, entrant: Entrant) -> Entrant {
        if self.is_of_scenes() {
            return Entrant { subject: Subject::Sheave, scene: self.scenes[0], ..entrant };
        }
        Entrant { subject: self.peer(), ..entrant }
    }

    /// Entrant of `subject` in a row that compares subjects.
    pub(crate) fn entrant(&self, subject: Subject, workers: usize) -> Entrant {
        Entrant { subject, workers, scene: self.scenes[0] }
    }

    fn peer(&self) -> Subject {
        if self.load.is_tcp() { Subject::Haproxy } else { Subject::Nginx }
    }

    /// Only Sheave needs to be compared with itself.
    fn scenes_of(&self, subject: Subject) -> &'static [Scene] {
        if self.is_of_scenes() && subject != Subject::Sheave { &self.scenes[1..] } else { self.scenes }
    }

    fn suits(&self, subject: Subject) -> bool {
        match subject {
            Subject::Sheave => true,
            // One that leaves the search for local ports to the kernel shows what that costs; without a proxy there is none.
            _ if self.load == Load::CloseFirst => subject == Subject::Haproxy,
            _ if self.is_of_scenes() => false,
            // HAProxy does not forward arbitrary datagrams.
            Subject::Haproxy => self.load.is_tcp(),
            // Kernel paths have no process whose memory could be measured.
            Subject::Direct
            | Subject::Tracked
            | Subject::KubeProxy
            | Subject::Ipvs
            | Subject::SheaveKernel => !matches!(self.load, Load::Idle | Load::Crowd { .. }),
            Subject::Nginx => true,
            // Envoy only keeps the client's address with an experimental listener filter, and its UDP proxy loses all bundles.
            Subject::Envoy => self.scenes[0] != Scene::Local && !matches!(self.load, Load::Bundle { .. }),
        }
    }

    /// Whether additional workers have something to share.
    pub(crate) fn scales(&self) -> bool {
        let one_after_another = matches!(
            self.load,
            Load::Bulk { streams: 1 }
                | Load::Request { connections: 1, .. }
                | Load::Idle
                | Load::Crowd { .. }
        );
        !self.is_of_scenes() && !one_after_another
    }
}

impl Load {
    /// Whether HAProxy can forward it.
    pub(crate) fn is_tcp(self) -> bool {
        !matches!(self, Self::Datagram { .. } | Self::Bundle { .. })
    }

    /// Whether the median latency is that of the path, and not of a queue. All then run on one core.
    pub(crate) fn is_one_at_a_time(self) -> bool {
        matches!(self, Self::Request { connections: 1, .. } | Self::NewFrontends | Self::NewClients)
    }

    /// Closed loop that shows the possible rate of an open loop.
    pub(crate) fn closed(self) -> Self {
        match self {
            Self::Crowd { size } => Self::Request { connections: 64, size },
            other => other,
        }
    }

    /// Describes the load.
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
            Self::CloseFirst => {
                "connect, request and answer of 64 B, the client closes first; requests to another Service beside it"
                    .to_owned()
            }
            Self::Idle => "connections that did one exchange and stay".to_owned(),
            Self::Crowd { size } => {
                format!("request and answer of {size} B by turns on all connections; KiB: of each connection")
            }
            Self::Datagram { flows, size } => format!("datagram and answer of {size} B, {flows} flows"),
            Self::Bundle { flows, size, count } => {
                format!(
                    "bundles of {count} datagrams of {size} B and their answers (UDP_SEGMENT), {flows} flows"
                )
            }
            Self::RemoveFlows => {
                "a Service with UDP flows is deleted; the longest that a request to another Service waits".to_owned()
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

    /// Units of the load.
    pub(crate) fn units(self) -> Units {
        const MICROSECONDS: f64 = 1e6;
        let each =
            |rate, cost| Units { rate, rate_scale: 1e-3, cost, cost_scale: MICROSECONDS, counted: 1.0 };
        match self {
            Self::Bulk { .. } => {
                let gib = f64::from(1 << 30);
                Units { rate: "Gbit/s", rate_scale: 8e-9, cost: "s/GiB", cost_scale: gib, counted: gib }
            }
            Self::Request { .. } | Self::Crowd { .. } | Self::RemoveFlows => each("k req/s", "us/req"),
            Self::Connect { .. } | Self::CloseFirst | Self::Idle | Self::NewFrontends | Self::NewClients => {
                each("k conn/s", "us/conn")
            }
            Self::Datagram { .. } | Self::Bundle { .. } => each("k dgram/s", "us/dgram"),
        }
    }
}
