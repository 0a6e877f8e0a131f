//! Configuration: one YAML file, overridden by flags. All of it is validated here, and all mistakes are reported together.

mod announce;
mod authorization;
pub(crate) mod changes;
mod connection_log;
mod election;
mod gateway_api;
mod limits;
mod logging;
mod metrics;
mod node;
mod origin;
mod section;
mod timeouts;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;
use sheave_console::http::server::guarded::Authorization;
use sheave_console::views::steering;
use sheave_console::views::validation::ConfigMistake;
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::election::LeaseTiming;
use sheave_control::projection::RESERVED_PORTS;
use sheave_dataplane::{SteeringMode, Timeouts};
use sheave_model::{FrontendKind, PATH_CHOICES, PathChoice};

pub(crate) use self::announce::{Announce, AnnounceMode};
pub(crate) use self::connection_log::LoggedConnections;
pub(crate) use self::gateway_api::GatewayApi;
pub(crate) use self::limits::Limits;
pub(crate) use self::logging::{LogFormat, Logging};
pub(crate) use self::metrics::Metrics;
pub(crate) use self::origin::ConfigOrigin;
use self::section::Section;
use self::values::ValueError;
use crate::takeover::MOST_WORKERS;
pub(crate) use sheave_control::time::parse_duration;

/// Default name of the own cluster. It has no effect in a single cluster.
const CLUSTER: &str = "local";
/// Default of `loadBalancerClass`.
const LOAD_BALANCER_CLASS: &str = "sheave.dev/l4";
/// Default of `admin.listen`. Loopback, since the pages show internals without authentication; the port is not registered with
/// IANA.
pub(crate) const ADMIN_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9841);
/// Namespace of all objects in `deploy`.
const NAMESPACE: &str = "sheave-system";
/// Default of `massDeletion.hold`. Long enough to notice that an API server came back empty, and short for an intended deletion.
const MASS_DELETION_HOLD: Duration = Duration::from_secs(60);
/// Default of `stateDir`, after file-hierarchy(7).
const STATE_DIR: &str = "/var/lib/sheave";
/// Default of `failover.overprovisioning`, as in Envoy: a cluster keeps its whole share until it loses 28 % of its endpoints.
const OVERPROVISIONING: u16 = 140;
/// Default of `failover.panicThreshold`, as in Envoy.
const PANIC_THRESHOLD: u8 = 50;
/// Limit of entries in `clusters`. Each needs a path number.
const MOST_CLUSTERS: usize = 1000;

/// Reference of all keys with their defaults, for `--help` and for copying.
pub(crate) const REFERENCE: &str = include_str!("config/reference.yaml");

/// Settings, validated and complete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Name of the Node that this process runs on.
    pub(crate) node: String,
    /// Kubeconfig of the API server; `None` = in-cluster, else `$KUBECONFIG`.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None` = its current context. Only a flag sets it.
    pub(crate) context: Option<String>,
    /// Name of the cluster that the gateways run in.
    pub(crate) cluster: String,
    /// Class of the Services that Sheave serves.
    pub(crate) load_balancer_class: String,
    /// Whether LoadBalancer Services without a class are served as well.
    pub(crate) handle_unclassified: bool,
    /// Kinds of frontends that are served.
    pub(crate) frontends: BTreeSet<FrontendKind>,
    /// Allowed `spec.externalIPs`; empty = none.
    pub(crate) external_ips_allow: Vec<IpNet>,
    /// Peers that Services may trust to send PROXY protocol headers.
    pub(crate) accept_proxy_allow: Vec<IpNet>,
    /// Addresses of the node that serve node ports; empty = the primary one of each family.
    pub(crate) node_port_addresses: Vec<IpNet>,
    /// Ports on a node's own addresses that no Service gets.
    pub(crate) reserved_ports: Vec<RangeInclusive<u16>>,
    /// Additional networks whose clients are inside the cluster, besides pod CIDRs and Node addresses.
    pub(crate) internal_cidrs: Vec<IpNet>,
    /// Threads of the data plane; 0 = one per available core.
    pub(crate) workers: usize,
    /// How long a worker polls before it sleeps.
    pub(crate) busy_poll: Duration,
    /// When frontends work without sockets of their own.
    pub(crate) steering: SteeringMode,
    /// Data path of Services without the annotation.
    pub(crate) path: PathChoice,
    /// Address of the admin server.
    pub(crate) admin_listen: SocketAddr,
    /// Address for health checks (`/healthz`, `/livez`) by load balancers in front, if any.
    pub(crate) healthz_listen: Option<SocketAddr>,
    /// Timeouts of traffic; never zero.
    pub(crate) timeouts: Timeouts,
    /// Time for load balancers to notice that the process is no longer ready.
    pub(crate) lame_duck: Duration,
    /// Limits of traffic.
    pub(crate) limits: Limits,
    /// Address where the controller gets this gateway's report, if any.
    pub(crate) report_listen: Option<SocketAddr>,
    /// Clients that may get that report.
    pub(crate) report_authorization: Authorization,
    /// Metrics listener and series limits.
    pub(crate) metrics: Metrics,
    /// Connections that are logged.
    pub(crate) connection_log: LoggedConnections,
    /// Announcement of addresses.
    pub(crate) announce: Announce,
    /// Headless Service over the gateways' Pods.
    pub(crate) gateways: ServiceKey,
    /// File with the bearer token that the controller sends to gateways, if they require one.
    pub(crate) gateway_token: Option<PathBuf>,
    /// Lease of the leader election.
    pub(crate) lease: ServiceKey,
    /// Timing of the leader election.
    pub(crate) timing: LeaseTiming,
    /// Whether to set the finalizer of cloud controllers as well.
    pub(crate) shared_finalizer: bool,
    /// How long a list is held back in which most objects are missing.
    pub(crate) mass_deletion_hold: Duration,
    /// Folder of the snapshot and the takeover socket.
    pub(crate) state_dir: PathBuf,
    /// Format and level of logs.
    pub(crate) logging: Logging,
    /// The Gateway API.
    pub(crate) gateway_api: GatewayApi,
    /// Karmada control plane.
    pub(crate) karmada: Karmada,
    /// Networks of other clusters, by cluster. Clusters without an entry are reached by the system's routes.
    pub(crate) clusters: BTreeMap<String, ClusterNetwork>,
    /// Spillover of traffic to other clusters.
    pub(crate) failover: Failover,
}

/// Karmada control plane, and how its objects are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Karmada {
    /// Kubeconfig of the control plane, if there is one.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Whether MultiClusterServices without a class are served as well.
    pub(crate) handle_unclassified: bool,
    /// How long a cluster that is not Ready gets new traffic; `None` = as long as its endpoints answer.
    pub(crate) not_ready_hold: Option<Duration>,
    /// Whether to make Karmada collect endpoints.
    pub(crate) export_services: bool,
    /// Whether to read the Works that bring Services to clusters.
    pub(crate) service_works: bool,
}

/// Network of another cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterNetwork {
    /// Interface towards the cluster.
    pub(crate) interface: Option<String>,
    /// Networks of its endpoints; `None` = any but the networks of the gateways' own cluster.
    pub(crate) allow: Option<Vec<IpNet>>,
}

/// Spillover to other clusters, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failover {
    /// Factor by which healthy endpoints can carry more than their share of a cluster's traffic.
    pub(crate) overprovisioning: u16,
    /// With a smaller share of healthy endpoints, health is ignored.
    pub(crate) panic_threshold: u8,
}

/// Settings that flags override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// `--node`.
    pub(crate) node: Option<String>,
    /// `--kubeconfig`.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub(crate) context: Option<String>,
}

impl Overrides {
    /// Overrides with `--node` alone.
    #[cfg(test)]
    pub(crate) fn of_node(node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..Self::default() }
    }
}

impl Config {
    /// Loads the file at `path`, or the defaults without one. Flags override the file, and the environment completes it.
    pub(crate) fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, Vec<ConfigMistake>> {
        let text = match path {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| vec![unreadable(path, &error)])?,
        };
        Self::parse(&text, overrides, &node::Environment::of_process())
    }

    /// The defaults. The node name is empty if there is no valid one.
    pub(crate) fn fallback() -> Self {
        Self::fallback_in(&node::Environment::of_process())
    }

    fn fallback_in(environment: &node::Environment) -> Self {
        Self::read(&Value::Null, &Overrides::default(), environment, &mut Vec::new())
    }

    fn parse(
        text: &str,
        overrides: &Overrides,
        environment: &node::Environment,
    ) -> Result<Self, Vec<ConfigMistake>> {
        let value = values::document(text).map_err(|mistake| vec![mistake])?;
        let mut mistakes = Vec::new();
        let config = Self::read(&value, overrides, environment, &mut mistakes);
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    /// Reads every key. The default replaces an invalid value, so that later mistakes are found as well.
    fn read(
        value: &Value,
        overrides: &Overrides,
        environment: &node::Environment,
        mistakes: &mut Vec<ConfigMistake>,
    ) -> Self {
        let mut root = Section::root(value, mistakes);
        let node = root.get("node", None, values::optional(values::name));
        let kubeconfig = root.get("kubeconfig", None, values::optional(values::path));
        let (lease, timing) = root.nested("leaderElection", election::read);
        let (timeouts, lame_duck) = root.nested("timeouts", timeouts::read);
        let (report_listen, report_authorization) = root.nested("report", |section| {
            (section.get("listen", None, values::optional(values::socket)), authorization::read(section))
        });
        let (gateways, gateway_token) = root.nested("gateways", read_gateways);
        let config = Self {
            node: String::new(),
            kubeconfig: overrides.kubeconfig.clone().or(kubeconfig),
            context: overrides.context.clone(),
            cluster: root.get("cluster", CLUSTER.to_owned(), values::name),
            load_balancer_class: root.get("loadBalancerClass", LOAD_BALANCER_CLASS.to_owned(), values::class),
            handle_unclassified: root.get("handleUnclassified", false, values::boolean),
            frontends: read_frontends(&mut root),
            external_ips_allow: root.nested("externalIPs", |section| section.list("allow", values::cidr)),
            accept_proxy_allow: root.nested("acceptProxy", |section| section.list("allow", values::cidr)),
            node_port_addresses: root.list("nodePortAddresses", values::cidr),
            reserved_ports: root.list_or("reservedPorts", || RESERVED_PORTS.to_vec(), values::ports),
            internal_cidrs: root.list("internalCIDRs", values::cidr),
            workers: root.get("workers", 0, values::between(0, MOST_WORKERS)),
            busy_poll: root.get("busyPoll", Duration::ZERO, values::busy_poll),
            steering: root.get("steering", SteeringMode::default(), values::one_of(&steering::MODES)),
            path: root.get("path", PathChoice::default(), values::one_of(&PATH_CHOICES)),
            admin_listen: root.nested("admin", |section| section.get("listen", ADMIN_LISTEN, values::socket)),
            healthz_listen: root
                .nested("healthz", |section| section.get("listen", None, values::optional(values::socket))),
            timeouts,
            lame_duck,
            limits: root.nested("limits", limits::read),
            report_listen,
            report_authorization,
            metrics: root.nested("metrics", metrics::read),
            connection_log: root.nested("connectionLog", connection_log::read),
            announce: announce::read(&mut root),
            gateways,
            gateway_token,
            lease,
            timing,
            shared_finalizer: root.get("sharedFinalizer", false, values::boolean),
            mass_deletion_hold: root
                .nested("massDeletion", |section| section.get("hold", MASS_DELETION_HOLD, values::timeout)),
            state_dir: root.get("stateDir", STATE_DIR.into(), values::path),
            logging: root.nested("logging", logging::read),
            gateway_api: root.nested("gatewayAPI", gateway_api::read),
            karmada: root.nested("karmada", read_karmada),
            clusters: root.nested("clusters", read_clusters),
            failover: root.nested("failover", read_failover),
        };
        root.finish();
        match node::resolve(overrides.node.as_deref(), node.as_deref(), environment) {
            Ok(node) => Self { node, ..config },
            Err(mistake) => {
                mistakes.push(mistake);
                config
            }
        }
    }
}

/// The Service that selects the gateways, and the file with the token for their reports.
fn read_gateways(section: &mut Section<'_>) -> (ServiceKey, Option<PathBuf>) {
    let service = ServiceKey::new(NAMESPACE, "sheave-gateways");
    let service = section.get("service", service, values::namespaced);
    (service, section.get("tokenFile", None, values::optional(values::path)))
}

fn read_failover(section: &mut Section<'_>) -> Failover {
    Failover {
        overprovisioning: section.get("overprovisioning", OVERPROVISIONING, values::between(100, 10_000)),
        panic_threshold: section.get("panicThreshold", PANIC_THRESHOLD, values::between(0, 100)),
    }
}

/// Only LoadBalancer by default. A given list must not be empty.
fn read_frontends(root: &mut Section<'_>) -> BTreeSet<FrontendKind> {
    const KEY: &str = "frontends";
    let kinds = [
        ("LoadBalancer", FrontendKind::LoadBalancer),
        ("ExternalIP", FrontendKind::ExternalIp),
        ("NodePort", FrontendKind::NodePort),
        ("ClusterIP", FrontendKind::ClusterIp),
    ];
    let frontends = root.list_or(KEY, || vec![FrontendKind::LoadBalancer], values::one_of(&kinds));
    if root.given(KEY).and_then(Value::as_array).is_some_and(Vec::is_empty) {
        let empty = ValueError::from("is empty, so nothing would be served");
        root.report(KEY, empty.hint("write [LoadBalancer]"));
    }
    frontends.into_iter().collect()
}

fn read_karmada(section: &mut Section<'_>) -> Karmada {
    Karmada {
        kubeconfig: section.get("kubeconfig", None, values::optional(values::path)),
        handle_unclassified: section.get("handleUnclassified", true, values::boolean),
        not_ready_hold: section.get("notReadyHold", None, values::optional(values::timeout)),
        export_services: section.get("exportServices", false, values::boolean),
        service_works: section.get("serviceWorks", false, values::boolean),
    }
}

fn read_clusters(section: &mut Section<'_>) -> BTreeMap<String, ClusterNetwork> {
    let clusters = section.entries(MOST_CLUSTERS, |cluster| {
        let allow = cluster.given("allow").is_some().then(|| cluster.list("allow", values::cidr));
        let interface = match allow {
            Some(_) => cluster.get("interface", None, values::optional(values::interface)),
            None => cluster.required("interface", values::interface),
        };
        ClusterNetwork { interface, allow }
    });
    clusters.into_iter().collect()
}

fn unreadable(path: &Path, error: &std::io::Error) -> ConfigMistake {
    let message = format!("cannot read {}: {error}", path.display());
    ConfigMistake { path: String::new(), message, hint: None }
}

#[cfg(test)]
mod tests;
