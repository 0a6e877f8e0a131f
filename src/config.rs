//! The configuration: one YAML file, overridden by flags. Everything is validated here, and all mistakes are reported together.

mod announce;
mod authorization;
pub(crate) mod changes;
mod connection_log;
mod election;
mod limits;
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

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
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
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9841);
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
pub(crate) const REFERENCE: &str = r#"node: ""                        # default: $NODE_NAME, else the host name
kubeconfig: ""                  # default: in-cluster, else $KUBECONFIG; unused with --manifests
cluster: local                  # name of the cluster that the gateways run in
loadBalancerClass: sheave.dev/l4
handleUnclassified: false       # also serve LoadBalancer Services without a class
frontends: [LoadBalancer]       # also ExternalIP, NodePort, ClusterIP
externalIPs: {allow: []}        # CIDRs; empty = spec.externalIPs are refused
acceptProxy:                    # peers that Services may trust to name clients in PROXY headers
  allow: ["0.0.0.0/0", "::/0"]
nodePortAddresses: []           # CIDRs of node addresses for node ports; empty = primary addresses
reservedPorts: [22, 179, "2379-2381", 4789, 6081, 6443, 8472, "10248-10260", "51820-51821"]
                                # never opened for a Service at a node's own address
internalCIDRs: []               # in-cluster clients, besides pod CIDRs and node addresses
workers: 0                      # threads that forward; 0 = one per available core
busyPoll: 0s                    # how long a worker polls before it sleeps, for example 50us: lower
                                # latency at the cost of a core; at most 10ms
steering: auto                  # auto: frontends that find no room for sockets share steered ones;
                                # always: all frontends do; never: none does
admin: {listen: "127.0.0.1:9841"}
healthz: {listen: ""}           # kube-proxy's /healthz and /livez, for example "0.0.0.0:10256"
timeouts: {connect: 2s, idle: 1h, udpIdle: 60s, udpUnanswered: 10s, lameDuck: 5s, drain: 60s}
                                # udpUnanswered: a UDP flow before its endpoint's first answer;
                                # lameDuck: after SIGTERM not ready, but accepting, before the drain
limits:                         # resources of this gateway for traffic; 0 = what the machine has
  connections: 0                # concurrent TCP connections
  udpFlows: 0                   # concurrent UDP flows
  memory: 0                     # for example 2Gi, kernel socket memory included; beyond it new
                                # connections and flows are refused
  perService: {connections: 0, connectionRate: 0}   # default per Service; rate per second; 0 = none
  perClient: {connections: 0, connectionRate: 0}    # default per client address of a Service
report:                         # where the controller asks this gateway for failures
  listen: ""                    # for example "0.0.0.0:9842"; empty = off
  authorization: ""             # as in metrics; empty without a tokenFile = everybody is answered
  tokenFile: ""
metrics:                        # a second listener for /metrics, and how many series it has
  listen: ""                    # for example "127.0.0.1:9843", or "$(NODE_IP):9843" from the
                                # environment; empty = off
  authorization: ""             # required unless listen is on loopback. file: those who show what
                                # is in tokenFile; kubernetes: those whom the API server lets `get`
                                # the path (TokenReview, SubjectAccessReview); empty = file if given
  tokenFile: ""
  tls: {certificate: "", key: ""}   # PEM files, read again when they change; empty = no TLS
  maxFrontends: 1000            # frontends with their own series, by address; totals have all
  maxEndpoints: 0               # endpoints with their own series
connectionLog:                  # TCP connections that have ended, as JSON on standard output
  sample: 0%                    # which part of them, unless a Service's annotation says otherwise
  linesPerService: 100          # lines a second at most of one Service
announce:                       # or the mode alone: announce: none
  mode: none                    # l2: gateways answer for the addresses of pools themselves, by
                                # ARP and neighbour discovery; bgp: a routing daemon on the node
                                # announces them to routers; none: something else does
  interfaces: []                # the only ones used where the pool names none; empty = all whose
                                # subnets have the address
  weight: 1                     # how many addresses this gateway has, relative to others: 1 to 10
  repeat: 60s                   # how often neighbours are reminded; 0s = never
  onConflict: defend            # another machine uses an address: defend it, or withdraw
  heartbeat:                    # between gateways, over UDP
    port: 9846                  # the same on all gateways
    interval: 100ms
    failAfter: 350ms            # a gateway that is silent for so long is dead
    keys: ""                    # folder of keys that sign heartbeats, one per file; required for l2
  holdDown: 5s                  # how long a gateway that comes back owns no address
  tieBreaker: router            # what has to answer pings where exactly half of the gateways are
                                # heard: the default router, or an address; none: no half goes on
  bgp:
    interface: sheave0          # the daemon announces what is on it, and what is on sheave0-gshut
                                # with the community graceful-shutdown
    drain: 3s                   # how long a gateway that ends announces so before it withdraws
gateways:
  service: sheave-system/sheave-gateways   # headless Service that selects the gateways' Pods
  tokenFile: ""                 # bearer token by which the controller asks for reports
leaderElection:                 # as in kube-controller-manager
  lease: sheave-system/sheave-controller
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
sharedFinalizer: false          # also set service.kubernetes.io/load-balancer-cleanup
massDeletion: {hold: 60s}       # how long to distrust a list that lacks most known objects
stateDir: /var/lib/sheave
logging: {format: text, level: info}                # format: text or json; level: error to trace
karmada:
  kubeconfig: ""                # of the Karmada control plane; empty = none; unused with
                                # --manifests and --karmada-manifests
  handleUnclassified: true      # also serve MultiClusterServices without a class
  legacyClusterFields: honour   # range.clusterNames and serviceProvisionClusters, which current
                                # Karmada ignores; or ignore
  notReadyHold: ""              # how long a cluster that is not Ready gets new traffic; empty = as
                                # long as its endpoints answer
  exportServices: false         # maintain a ServiceExport and its policy per MultiClusterService
clusters: {}                    # interface by which a cluster's endpoints are reached, for example
                                # member2: {interface: wg-member2}
failover: {overprovisioning: 140, panicThreshold: 50}
                                # percent: when clusters spill over, and of healthy
                                # endpoints, below which unhealthy ones are used as well
"#;

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
    pub(crate) clusters: BTreeMap<String, String>,
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
}

/// When traffic spills over to other clusters; in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failover {
    /// So much of a cluster's share its healthy endpoints bear.
    pub(crate) overprovisioning: u16,
    /// With fewer healthy endpoints health is no guide any more.
    pub(crate) panic_threshold: u8,
}

/// How to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logging {
    /// For people or for collectors.
    pub(crate) format: LogFormat,
    /// What to leave out.
    pub(crate) level: LogLevel,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The least important lines that are still logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// A human is needed.
    Error,
    /// Degraded.
    Warn,
    /// What changes.
    Info,
    /// Each connection.
    Debug,
    /// Each step.
    Trace,
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

/// One mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigMistake {
    /// The key, as `timeouts.connect`; empty if the file as a whole is meant.
    pub(crate) path: String,
    /// What is wrong.
    pub(crate) message: String,
    /// What to write instead.
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
            accept_proxy_allow: root
                .nested("acceptProxy", |section| section.list_or("allow", any_peer, values::cidr)),
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
            logging: root.nested("logging", read_logging),
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

/// Whoever may write a Service decides, unless the configuration gives a number.
fn any_peer() -> Vec<IpNet> {
    vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
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
    }
}

fn read_clusters(section: &mut Section<'_>) -> BTreeMap<String, String> {
    let clusters = section.entries(MOST_CLUSTERS, |cluster| cluster.required("interface", values::interface));
    clusters.into_iter().filter_map(|(name, interface)| Some((name, interface?))).collect()
}

fn read_logging(section: &mut Section<'_>) -> Logging {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    Logging {
        format: section.get("format", LogFormat::Text, values::one_of(&formats)),
        level: section.get("level", LogLevel::Info, values::one_of(&levels)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> ConfigMistake {
    let message = format!("cannot read {}: {error}", path.display());
    ConfigMistake { path: String::new(), message, hint: None }
}

#[cfg(test)]
mod tests;
