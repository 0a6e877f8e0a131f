//! Runs in which a Service with UDP flows is deleted: how long the worker that ends them lets others wait.

use std::time::{Duration, Instant};

use sheave_test_support::patience::let_pass;

use super::{START_LIMIT, Stage};
use crate::admin;
use crate::entrant::Scene;
use crate::failure::Failure;
use crate::load::{datagram, pace::Pace, request::Clients};
use crate::sample::{Metric, Moved, Sample};
use crate::subjects::{REMOVED, remove_udp};

/// Client ports of the flows begin here.
const FIRST_PORT: u16 = 12_000;

/// Requests to another Service, on one connection: one that comes in the middle of a standstill waits for its end.
const OTHER: Pace = Pace::Open { rate: 1_000.0 };
const OTHER_SIZE: usize = 64;

/// Time from the first request to the deletion of the Service.
const BEFORE: Duration = Duration::from_millis(200);

impl Stage<'_> {
    pub(super) fn remove_flows(&self) -> Result<Sample, Failure> {
        let Scene::Flows(count) = self.entrant.scene else { return Ok(Sample::new()) };
        let count = count.min(self.setting.flows);
        let (address, duration) = (self.address(), self.setting.duration);
        let (client, gateway) = (&self.topology.client, &self.topology.gateway);
        client.run(|| datagram::make_flows(REMOVED, FIRST_PORT, count))?;
        let open = admin::flows(gateway)?;
        if open < u64::from(count) {
            return Err(Failure::Unsupported(format!("of {count} flows, {open} are open")));
        }
        let (before, mut other) = client.run(|| {
            let mut other = Clients::open(address, 1, OTHER_SIZE)?;
            Ok::<_, Failure>((other.run(OTHER, duration)?, other))
        })?;
        let other = client.spawn(move || other.run(OTHER, duration));
        let_pass(BEFORE);
        remove_udp(self.running.dir())?;
        let removed = Instant::now();
        let during = other.join().map_err(|_| Failure::ThreadGone("client"))??;
        while admin::flows(gateway)? > 0 {
            if removed.elapsed() > START_LIMIT {
                return Err(Failure::program("sheave", "flows of a Service that was deleted stay"));
            }
            let_pass(BEFORE);
        }
        let longest = |moved: Moved| {
            moved.latencies.iter().max().map_or(f64::NAN, |longest| longest.as_secs_f64() * 1e3)
        };
        Ok(Sample::from([(Metric::Standstill, longest(during)), (Metric::StandstillBefore, longest(before))]))
    }
}
