//! A run: starts a new process of the subject, waits until it serves, warms it up, loads it, measures it and ends it.

mod close_first;
mod remove_flows;
mod visits;
mod watchers;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use sheave_test_support::load as background;
use sheave_test_support::patience::let_pass;

use crate::admin;
use crate::cores::{OneCore, Pinning};
use crate::entrant::{Entrant, Scene};
use crate::failure::Failure;
use crate::load::{self, bundle::Shape, connect::ClosesFirst, pace::Pace, request::Clients};
use crate::measure::{Clock, memory_kib, peak_kib, segments_sent};
use crate::ports::{BUNDLE, DATAGRAM, ECHO, MANY, ONCE};
use crate::rows::Load;
use crate::sample::{Metric, Moved, Sample, of_run};
use crate::serve;
use crate::subjects::{CLOSED_BY_CLIENTS, Installed, Running, Task, address, keep_editing};
use crate::topology::{CLIENT, Topology, frontend};
use visits::Tally;

/// Time limit of a start; reading 30,000 Services takes some seconds.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Interval of polling.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for a proxy to release memory that was only needed to open connections.
const SETTLE: Duration = Duration::from_millis(500);

/// Limit of concurrent connections in an open loop.
const OPEN_LOOP_CONNECTIONS: usize = 1_024;

/// Settings of runs.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Duration of the measured load.
    pub(crate) duration: Duration,
    /// Duration of the same load before the measurement.
    pub(crate) warm_up: Duration,
    /// Connections of the idle row.
    pub(crate) idle_connections: usize,
    /// Threads of the client that share connections and flows; also of the server.
    pub(crate) load_threads: usize,
    /// Connections of the crowd row.
    pub(crate) crowd_connections: usize,
    /// Flows of the Service that is deleted, at most.
    pub(crate) flows: u16,
    /// Files that a proxy may open.
    pub(crate) files: u64,
    /// Limit in rows of very many connections or flows.
    pub(crate) most_files: u64,
    /// Cores of the hosts.
    pub(crate) pinning: Pinning,
    /// Folder for configuration files and logs.
    pub(crate) dir: PathBuf,
}

impl Setting {
    /// Settings for runs that last `length` times as long.
    pub(crate) fn times(&self, length: u32) -> Self {
        Self { duration: self.duration * length, warm_up: self.warm_up * length, ..self.clone() }
    }
}

/// A running subject that serves.
struct Stage<'a> {
    topology: &'a Topology,
    entrant: Entrant,
    load: Load,
    pace: Pace,
    setting: &'a Setting,
    running: Running<'a>,
    processes: Vec<Pid>,
}

/// Makes one run. Each run starts a new process, so that peak and idle memory belong to this load alone.
pub(crate) fn once(
    topology: &Topology,
    entrant: Entrant,
    installed: &Installed,
    load: Load,
    pace: Pace,
    setting: &Setting,
) -> Result<Sample, Failure> {
    // What the ports of one run are left in would be found by the next one.
    let own = match load {
        Load::CloseFirst => Some(close_first::topology(entrant.scene, setting)?),
        _ => None,
    };
    let topology = own.as_ref().unwrap_or(topology);
    let mut tally = Tally::default();
    loop {
        let mut stage = Stage::set(topology, entrant, installed, (load, pace), setting)?;
        let done = match load {
            Load::NewFrontends | Load::NewClients => stage.visit(&mut tally),
            _ => stage.measure().map(Some),
        };
        // If the proxy has died, that is the cause of the broken connection.
        let done = done.map_err(|failure| stage.running.still_alive().err().unwrap_or(failure))?;
        if let Some(sample) = done {
            return Ok(sample);
        }
    }
}

impl<'a> Stage<'a> {
    fn set(
        topology: &'a Topology,
        entrant: Entrant,
        installed: &Installed,
        (load, pace): (Load, Pace),
        setting: &'a Setting,
    ) -> Result<Self, Failure> {
        let files = match load {
            Load::Crowd { .. } | Load::RemoveFlows => setting.most_files,
            _ => setting.files,
        };
        let task = Task { entrant, load, endpoints: close_first::endpoints(setting.duration), files };
        let running = Running::start(task, installed, &topology.gateway, setting)?;
        let mut stage = Self { topology, entrant, load, pace, setting, running, processes: Vec::new() };
        stage.wait_until_it_serves()?;
        stage.processes = stage.running.processes()?;
        Ok(stage)
    }

    /// Address of the load. With many Services it is the first of them, as later ones may find no room.
    fn address(&self) -> Ipv4Addr {
        match self.entrant.scene {
            Scene::Services(_) => frontend(0),
            _ => address(self.entrant.subject),
        }
    }

    fn wait_until_it_serves(&mut self) -> Result<(), Failure> {
        let (address, load) = (self.address(), self.load);
        let asked = move || match load {
            Load::Datagram { .. } => load::datagram::answers(address, DATAGRAM),
            Load::Bundle { .. } => load::datagram::answers(address, BUNDLE),
            Load::NewFrontends | Load::NewClients => load::answers(address, ONCE),
            Load::CloseFirst => {
                load::answers(address, ECHO).and_then(|()| load::answers(CLOSED_BY_CLIENTS, MANY))
            }
            _ => load::answers(address, ECHO),
        };
        let limit = Instant::now() + START_LIMIT;
        loop {
            self.running.still_alive()?;
            let complete = !self.entrant.subject.is_ours() || admin::ready(&self.topology.gateway);
            let answer = complete.then(|| self.topology.client.run(asked));
            let masked = self.entrant.scene == Scene::Local && serve::last_client() != CLIENT;
            let failure = match answer {
                Some(Ok(())) if masked => "the server does not see the client's address".to_owned(),
                Some(Ok(())) => return Ok(()),
                Some(Err(failure)) => failure.to_string(),
                None => "its table is not complete".to_owned(),
            };
            if Instant::now() >= limit {
                let words = self.running.last_words();
                let problem = format!("does not serve after {START_LIMIT:?}: {failure}; {words}");
                return Err(Failure::program(self.entrant.subject.name(), problem));
            }
            let_pass(PAUSE);
        }
    }

    fn measure(&self) -> Result<Sample, Failure> {
        let mut sample = match self.load {
            Load::Idle => self.weigh_idle()?,
            Load::Crowd { size } => self.weigh_crowd(size)?,
            Load::CloseFirst => self.close_first()?,
            Load::RemoveFlows => self.remove_flows()?,
            _ => self.put_under_load()?,
        };
        if self.entrant.subject.is_proxy() {
            sample.insert(Metric::PeakKib, peak_kib(&self.processes)? as f64);
        }
        Ok(sample)
    }

    fn put_under_load(&self) -> Result<Sample, Failure> {
        let gateway = &self.topology.gateway;
        let beside = match self.entrant.scene {
            Scene::Swapping => vec![keep_editing(gateway, self.running.dir())],
            Scene::Watched(pages) if pages > 0 => watchers::start(gateway, pages),
            _ => Vec::new(),
        };
        let one = self.load.is_one_at_a_time();
        let _one_core = if one { Some(OneCore::enter(&self.processes)?) } else { None };
        self.perform(self.setting.warm_up)?;
        let tables = self.tables()?;
        let segments = self.client_segments()?;
        let before = Clock::read(&self.processes)?;
        let moved = self.perform(self.setting.duration)?;
        let cost = before.until(Clock::read(&self.processes)?);
        let (took, units) = (moved.took.as_secs_f64(), moved.units as f64);
        beside.into_iter().try_for_each(end)?;
        let mut sample = of_run(moved, cost, self.load.units(), self.entrant.subject.is_proxy());
        if let Some((before, now)) = segments.zip(self.client_segments()?) {
            sample.insert(Metric::Segments, now.saturating_sub(before) as f64 / units);
        }
        if self.entrant.scene == Scene::Swapping {
            sample.insert(Metric::Swaps, self.tables()?.saturating_sub(tables) as f64 / took);
        }
        Ok(sample)
    }

    /// Segments that the client has sent so far, for loads whose segments are counted.
    fn client_segments(&self) -> Result<Option<u64>, Failure> {
        match self.load {
            Load::Connect { .. } => self.topology.client.run(segments_sent).map(Some),
            _ => Ok(None),
        }
    }

    /// Tables put in force so far, for scenes that count them.
    fn tables(&self) -> Result<u64, Failure> {
        match self.entrant.scene {
            Scene::Swapping => admin::generation(&self.topology.gateway),
            _ => Ok(0),
        }
    }

    fn perform(&self, duration: Duration) -> Result<Moved, Failure> {
        let (address, load, pace) = (self.address(), self.load, self.pace);
        let threads = self.setting.load_threads;
        self.topology.client.run(|| match load {
            // Each stream has its own thread.
            Load::Bulk { streams } => load::bulk::run(address, streams, duration),
            Load::Request { connections, size } => load::spread(threads, connections, move |part| {
                let pace = pace.share(part, connections);
                Clients::open(address, part, size)?.run(pace, duration)
            }),
            Load::Connect { parallel } => {
                // Waiting for a free connection would count as latency of the subject.
                let parallel = if pace.rate().is_some() { OPEN_LOOP_CONNECTIONS } else { parallel };
                load::spread(threads, parallel, move |part| {
                    let pace = pace.share(part, parallel);
                    load::connect::run(address, ClosesFirst::Server, part, pace, duration)
                })
            }
            Load::CloseFirst => load::spread(threads, OPEN_LOOP_CONNECTIONS, move |part| {
                let pace = pace.share(part, OPEN_LOOP_CONNECTIONS);
                load::connect::run(CLOSED_BY_CLIENTS, ClosesFirst::Client, part, pace, duration)
            }),
            Load::Datagram { flows, size } => {
                load::spread(threads, flows, move |flows| load::datagram::run(address, flows, size, duration))
            }
            Load::Bundle { flows, size, count } => load::spread(threads, flows, move |flows| {
                load::bundle::run(address, Shape { flows, size, count }, duration)
            }),
            Load::Idle | Load::Crowd { .. } | Load::RemoveFlows | Load::NewFrontends | Load::NewClients => {
                Err(Failure::Unsupported("this load has no duration".to_owned()))
            }
        })
    }

    fn weigh_idle(&self) -> Result<Sample, Failure> {
        let (address, count) = (self.address(), self.setting.idle_connections);
        let client = &self.topology.client;
        let before = memory_kib(&self.processes)?;
        let crowd = client.run(|| load::idle::Crowd::gather(address, count))?;
        let_pass(SETTLE);
        let after = memory_kib(&self.processes)?;
        client.run(|| crowd.disperse())?;
        let each = (after as f64 - before as f64) / count as f64;
        Ok(Sample::from([(Metric::IdleKib, each)]))
    }

    /// Measures memory and latencies with very many open connections that are used in turn.
    fn weigh_crowd(&self, size: usize) -> Result<Sample, Failure> {
        let (address, count, pace) = (self.address(), self.setting.crowd_connections, self.pace);
        let (warm_up, duration) = (self.setting.warm_up, self.setting.duration);
        let client = &self.topology.client;
        let before = memory_kib(&self.processes)?;
        let mut clients = client.run(|| {
            let crowd = load::idle::Crowd::gather(address, count)?;
            let mut clients = Clients::of(crowd.into_streams(), size)?;
            clients.run(pace, warm_up)?;
            Ok::<_, Failure>(clients)
        })?;
        let clock = Clock::read(&self.processes)?;
        let moved = client.run(|| clients.run(pace, duration));
        let cost = clock.until(Clock::read(&self.processes)?);
        let each = (memory_kib(&self.processes)? as f64 - before as f64) / count as f64;
        drop(clients);
        let mut sample = of_run(moved?, cost, self.load.units(), true);
        sample.insert(Metric::IdleKib, each);
        Ok(sample)
    }
}

/// Ends what ran beside the load. Fails if that failed or did nothing, since the run was then not what its scene says.
fn end(beside: background::Load) -> Result<(), Failure> {
    match beside.stop() {
        (0, _) => Err(Failure::Unsupported("what was to run beside the load did nothing".to_owned())),
        (_, failures) if failures.is_empty() => Ok(()),
        (_, failures) => Err(Failure::Unsupported(failures.join("; "))),
    }
}
