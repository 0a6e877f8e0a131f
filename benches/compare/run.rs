//! One run: start a subject afresh, wait until it serves, warm it up, load it, weigh it, end it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::load;
use crate::measure::{Clock, memory_kib, peak_kib};
use crate::ports::ECHO;
use crate::rows::Load;
use crate::sample::{Metric, Moved, Sample, of_run};
use crate::subjects::{Installed, Running, Subject};
use crate::topology::Topology;

/// A proxy that does not serve by then never will.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at something that only time changes.
const PAUSE: Duration = Duration::from_millis(20);

/// What a proxy gets to give back memory that only the opening of connections needed.
const SETTLE: Duration = Duration::from_millis(500);

/// How runs are done.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Of the measured load.
    pub(crate) duration: Duration,
    /// Of the same load before.
    pub(crate) warm_up: Duration,
    /// Connections of the idle row.
    pub(crate) idle_connections: usize,
    /// For configuration files and logs.
    pub(crate) dir: PathBuf,
}

/// Does one run. The subject is a new process in every run, so that peak memory and idle memory are of this load alone.
pub(crate) fn once(
    topology: &Topology,
    installed: &Installed,
    load: Load,
    setting: &Setting,
) -> Result<Sample, Failure> {
    let mut running = Running::start(installed, &topology.gateway, &setting.dir)?;
    let measured = wait_until_it_serves(topology, installed.subject, load, &mut running)
        .and_then(|()| measure(topology, installed.subject, &running, load, setting));
    // When the proxy died, that is the cause, and the broken connection only the consequence.
    measured.map_err(|failure| running.still_alive().err().unwrap_or(failure))
}

fn wait_until_it_serves(
    topology: &Topology,
    subject: Subject,
    load: Load,
    running: &mut Running,
) -> Result<(), Failure> {
    let asked = move || match load {
        Load::Datagram { .. } => load::datagram::answers(subject.address()),
        _ => load::answers(subject.address(), ECHO),
    };
    let limit = Instant::now() + START_LIMIT;
    loop {
        running.still_alive()?;
        let Err(failure) = topology.client.call(asked)? else {
            return Ok(());
        };
        if Instant::now() >= limit {
            let problem =
                format!("does not serve after {START_LIMIT:?}: {failure}; {}", running.last_words());
            return Err(Failure::program(subject.name(), problem));
        }
        pause(PAUSE);
    }
}

fn measure(
    topology: &Topology,
    subject: Subject,
    running: &Running,
    load: Load,
    setting: &Setting,
) -> Result<Sample, Failure> {
    let processes = running.processes()?;
    let proxied = !processes.is_empty();
    let mut sample = match load {
        Load::Idle => weigh_idle(topology, subject, running, setting.idle_connections)?,
        _ => {
            perform(topology, subject, load, setting.warm_up)?;
            let before = Clock::read(&processes)?;
            let moved = perform(topology, subject, load, setting.duration)?;
            let cost = before.until(Clock::read(&processes)?);
            of_run(moved, cost, load.units(), proxied)
        }
    };
    if proxied {
        sample.insert(Metric::PeakKib, peak_kib(&processes)? as f64);
    }
    Ok(sample)
}

fn perform(topology: &Topology, subject: Subject, load: Load, duration: Duration) -> Result<Moved, Failure> {
    let address = subject.address();
    topology.client.call(move || match load {
        Load::Bulk { streams } => load::bulk::run(address, streams, duration),
        Load::Request { connections, size } => load::request::run(address, connections, size, duration),
        Load::Connect { parallel } => load::connect::run(address, parallel, duration),
        Load::Datagram { flows, size } => load::datagram::run(address, flows, size, duration),
        Load::Idle => Err(Failure::Unsupported("idle connections have no rate".to_owned())),
    })?
}

fn weigh_idle(
    topology: &Topology,
    subject: Subject,
    running: &Running,
    count: usize,
) -> Result<Sample, Failure> {
    let processes = running.processes()?;
    let before = memory_kib(&processes)?;
    let crowd = topology.client.call(move || load::idle::Crowd::gather(subject.address(), count))??;
    pause(SETTLE);
    let after = memory_kib(&processes)?;
    topology.client.call(move || crowd.disperse())??;
    let each = (after as f64 - before as f64) / count as f64;
    Ok(Sample::from([(Metric::IdleKib, each)]))
}

/// Waits for something that only time changes and that tells nobody: another process.
#[expect(clippy::disallowed_methods, reason = "there is no worker here that it could block")]
fn pause(time: Duration) {
    thread::sleep(time);
}
