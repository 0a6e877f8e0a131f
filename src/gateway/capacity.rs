//! Capacity of the process in file descriptors. Some are reserved for the process itself, so that probes, the admin server, the API
//! client and the snapshot work while clients are refused.

use sheave_console::http::server::Connections;
use sheave_dataplane::{CapacityLimits, raise_open_files};

use crate::config::Config;

/// Assumed limit of open files if it cannot be read: the default of Linux.
const USUAL_OPEN_FILES: u64 = 1024;

/// Descriptors of the process itself: logs, watches, API clients, BPF objects, 80 health checks of endpoints.
const OWN: u64 = 96;
/// Descriptors of each worker: epoll instances, timers and netlink sockets.
const OF_A_WORKER: u64 = 8;
/// Connections to the admin server.
const ADMIN: usize = 32;
/// Limit of connections to pages that are open to the network. It is lower if there are few descriptors.
const PAGES: u64 = 1024;
const LEAST_PAGES: u64 = 16;

/// Descriptors for each part of the process.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// Current limit of open files.
    pub(crate) open_files: u64,
    /// Number of worker threads.
    pub(crate) workers: usize,
    pub(crate) traffic: CapacityLimits,
    /// UDP flows of each worker.
    pub(crate) udp_flows: usize,
    pub(crate) listening_sockets: usize,
    /// Connections to all pages that are open to the network.
    pub(crate) pages: Connections,
    /// Connections to the admin server, separate from all others.
    pub(crate) admin: Connections,
    /// Connections to the metrics listener. A scrape may take as long as one from the admin server.
    pub(crate) metrics: Connections,
}

impl Capacity {
    /// Capacity of this process. Raises its limit of open files as far as allowed.
    pub(crate) fn of_process(config: &Config) -> Self {
        let open_files = raise_open_files().unwrap_or(USUAL_OPEN_FILES);
        let workers = worker_count(config.workers);
        let shares = Self::of(open_files, workers, config);
        if shares.is_narrow(open_files) {
            tracing::warn!(
                open_files,
                connections = shares.traffic.descriptors / 2,
                "the limit of open files leaves few connections for traffic: raise it (LimitNOFILE, ulimit -n)"
            );
        }
        shares
    }

    /// Capacity with the traffic limits of another configuration.
    pub(crate) fn with_limits_of(&self, config: &Config) -> Self {
        Self::of(self.open_files, self.workers, config)
    }

    fn of(open_files: u64, workers: usize, config: &Config) -> Self {
        let pages = (open_files / 16).clamp(LEAST_PAGES, PAGES);
        let metrics = (open_files / 16).clamp(LEAST_PAGES, Connections::METRICS as u64);
        let held = if config.metrics.listen.is_some() { metrics } else { 0 };
        let own = OWN + OF_A_WORKER * workers as u64 + ADMIN as u64 + held + pages;
        // Even if the limit is lower than what the process needs for itself, half of it is left for traffic.
        let traffic = open_files - own.min(open_files / 2);
        let limits = &config.limits;
        let connections = limits.connections.map_or(usize::MAX, |most| most.get() as usize);
        // Each flow takes a descriptor. Half of the descriptors are left for TCP.
        let udp_flows = limits.udp_flows.map_or(u64::MAX, |most| most.get().into()).min(traffic / 2);
        Self {
            open_files,
            workers,
            traffic: CapacityLimits { descriptors: to_usize(traffic), connections },
            udp_flows: to_usize(udp_flows / workers as u64).max(1),
            // The rest is left for connections.
            listening_sockets: to_usize(traffic / 4 * 3),
            pages: Connections::of_pages(to_usize(pages)),
            admin: Connections::of_admin(ADMIN),
            metrics: Connections::of_metrics(to_usize(metrics)),
        }
    }

    fn is_narrow(&self, open_files: u64) -> bool {
        (self.traffic.descriptors as u64) < open_files / 4 * 3
    }

    /// Limit of TCP connections in total; each takes two descriptors.
    pub(crate) fn connections(&self) -> usize {
        self.traffic.connections.min(self.traffic.descriptors / 2)
    }

    /// Limit of UDP flows in total.
    pub(crate) fn flows(&self) -> usize {
        self.udp_flows * self.workers
    }
}

/// One worker per core that the scheduler and the cgroup allow, unless the configuration sets a number.
fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn shares(open_files: u64) -> Capacity {
        let config = Config::load(None, &Overrides::of_node("n")).unwrap();
        Capacity::of(open_files, 2, &config)
    }

    #[test]
    fn the_process_keeps_what_it_needs_for_itself() {
        for (open_files, kept) in [(512, 176), (1024, 208), (20_000, 1168), (1 << 20, 1168)] {
            let Capacity { traffic, listening_sockets, udp_flows, .. } = shares(open_files);
            assert_eq!(open_files - traffic.descriptors as u64, kept, "{open_files}");
            assert_eq!(listening_sockets, traffic.descriptors / 4 * 3, "and connections find some, too");
            assert_eq!(udp_flows, traffic.descriptors / 4, "{open_files}");
        }
    }

    #[test]
    fn with_far_too_few_half_are_left_to_traffic() {
        let Capacity { traffic, .. } = shares(100);
        assert_eq!(traffic.descriptors, 50);
        assert!(shares(512).is_narrow(512) && !shares(1000).is_narrow(1000));
    }

    #[test]
    fn the_configuration_may_allow_less() {
        let mut config = Config::load(None, &Overrides::of_node("n")).unwrap();
        config.limits.connections = std::num::NonZeroU32::new(7);
        config.limits.udp_flows = std::num::NonZeroU32::new(10);
        let Capacity { traffic, udp_flows, .. } = Capacity::of(20_000, 2, &config);
        assert_eq!((traffic.connections, udp_flows), (7, 5));
    }
}
