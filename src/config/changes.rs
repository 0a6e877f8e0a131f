//! How a change of each key takes effect in a running process. The table in README.md is generated from this one.

use super::Config;

/// Action that makes a changed key take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TakesEffect {
    /// None, since this process does not use the key.
    Unused,
    /// SIGHUP.
    Live,
    /// A takeover by a new process.
    Upgrade,
    /// A restart without a takeover.
    Restart,
}

/// Roles of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessParts {
    Gateway,
    Controller,
    Both,
}

/// One key, or several that form one setting.
struct KeyRow {
    keys: &'static [&'static str],
    gateway: TakesEffect,
    controller: TakesEffect,
    differs: fn(&Config, &Config) -> bool,
    /// Copies the value of the second configuration.
    keep: fn(&mut Config, &Config),
}

impl KeyRow {
    fn takes_effect(&self, parts: ProcessParts) -> TakesEffect {
        match parts {
            ProcessParts::Gateway => self.gateway,
            ProcessParts::Controller => self.controller,
            // The successor has a new controller, so a takeover is enough for its settings.
            ProcessParts::Both => self.gateway.max(self.controller.min(TakesEffect::Upgrade)),
        }
    }
}

/// Builds the table from keys, their field, and how a change takes effect in a gateway and in a controller. The doc comment of a
/// key appears in the document.
macro_rules! key_rows {
    ($($(#[doc = $_note:literal])* $($key:literal),+ => $($field:ident).+: $gateway:ident, $controller:ident;)+) => {
        &[$(KeyRow {
            keys: &[$($key),+],
            gateway: TakesEffect::$gateway,
            controller: TakesEffect::$controller,
            differs: |one, other| one.$($field).+ != other.$($field).+,
            keep: |config, former| config.$($field).+.clone_from(&former.$($field).+),
        }),+]
    };
}

const KEYS: &[KeyRow] = key_rows! {
    "node" => node: Restart, Restart;
    /// Credentials in the file are reloaded automatically.
    "kubeconfig" => kubeconfig: Upgrade, Restart;
    /// Gateways with different values do not recognize each other.
    "cluster" => cluster: Upgrade, Restart;
    "loadBalancerClass" => load_balancer_class: Restart, Restart;
    "handleUnclassified" => handle_unclassified: Live, Live;
    /// Connections of removed frontends end within `timeouts.drain`.
    "frontends" => frontends: Live, Unused;
    "externalIPs.allow" => external_ips_allow: Live, Live;
    "acceptProxy.allow" => accept_proxy_allow: Live, Live;
    "nodePortAddresses" => node_port_addresses: Live, Live;
    "reservedPorts" => reserved_ports: Live, Live;
    /// For new connections and flows.
    "internalCIDRs" => internal_cidrs: Live, Live;
    "workers" => workers: Restart, Unused;
    "busyPoll" => busy_poll: Live, Unused;
    /// Existing frontends keep their mode until a restart.
    "steering" => steering: Upgrade, Unused;
    /// Open connections stay on their path.
    "path" => path: Live, Unused;
    "admin.listen" => admin_listen: Upgrade, Restart;
    "healthz.listen" => healthz_listen: Upgrade, Unused;
    /// For new connections.
    "timeouts.connect" => timeouts.connect: Live, Unused;
    /// For new connections; open ones keep theirs.
    "timeouts.idle" => timeouts.idle: Live, Unused;
    /// For open flows as well.
    "timeouts.udpIdle" => timeouts.udp_idle: Live, Unused;
    /// For open flows as well.
    "timeouts.udpUnanswered" => timeouts.udp_unanswered: Live, Unused;
    "timeouts.lameDuck" => lame_duck: Live, Unused;
    /// For drains that begin later.
    "timeouts.drain" => timeouts.drain: Live, Unused;
    /// With more open connections than a lower limit allows, these stay, and new ones are refused.
    "limits.connections" => limits.connections: Live, Unused;
    /// With more open flows than a lower limit allows, new flows replace those that were idle the longest.
    "limits.udpFlows" => limits.udp_flows: Live, Unused;
    /// Beyond a lower limit, the connections with the most buffered data are reset, as when memory runs out.
    "limits.memory" => limits.memory: Live, Unused;
    /// Open connections stay. Connections that a Service accepted while it had no limit do not count.
    "limits.perService.connections" => limits.service.connections: Live, Live;
    "limits.perService.connectionRate" => limits.service.connection_rate: Live, Live;
    /// Open connections stay. Connections that a Service accepted while it had no limit do not count.
    "limits.perClient.connections" => limits.service.connections_per_client: Live, Live;
    "limits.perClient.connectionRate" => limits.service.connection_rate_per_client: Live, Live;
    /// Open connections count for the client network that they were accepted for.
    "limits.perClient.ipv6Prefix" => limits.service.client_prefix: Live, Live;
    "report.listen" => report_listen: Upgrade, Unused;
    /// A token file is reloaded automatically.
    "report.authorization", "report.tokenFile" => report_authorization: Upgrade, Unused;
    "metrics.listen" => metrics.listen: Upgrade, Restart;
    /// A token file is reloaded automatically.
    "metrics.authorization", "metrics.tokenFile" => metrics.authorization: Upgrade, Restart;
    /// The contents of the files are reloaded automatically.
    "metrics.tls.certificate", "metrics.tls.key" => metrics.tls: Upgrade, Restart;
    "metrics.maxFrontends" => metrics.limits.frontends: Live, Unused;
    "metrics.maxEndpoints" => metrics.limits.endpoints: Live, Unused;
    /// For new connections.
    "connectionLog.sample" => connection_log.sample: Live, Live;
    "connectionLog.linesPerService" => connection_log.lines_per_service: Live, Unused;
    /// The key files are reloaded automatically.
    "announce.mode", "announce.heartbeat.keys" => announce.mode: Upgrade, Unused;
    "announce.interfaces" => announce.interfaces: Upgrade, Unused;
    "announce.repeat" => announce.repeat: Upgrade, Unused;
    "announce.onConflict" => announce.on_conflict: Upgrade, Unused;
    /// Must be the same on all gateways: a gateway that receives no heartbeats withdraws its addresses.
    "announce.heartbeat.port" => announce.heartbeat.port: Upgrade, Unused;
    "announce.heartbeat.interval" => announce.heartbeat.interval: Upgrade, Unused;
    "announce.heartbeat.failAfter" => announce.heartbeat.fail_after: Upgrade, Unused;
    "announce.heartbeat.failAfterMax" => announce.heartbeat.fail_after_max: Upgrade, Unused;
    "announce.weight" => announce.weight: Upgrade, Unused;
    "announce.holdDown" => announce.hold_down: Upgrade, Unused;
    "announce.tieBreaker" => announce.tie_breaker: Upgrade, Unused;
    /// Addresses are withdrawn briefly.
    "announce.bgp.interface" => announce.bgp.interface: Upgrade, Unused;
    "announce.bgp.drain" => announce.bgp.drain: Upgrade, Unused;
    /// Gateways with different values do not recognize each other.
    "gateways.service" => gateways: Upgrade, Live;
    "gateways.tokenFile" => gateway_token: Unused, Live;
    "leaderElection.lease" => lease: Unused, Restart;
    "leaderElection.leaseDuration" => timing.lease: Unused, Restart;
    "leaderElection.renewDeadline" => timing.deadline: Unused, Restart;
    "leaderElection.retryPeriod" => timing.retry: Unused, Restart;
    "sharedFinalizer" => shared_finalizer: Unused, Live;
    /// For later lists.
    "massDeletion.hold" => mass_deletion_hold: Live, Live;
    "stateDir" => state_dir: Restart, Unused;
    "logging.format" => logging.format: Upgrade, Restart;
    /// Unused where `RUST_LOG` is set.
    "logging.level" => logging.level: Live, Live;
    "gatewayAPI.mode" => gateway_api.mode: Upgrade, Restart;
    "gatewayAPI.controllerName" => gateway_api.controller_name: Restart, Restart;
    "karmada.kubeconfig" => karmada.kubeconfig: Upgrade, Restart;
    "karmada.handleUnclassified" => karmada.handle_unclassified: Live, Live;
    "karmada.notReadyHold" => karmada.not_ready_hold: Live, Live;
    "karmada.exportServices" => karmada.export_services: Live, Live;
    "karmada.serviceWorks" => karmada.service_works: Upgrade, Restart;
    "clusters" => clusters: Upgrade, Live;
    "failover.overprovisioning" => failover.overprovisioning: Live, Live;
    "failover.panicThreshold" => failover.panic_threshold: Live, Live;
};

/// Keys that changed, by what makes the change take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigChanges {
    pub(crate) live: Vec<&'static str>,
    pub(crate) upgrade: Vec<&'static str>,
    pub(crate) restart: Vec<&'static str>,
    pub(crate) unused: Vec<&'static str>,
}

impl ConfigChanges {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Merges a new configuration into that of a running process: the result has only the changes that take effect live. Also
/// returns what changed.
pub(crate) fn merge(former: &Config, mut config: Config, parts: ProcessParts) -> (Config, ConfigChanges) {
    let mut changes = ConfigChanges::default();
    for row in KEYS {
        if !(row.differs)(former, &config) {
            continue;
        }
        let effect = row.takes_effect(parts);
        let changed = match effect {
            TakesEffect::Unused => &mut changes.unused,
            TakesEffect::Live => &mut changes.live,
            TakesEffect::Upgrade => &mut changes.upgrade,
            TakesEffect::Restart => &mut changes.restart,
        };
        changed.extend(row.keys);
        if effect > TakesEffect::Live {
            (row.keep)(&mut config, former);
        }
    }
    (config, changes)
}

#[cfg(test)]
pub(crate) mod tests;
