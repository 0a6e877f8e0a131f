//! Runs that time single connections: first connections to frontends, and first connections of clients.

use std::time::{Duration, Instant};

use sheave_test_support::patience::let_pass;

use super::{START_LIMIT, Stage};
use crate::cores::OneCore;
use crate::entrant::Scene;
use crate::failure::Failure;
use crate::load::visit::{Visit, Visits, crowd, run};
use crate::measure::{Clock, peak_kib};
use crate::rows::Load;
use crate::sample::{Cost, Metric, Moved, Sample, of_run};
use crate::subjects::WITH_AFFINITY;
use crate::topology::{client, frontend};

/// Minimum number of connections. A gateway with few frontends is restarted until they are made.
const ENOUGH: u64 = 60;

/// Number of frontends that are visited in a large table, evenly distributed.
const FRONTENDS: u32 = 1_000;

/// Number of new clients of a Service with affinity.
const CLIENTS: u32 = 1_000;

/// Number of warm-up connections to another Service, since these rows do not measure the first connections of a
/// process.
const BEFORE: usize = 300;

/// A process is idle once it takes at most `BUSY` of a core over `STILL`.
const STILL: Duration = Duration::from_millis(100);
const BUSY: f64 = 0.05;

/// Sum of all attempts so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    visits: Visits,
    cost: Cost,
}

impl Stage<'_> {
    /// Makes the visits of this scene, and returns the sample once there are enough.
    pub(super) fn visit(&self, tally: &mut Tally) -> Result<Option<Sample>, Failure> {
        let client = &self.topology.client;
        if let Scene::Records(count) = self.entrant.scene {
            client.run(|| crowd(WITH_AFFINITY, count))?;
        }
        self.wait_until_still()?;
        let _one_core = OneCore::enter(&self.processes)?;
        let others = [Visit { from: None, to: self.address() }; BEFORE];
        client.run(|| run(&others))?;
        let visits = self.visits();
        let before = Clock::read(&self.processes)?;
        let done = client.run(|| run(&visits))?;
        tally.cost += before.until(Clock::read(&self.processes)?);
        tally.visits.latencies.extend(done.latencies);
        tally.visits.refused += done.refused;
        let enough = tally.visits.latencies.len() as u64 + tally.visits.refused >= ENOUGH;
        if enough { self.sample_of(std::mem::take(tally)).map(Some) } else { Ok(None) }
    }

    fn visits(&self) -> Vec<Visit> {
        match self.entrant.scene {
            Scene::Services(count) => {
                let step = (count / FRONTENDS).max(1) as usize;
                // The first one was used for the warm-up.
                (1..count).step_by(step).map(|number| Visit { from: None, to: frontend(number) }).collect()
            }
            Scene::Records(count) => {
                let new = count..count + CLIENTS;
                new.map(|number| Visit { from: Some(client(number)), to: WITH_AFFINITY }).collect()
            }
            Scene::Usual
            | Scene::Local
            | Scene::Swapping
            | Scene::Watched(_)
            | Scene::Flows(_)
            | Scene::DefaultPorts
            | Scene::ReusedPorts => Vec::new(),
        }
    }

    fn sample_of(&self, Tally { visits, cost }: Tally) -> Result<Sample, Failure> {
        let moved = Moved {
            units: visits.latencies.len() as u64,
            took: visits.latencies.iter().sum(),
            latencies: visits.latencies,
            lost: None,
        };
        let mut sample = of_run(moved, cost, self.load.units(), true);
        sample.insert(Metric::PeakKib, peak_kib(&self.processes)? as f64);
        if self.load == Load::NewFrontends {
            sample.insert(Metric::Refused, visits.refused as f64);
        }
        Ok(sample)
    }

    fn wait_until_still(&self) -> Result<(), Failure> {
        let limit = Instant::now() + START_LIMIT;
        while Instant::now() < limit {
            let before = Clock::read(&self.processes)?;
            let_pass(STILL);
            let cost = before.until(Clock::read(&self.processes)?);
            if cost.process.as_secs_f64() <= STILL.as_secs_f64() * BUSY {
                break;
            }
        }
        Ok(())
    }
}
