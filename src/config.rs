//! The configuration: one YAML file, overridden by flags. Everything is validated here, and all mistakes are reported together.

mod announce;
mod authorization;
pub(crate) mod changes;
mod connection_log;
mod election;
mod limits;
mod logging;
mod metrics;
mod node;
mod origin;
mod section;
mod timeouts;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;
use serde_json::Value;
use sheave_control::api::store::ServiceKey;
use sheave_control::controller::election::Timing;
use sheave_control::projection::RESERVED_PORTS;
use sheave_dataplane::SteeringMode;
use sheave_model::FrontendKind;

pub(crate) use self::announce::{Announce, AnnounceMode};
pub(crate) use self::authorization::Authorization;
pub(crate) use self::connection_log::LoggedConnections;
pub(crate) use self::limits::Limits;
pub(crate) use self::logging::{LogFormat, LogLevel, Logging};
pub(crate) use self::metrics::{Metrics, SeriesLimits, TlsFiles};
pub(crate) use self::origin::ConfigOrigin;
use self::section::Section;
pub(crate) use self::timeouts::Timeouts;
use self::values::ValueError;
use crate::takeover::MOST_WORKERS;
use crate::views::steering;
pub(crate) use sheave_control::time::parse_duration;

/// Name of this cluster among others; nothing depends on it in a single cluster.
const CLUSTER: &str = "local";
/// The class that Services ask for us by.
const LOAD_BALANCER_CLASS: &str = "sheave.dev/l4";
/// Loopback, since the pages show internals without authentication; the port is not registered with IANA.
pub(crate) const ADMIN_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9841);
/// Where `deploy` puts everything.
const NAMESPACE: &str = "sheave-system";
/// Long enough for an API server that came back empty to be noticed, short against what deletes on purpose.
const MASS_DELETION_HOLD: Duration = Duration::from_secs(60);
/// Where a package of this name keeps its state (file-hierarchy(7)).
const STATE_DIR: &str = "/var/lib/sheave";
/// As Envoy has it: a cluster bears its whole share until 28 % of its endpoints are lost.
const OVERPROVISIONING: u16 = 140;
/// As Envoy has it.
const PANIC_THRESHOLD: u8 = 50;
/// As many as there are numbers for paths.
const MOST_CLUSTERS: usize = 1000;

/// Every key with its default, for `--help` and for copying.
pub(crate) const REFERENCE: &str = include_str!("config/reference.yaml");

/// The settings, checked and complete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// The name of the Node that we run on.
    pub(crate) node: String,
    /// How to reach the API server; none = in-cluster, else `$KUBECONFIG`.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; none = its current one. Flags alone name one.
    pub(crate) context: Option<String>,
    /// The name of the cluster that the gateways run in.
    pub(crate) cluster: String,
    /// Services of this class are ours.
    pub(crate) load_balancer_class: String,
    /// LoadBalancer Services without a class are ours, too.
    pub(crate) handle_unclassified: bool,
    /// Which kinds of frontends are served.
    pub(crate) frontends: BTreeSet<FrontendKind>,
    /// Which `spec.externalIPs` may be used; empty = none.
    pub(crate) external_ips_allow: Vec<IpNet>,
    /// Which peers Services may trust to name their clients.
    pub(crate) accept_proxy_allow: Vec<IpNet>,
    /// On which of the node's addresses node ports are served; empty = the primary one of each family.
    pub(crate) node_port_addresses: Vec<IpNet>,
    /// Ports that no Service gets at an address of a node itself.
    pub(crate) reserved_ports: Vec<RangeInclusive<u16>>,
    /// Clients from here are inside the cluster, in addition to pod CIDRs and node addresses of Nodes.
    pub(crate) internal_cidrs: Vec<IpNet>,
    /// Threads of the data plane; 0 = one per core given to us.
    pub(crate) workers: usize,
    /// How long a worker looks for more before it sleeps.
    pub(crate) busy_poll: Duration,
    /// Which frontends go without sockets of their own.
    pub(crate) steering: SteeringMode,
    /// Where the admin server listens.
    pub(crate) admin_listen: SocketAddr,
    /// Where load balancers in front may ask for `/healthz` and `/livez`, if anywhere.
    pub(crate) healthz_listen: Option<SocketAddr>,
    /// How long to wait for what.
    pub(crate) timeouts: Timeouts,
    /// What traffic may take.
    pub(crate) limits: Limits,
    /// Where the controller may ask what this gateway could not do, if anywhere.
    pub(crate) report_listen: Option<SocketAddr>,
    /// Whom this gateway tells that.
    pub(crate) report_authorization: Authorization,
    /// Where metrics are, and how many.
    pub(crate) metrics: Metrics,
    /// Which connections are logged.
    pub(crate) connection_log: LoggedConnections,
    /// How addresses are announced.
    pub(crate) announce: Announce,
    /// The headless Service over the gateways' Pods.
    pub(crate) gateways: ServiceKey,
    /// The file with the controller's bearer token for gateways, if they want one.
    pub(crate) gateway_token: Option<PathBuf>,
    /// The Lease that controllers elect their leader by.
    pub(crate) lease: ServiceKey,
    /// How soon another one takes over.
    pub(crate) timing: Timing,
    /// Also set the finalizer of the cloud controllers.
    pub(crate) shared_finalizer: bool,
    /// How long a list is doubted that lacks what was there in plenty.
    pub(crate) mass_deletion_hold: Duration,
    /// Where the last good input is kept.
    pub(crate) state_dir: PathBuf,
    /// How to log.
    pub(crate) logging: Logging,
    /// The Karmada control plane.
    pub(crate) karmada: Karmada,
    /// Through which network interface the endpoints of a cluster are reached, by cluster; those not named by the system's routing.
    pub(crate) clusters: BTreeMap<String, ClusterNetwork>,
    /// When traffic spills over to other clusters.
    pub(crate) failover: Failover,
}

/// The Karmada control plane, and how its objects are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Karmada {
    /// How to reach it, if there is one.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// MultiClusterServices without a class are ours.
    pub(crate) handle_unclassified: bool,
    /// Fields of old versions that name clusters count.
    pub(crate) legacy_cluster_fields: bool,
    /// How long a cluster that is not Ready gets new traffic; none = as long as its endpoints answer.
    pub(crate) not_ready_hold: Option<Duration>,
    /// Karmada is asked to collect endpoints.
    pub(crate) export_services: bool,
    /// The Works that bring Services to clusters are read.
    pub(crate) service_works: bool,
}

/// How another cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterNetwork {
    /// The interface that leads there.
    pub(crate) interface: Option<String>,
    /// Where its endpoints may be; `None` = anywhere but in the networks of the gateways' own cluster.
    pub(crate) allow: Option<Vec<IpNet>>,
}

/// When traffic spills over to other clusters; in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failover {
    /// So much of a cluster's share its healthy endpoints bear.
    pub(crate) overprovisioning: u16,
    /// With fewer healthy endpoints health is no guide any more.
    pub(crate) panic_threshold: u8,
}

/// Settings of flags, which override the file.
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
    /// `--node` alone.
    #[cfg(test)]
    pub(crate) fn of_node(node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..Self::default() }
    }
}

/// One mistake in the configuration. Its JSON is a contract: keys are added, never renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ConfigMistake {
    /// The key, as `timeouts.connect`; empty if the file as a whole is meant.
    #[serde(rename = "key")]
    pub(crate) path: String,
    /// What is wrong.
    pub(crate) message: String,
    /// What to write instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

impl Config {
    /// The settings of the file at `path`, or the defaults without one, as overridden by flags and completed by the
    /// environment.
    pub(crate) fn load(path: Option<&Path>, overrides: &Overrides) -> Result<Self, Vec<ConfigMistake>> {
        let text = match path {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| vec![unreadable(path, &error)])?,
        };
        Self::parse(&text, overrides, &node::Environment::of_process())
    }

    /// The defaults; the node has no name if nothing gives a valid one.
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

    /// Reads every key. Where there is a mistake the default stands in, so that the others are found, too.
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
        let (report_listen, report_authorization) = root.nested("report", |section| {
            (section.get("listen", None, values::optional(values::socket)), authorization::read(section))
        });
        let (gateways, gateway_token) = root.nested("gateways", |section| {
            let service = ServiceKey::new(NAMESPACE, "sheave-gateways");
            let token_file =
                |section: &mut Section<'_>| section.get("tokenFile", None, values::optional(values::path));
            (section.get("service", service, values::namespaced), token_file(section))
        });
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
            workers: root.get("workers", 0, values::at_most(MOST_WORKERS)),
            busy_poll: root.get("busyPoll", Duration::ZERO, values::busy_poll),
            steering: root.get("steering", SteeringMode::default(), values::one_of(&steering::MODES)),
            admin_listen: root.nested("admin", |section| section.get("listen", ADMIN_LISTEN, values::socket)),
            healthz_listen: root
                .nested("healthz", |section| section.get("listen", None, values::optional(values::socket))),
            timeouts: root.nested("timeouts", Timeouts::read),
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
            karmada: root.nested("karmada", read_karmada),
            clusters: root.nested("clusters", read_clusters),
            failover: root.nested("failover", |section| Failover {
                overprovisioning: section.get(
                    "overprovisioning",
                    OVERPROVISIONING,
                    values::between(100, 10_000),
                ),
                panic_threshold: section.get("panicThreshold", PANIC_THRESHOLD, values::between(0, 100)),
            }),
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

/// LoadBalancer alone unless the list is given, which must not be empty then.
fn read_frontends(root: &mut Section<'_>) -> BTreeSet<FrontendKind> {
    const KEY: &str = "frontends";
    let kinds = [
        ("LoadBalancer", FrontendKind::LoadBalancer),
        ("ExternalIP", FrontendKind::ExternalIp),
        ("NodePort", FrontendKind::NodePort),
        ("ClusterIP", FrontendKind::ClusterIp),
    ];
    let frontends = root.list_or(KEY, || vec![FrontendKind::LoadBalancer], values::one_of(&kinds));
    if root.is_empty_list(KEY) {
        let message = "is empty, so nothing would be served".to_owned();
        root.report(KEY, ValueError { message, hint: Some("write [LoadBalancer]".to_owned()) });
    }
    frontends.into_iter().collect()
}

fn read_karmada(section: &mut Section<'_>) -> Karmada {
    let legacy = [("honour", true), ("ignore", false)];
    Karmada {
        kubeconfig: section.get("kubeconfig", None, values::optional(values::path)),
        handle_unclassified: section.get("handleUnclassified", true, values::boolean),
        legacy_cluster_fields: section.get("legacyClusterFields", true, values::one_of(&legacy)),
        not_ready_hold: section.get("notReadyHold", None, values::optional(values::timeout)),
        export_services: section.get("exportServices", false, values::boolean),
        service_works: section.get("serviceWorks", false, values::boolean),
    }
}

fn read_clusters(section: &mut Section<'_>) -> BTreeMap<String, ClusterNetwork> {
    let clusters = section.entries(MOST_CLUSTERS, |cluster| {
        let allow = cluster.is_given("allow").then(|| cluster.list("allow", values::cidr));
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
