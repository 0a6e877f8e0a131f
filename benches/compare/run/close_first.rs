//! Runs in which clients close first, so that the local ports of a gateway stay in TIME_WAIT: what a connection costs then, and what a
//! Service beside it feels. Each run has hosts of its own, since ports stay so for a minute.

use std::time::Duration;

use super::{Setting, Stage};
use crate::entrant::Scene;
use crate::failure::Failure;
use crate::load::{pace::Pace, request::Clients};
use crate::measure::{Clock, time_waits};
use crate::rows::CLOSE_FIRST_RATE;
use crate::sample::{Metric, Sample, median, of_run};
use crate::serve;
use crate::subjects;
use crate::topology::{LocalPorts, Topology};

/// Length of the load before the measurement, as a multiple of the measurement.
const BEFORE: u32 = 3;

/// The most ports that are in use at the end, as a share of all. The kernel alone is slow from a half on.
const FULL: f64 = 0.85;

/// Ports of the default range (ip(7)), each in TIME_WAIT for this time.
const PORTS: f64 = 28_232.0;
const TIME_WAIT: Duration = Duration::from_secs(60);

/// Requests to the other Service, on one connection.
const OTHER: Pace = Pace::Open { rate: 200.0 };
const OTHER_SIZE: usize = 1024;

/// Hosts for one run, which serve.
pub(super) fn topology(scene: Scene, setting: &Setting) -> Result<Topology, Failure> {
    let ports = if scene == Scene::ReusedPorts { LocalPorts::Reused } else { LocalPorts::Default };
    let topology = Topology::build(&subjects::addresses(), ports);
    serve::start(&topology.server, setting.load_threads)?;
    Ok(topology)
}

/// How many endpoints a run of this length fills.
pub(super) fn endpoints(duration: Duration) -> u16 {
    let connections = CLOSE_FIRST_RATE * TIME_WAIT.min(duration * (BEFORE + 1)).as_secs_f64();
    (connections / (FULL * PORTS)).ceil() as u16
}

impl Stage<'_> {
    pub(super) fn close_first(&self) -> Result<Sample, Failure> {
        let (address, duration) = (self.address(), self.setting.duration);
        let (client, gateway) = (&self.topology.client, &self.topology.gateway);
        let (quiet, mut other) = client.run(|| {
            let mut other = Clients::open(address, 1, OTHER_SIZE)?;
            Ok::<_, Failure>((other.run(OTHER, duration)?, other))
        })?;
        self.perform(duration * BEFORE)?;
        let other = client.spawn(move || other.run(OTHER, duration));
        let before = Clock::read(&self.processes)?;
        let moved = self.perform(duration)?;
        let cost = before.until(Clock::read(&self.processes)?);
        let ports = gateway.run(time_waits)? as f64;
        let other = other.join().map_err(|_| Failure::ThreadGone("client"))??;
        let mut sample = of_run(moved, cost, self.load.units(), true);
        sample.insert(Metric::TimeWait, ports / f64::from(endpoints(duration)));
        if let Some((quiet, loaded)) = median(quiet.latencies).zip(median(other.latencies)) {
            sample.insert(Metric::OtherP50, loaded);
            sample.insert(Metric::OtherSlowdown, loaded / quiet);
        }
        Ok(sample)
    }
}
