//! Arguments of the commands that query a process or read manifests.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sheave_control::api::store::ServiceKey;

use super::object::ObjectName;
use super::{
    LineFormat, ManifestArgs, NodeArgs, QuestionArgs, RunningArgs, SourceArgs, TableFormat, TextFormat,
    TopRows,
};

/// `sheave routes`.
#[derive(Debug, PartialEq, Args)]
pub struct Routes {
    /// Manifests or a running gateway.
    #[command(flatten)]
    pub sources: SourceArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub output: TableFormat,
}

/// `sheave explain`.
#[derive(Debug, PartialEq, Args)]
pub struct Explain {
    /// Service, client and frontend.
    #[command(flatten)]
    pub asked: QuestionArgs,
    /// Ask a controller, and through it all gateways: which gateway a client reaches, and what each would do
    #[arg(long, conflicts_with_all = ["manifests", "karmada_manifests", "node", "gateway"])]
    pub fleet: bool,
    /// Manifests or a running gateway.
    #[command(flatten)]
    pub sources: SourceArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}

/// `sheave watch`.
#[derive(Debug, PartialEq, Args)]
pub struct Watch {
    /// Service, client and frontend.
    #[command(flatten)]
    pub asked: QuestionArgs,
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = LineFormat::Text)]
    pub output: LineFormat,
}

/// `sheave trace`.
#[derive(Debug, PartialEq, Args)]
pub struct Trace {
    /// Service, client and frontend.
    #[command(flatten)]
    pub asked: QuestionArgs,
    /// Capture the client's packets on both sides of the gateway for DURATION, for example 10s (at most 45s), the first 96 bytes of each
    #[arg(long, value_name = "DURATION", value_parser = parse_capture)]
    pub capture: Option<Duration>,
    /// Ask a controller, and through it all gateways: which of them the client's packets come to, and where they stop there
    ///
    /// With --capture all gateways capture at the same time, headers alone, and each has a file of its own: the node's name stands before
    /// .pcap. A gateway that does not answer is named.
    #[arg(long, conflicts_with = "gateway")]
    pub fleet: bool,
    /// File for captured packets that does not exist yet [default: NAMESPACE-NAME-TIME.pcap in this folder]
    #[arg(long, value_name = "FILE", requires = "capture")]
    pub pcap: Option<PathBuf>,
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}

/// Parses the length of a capture.
fn parse_capture(text: &str) -> Result<Duration, String> {
    let length = parse_duration(text)?;
    let whole = length.subsec_nanos() == 0 && (1..=45).contains(&length.as_secs());
    if whole { Ok(length) } else { Err("capture for 1s to 45s, in whole seconds".to_owned()) }
}

/// `sheave events`.
#[derive(Debug, PartialEq, Args)]
pub struct Events {
    /// Only events of this Service or Gateway, and of the gateway process: web, shop/web, svc/web, "svc web", mcs/web or "gateway shop/gw"
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    pub object: Vec<String>,
    /// Namespace of the object [default: that of the kubeconfig context, else "default"]
    #[arg(short, long, value_name = "NAMESPACE", requires = "object")]
    pub namespace: Option<String>,
    /// Only events of the last DURATION, for example 1h or 2d [default: all that are kept]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub since: Option<Duration>,
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}

impl Events {
    /// The object whose events are wanted; `None` = all events. An object without a namespace is in `default_namespace`.
    ///
    /// # Errors
    /// If the object cannot be parsed, as text.
    pub fn service(&self, default_namespace: impl FnOnce() -> String) -> Result<Option<ServiceKey>, String> {
        if self.object.is_empty() {
            return Ok(None);
        }
        let ObjectName { namespace, name, .. } = ObjectName::parse(&self.object, self.namespace.as_deref())?;
        Ok(Some(ServiceKey::new(&namespace.unwrap_or_else(default_namespace), &name)))
    }
}

/// Parses a length of time such as `90s`, `1h` or `2d`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: jiff::Span = text.parse().map_err(|_| "write it as 90s, 10m, 1h or 2d".to_owned())?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let length = span.to_duration(days).ok().and_then(|it| Duration::try_from(it).ok());
    length.ok_or_else(|| "write a time in the past as 90s, 10m, 1h or 2d".to_owned())
}

/// `sheave status`.
#[derive(Debug, PartialEq, Args)]
pub struct Status {
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
    /// Only check whether a process of another container serves on this node: exits 2 if so, else 0
    ///
    /// For startup probes: a process that is to take over shares the ports of the process that still serves.
    #[arg(long, conflicts_with_all = ["admin", "gateway"])]
    pub here: bool,
    /// Show all gateways and how they differ, as seen by a controller
    ///
    /// Exits 0 (all gateways are healthy and agree), 1 (something is wrong or differs) or 2 (no controller or no gateway answers).
    ///
    /// kubectl forwards a port to a controller in the cluster if --context or --kubeconfig is given, or if there is no --admin and no
    /// controller listens on `admin.listen`.
    #[arg(long, conflicts_with_all = ["here", "gateway"])]
    pub fleet: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}

/// `sheave gateways`.
#[derive(Debug, PartialEq, Args)]
pub struct Gateways {
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}

/// `sheave top`.
#[derive(Debug, PartialEq, Args)]
pub struct Top {
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
    /// What each row shows
    #[arg(long, value_enum, value_name = "ROWS", default_value_t = TopRows::Services)]
    pub view: TopRows,
    /// Column to sort by, for example open, new, in, out, errors or state [default: new]
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,
    /// Show only rows that have all of these words
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Print the traffic of one second, and exit
    #[arg(long)]
    pub once: bool,
    /// Output format of --once
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text, requires = "once")]
    pub output: TextFormat,
}

/// `sheave validate`.
#[derive(Debug, PartialEq, Args)]
pub struct Validate {
    /// Manifests to read.
    #[command(flatten)]
    pub manifests: ManifestArgs,
    /// Node to read them for.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Also check this machine: settings of its kernel that are too small for a gateway
    ///
    /// Exits 1 if there are any and nothing else is wrong.
    #[arg(long)]
    pub here: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}
