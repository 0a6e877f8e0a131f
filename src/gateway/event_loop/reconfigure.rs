//! Reload of the configuration in a running gateway: all options are derived from it as at the start, and passed on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_console::http::metrics::SeriesLimits;
use sheave_control::projection;
use sheave_dataplane::Settings;
use tokio::sync::oneshot;

use super::EventLoop;
use crate::config::Config;
use crate::gateway::capacity::Capacity;
use crate::gateway::options::{dataplane_settings, projection_options};

/// A configuration to apply.
#[derive(Debug)]
pub(crate) struct NewConfig {
    pub(crate) config: Arc<Config>,
    /// Notified once it is applied.
    pub(crate) applied: oneshot::Sender<()>,
}

/// Options that a running gateway can change. The lame duck time belongs to `process::gateway`, the log level to `logging`.
#[derive(Debug, PartialEq)]
struct LiveOptions {
    dataplane: Settings,
    projection: projection::Options,
    memory: Option<u64>,
    drain: Duration,
    series: SeriesLimits,
    lines_per_service: u32,
    mass_deletion_hold: Duration,
}

impl LiveOptions {
    fn new(config: &Config, shares: &Capacity, role: projection::Role) -> Self {
        Self {
            dataplane: dataplane_settings(config, &shares.with_limits_of(config)),
            projection: projection_options(config, role),
            memory: config.limits.memory,
            drain: config.timeouts.drain,
            series: config.metrics.limits,
            lines_per_service: config.connection_log.lines_per_service,
            mass_deletion_hold: config.mass_deletion_hold,
        }
    }
}

impl EventLoop {
    /// Applies a configuration whose other keys are those that the process was started with. Open connections continue.
    pub(super) fn reconfigure(&mut self, config: &Config) {
        let options = LiveOptions::new(config, &self.shares, self.sources.role());
        let LiveOptions {
            dataplane,
            projection,
            memory,
            drain,
            series,
            lines_per_service,
            mass_deletion_hold,
        } = options;
        self.dataplane.configure(dataplane);
        self.projector.set_options(projection);
        self.memory.set_limit(memory);
        self.connection_log.set_lines_per_service(lines_per_service);
        self.sources.set_mass_deletion_hold(mass_deletion_hold);
        (self.drain, self.series) = (drain, series);
        // Otherwise the first objects or the takeover will project.
        if self.projection.is_some() && self.predecessor.is_none() {
            self.project(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::changes::tests::{config, each_changed};
    use crate::config::changes::{ProcessParts, TakesEffect};

    #[test]
    fn what_changes_live_reaches_the_gateway_and_nothing_else_does() {
        let base = config("");
        let shares = Capacity::of_process(&base);
        let options = |config: &Config| LiveOptions::new(config, &shares, projection::Role::Gateway);
        for (key, changed, effect) in each_changed(ProcessParts::Gateway) {
            let elsewhere = ["timeouts.lameDuck", "logging.level"].contains(&key);
            let reaches = effect == TakesEffect::Live && !elsewhere;
            if effect <= TakesEffect::Live {
                assert_eq!(options(&changed) != options(&base), reaches, "{key}");
            }
        }
    }
}
