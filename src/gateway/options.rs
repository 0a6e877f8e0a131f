//! Options of the projection and the data plane, derived from the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use sheave_announce::{self as announce, Announcer, BgpOptions, MembershipOptions};
use sheave_console::http::metrics::SeriesLimits;
use sheave_control::projection::{self, Role};
use sheave_dataplane::{ConnectionLog, KernelPathOptions, Settings};
use sheave_model::{AddressSet, HealthPolicy, Path};

use super::bgp_devices::BgpDevices;
use super::capacity::Capacity;
use crate::config::{AnnounceMode, ClusterNetwork, Config};

/// How long a process that ends waits for others to take its addresses, at the least; and in times of `failAfterMax`, twice which is what
/// the others wait for at most.
const LEAVING: Duration = Duration::from_secs(2);
const LEAVING_TIMES: u32 = 3;

/// Port of BGP.
const BGP: u16 = 179;

/// Options of announcements.
#[derive(Clone, Debug)]
pub(crate) enum AnnounceOptions {
    /// By ARP and neighbor discovery in the subnets of the gateways.
    Layer2(announce::Options),
    /// By a routing daemon, with the name of the interface that it reads.
    Bgp(BgpOptions, Arc<str>),
}

impl AnnounceOptions {
    /// Checks whether addresses can be announced here, as far as possible beforehand.
    ///
    /// # Errors
    /// If a requirement is missing, as text.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Layer2(options) => Announcer::check(options).map_err(|error| error.to_string()),
            Self::Bgp(..) => BgpDevices::check().map_err(|error| error.to_string()),
        }
    }

    /// How long a stopping process may take to give its addresses away.
    pub(crate) fn leaving(&self) -> Duration {
        match self {
            Self::Layer2(options) => LEAVING.max(options.membership.fail_after_max * LEAVING_TIMES),
            Self::Bgp(options, _) => LEAVING + options.drain,
        }
    }
}

/// Options of announcements, if addresses are announced.
pub(crate) fn announce_options(config: &Config) -> Option<AnnounceOptions> {
    let announce = &config.announce;
    let keys = match &announce.mode {
        AnnounceMode::None => return None,
        AnnounceMode::Layer2 { keys } => keys,
        AnnounceMode::Bgp => {
            let options = BgpOptions { node: config.node.as_str().into(), drain: announce.bgp.drain };
            return Some(AnnounceOptions::Bgp(options, announce.bgp.interface.as_str().into()));
        }
    };
    let fleet = format!("{} {}", config.cluster, config.gateways);
    Some(AnnounceOptions::Layer2(announce::Options {
        membership: MembershipOptions {
            interval: announce.heartbeat.interval,
            fail_after: announce.heartbeat.fail_after,
            fail_after_max: announce.heartbeat.fail_after_max,
            hold_down: announce.hold_down,
            weight: announce.weight,
            ..MembershipOptions::new(config.node.as_str().into(), fleet.into(), announce.heartbeat.port)
        },
        keys: keys.clone(),
        interfaces: announce.interfaces.iter().map(|name| name.as_str().into()).collect(),
        tie_breaker: announce.tie_breaker,
        repeat: Some(announce.repeat).filter(|repeat| !repeat.is_zero()),
        on_conflict: announce.on_conflict,
        state: config.state_dir.clone(),
    }))
}

/// Options of the commands that query a process or read manifests.
pub(crate) fn console_options(config: &Config) -> sheave_console::options::Options {
    sheave_console::options::Options {
        admin_listen: config.admin_listen,
        kubeconfig: config.kubeconfig.clone(),
        context: config.context.clone(),
        namespace: config.lease.namespace.to_string(),
        projection: projection_options(config, Role::Standalone),
    }
}

/// Options that a running gateway can change. The lame duck time belongs to `process::gateway`, the log level to `logging`.
#[derive(Debug, PartialEq)]
pub(super) struct LiveOptions {
    pub(super) dataplane: Settings,
    pub(super) projection: projection::Options,
    pub(super) memory: Option<u64>,
    pub(super) drain: Duration,
    pub(super) series: SeriesLimits,
    pub(super) lines_per_service: u32,
    pub(super) mass_deletion_hold: Duration,
}

impl LiveOptions {
    pub(super) fn new(config: &Config, shares: &Capacity, role: projection::Role) -> Self {
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

pub(crate) fn projection_options(config: &Config, role: Role) -> projection::Options {
    // A controller's own listeners do not matter to the projection, since gateways have another configuration.
    let here = !matches!(role, Role::Controller { .. });
    let own_ports = own_ports(config).filter(|_| here);
    projection::Options {
        node: config.node.clone(),
        cluster: config.cluster.clone(),
        load_balancer_class: config.load_balancer_class.clone(),
        handle_unclassified: config.handle_unclassified,
        frontends: config.frontends.clone(),
        internal_cidrs: config.internal_cidrs.clone(),
        external_ips_allow: config.external_ips_allow.clone(),
        accept_proxy_allow: config.accept_proxy_allow.clone(),
        node_port_addresses: config.node_port_addresses.clone(),
        reserved_ports: config.reserved_ports.iter().cloned().chain(own_ports).collect(),
        heartbeat_port: heartbeat_port(config).filter(|_| here),
        limits: config.limits.service,
        logged: config.connection_log.sample,
        path: config.path,
        health: Arc::new(HealthPolicy {
            panic_threshold: config.failover.panic_threshold,
            ..HealthPolicy::default()
        }),
        role,
        gateway_controller: config.gateway_api.controller().map(Arc::from),
        fleet: projection::KarmadaOptions {
            handle_unclassified: config.karmada.handle_unclassified,
            authority: projection::Authority::ALL,
            export_services: config.karmada.export_services,
            service_works: config.karmada.service_works,
            not_ready_hold: config.karmada.not_ready_hold,
            paths: paths(config).map(|(path, cluster)| (cluster.into(), path)).collect(),
            allowed: allowed(config),
            overprovisioning: config.failover.overprovisioning,
        },
        absent: Arc::default(),
    }
}

/// Ports of a gateway's other listeners, and of the routing daemon on the node.
fn own_ports(config: &Config) -> impl Iterator<Item = RangeInclusive<u16>> {
    let addresses = [Some(config.admin_listen), config.healthz_listen, config.report_listen];
    let listeners = addresses.into_iter().flatten().map(|addr| addr.port());
    let bgp = (config.announce.mode == AnnounceMode::Bgp).then_some(BGP);
    let all = listeners.chain(config.metrics.port()).chain(heartbeat_port(config)).chain(bgp);
    all.filter(|port| *port != 0).map(|port| port..=port)
}

fn heartbeat_port(config: &Config) -> Option<u16> {
    matches!(config.announce.mode, AnnounceMode::Layer2 { .. }).then_some(config.announce.heartbeat.port)
}

/// Options of the data plane within `shares` of the machine. A held data plane serves nothing yet.
pub(super) fn dataplane_options(
    config: &Config,
    shares: &Capacity,
    connection_log: ConnectionLog,
    held: bool,
) -> sheave_dataplane::Options {
    sheave_dataplane::Options {
        workers: shares.workers,
        settings: dataplane_settings(config, shares),
        listening_sockets: shares.listening_sockets,
        steering: config.steering,
        paths: interfaces(config).into_iter().map(str::to_owned).collect(),
        connection_log,
        kernel_path: KernelPathOptions {
            installation: config.load_balancer_class.clone(),
            state_dir: config.state_dir.clone(),
        },
        held,
    }
}

/// Settings that can change while the data plane runs.
pub(super) fn dataplane_settings(config: &Config, shares: &Capacity) -> Settings {
    let &Capacity { traffic, udp_flows, .. } = shares;
    Settings { timeouts: config.timeouts, busy_poll: config.busy_poll, capacity: traffic, udp_flows }
}

/// Network interfaces in the configuration, without duplicates. Their order numbers the data plane's paths from 1.
fn interfaces(config: &Config) -> BTreeSet<&str> {
    config.clusters.values().filter_map(|cluster| cluster.interface.as_deref()).collect()
}

/// Allowed networks of clusters, where configured.
fn allowed(config: &Config) -> BTreeMap<Arc<str>, Arc<AddressSet>> {
    let allowed = |(name, cluster): (&String, &ClusterNetwork)| {
        let networks = AddressSet::from_cidrs(cluster.allow.as_ref()?);
        Some((name.as_str().into(), Arc::new(networks)))
    };
    config.clusters.iter().filter_map(allowed).collect()
}

/// Path to each configured cluster. Clusters behind the same interface share a path.
fn paths(config: &Config) -> impl Iterator<Item = (Path, &str)> {
    let numbers: BTreeMap<&str, u16> = interfaces(config).into_iter().zip(1..).collect();
    let path = move |interface: &str| Path(numbers.get(interface).copied().unwrap_or_default());
    let clusters = config.clusters.iter();
    clusters.filter_map(move |(name, cluster)| Some((path(cluster.interface.as_deref()?), name.as_str())))
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
