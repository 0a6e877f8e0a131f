//! The command line: what may be said, not what it does.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};

use sheave_control::api::store::ServiceKey;
use sheave_model::Protocol;

use crate::config::{self, Overrides};
use crate::exit::Exit;
use crate::views::explain::{self, Client, Port, Question};

/// A Layer-4 load balancer for Kubernetes and Karmada fleets
#[derive(Debug, PartialEq, Parser)]
#[command(name = "sheave", version, arg_required_else_help = true, after_long_help = config_help())]
pub(crate) struct Cli {
    /// Configuration file (YAML); without it the defaults hold, which `sheave --help` shows
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Command {
    /// Try it: demo backends and a gateway on loopback addresses; needs no privileges and no cluster
    Demo(Demo),
    /// Forward traffic and publish where: a gateway and a controller in one process. With --manifests: a gateway that follows a
    /// folder, without any cluster
    Run(Run),
    /// Forward traffic as the API server says, and go on without it; writes nothing to the API
    Gateway(Run),
    /// Give addresses to Services of type LoadBalancer and publish their status; forwards nothing. Of several, one works
    Controller(Controller),
    /// Show the routing table that manifests give, or that a running gateway has
    Routes(Routes),
    /// Tell why a client of a Service goes where it goes, and what becomes of each endpoint; exits 0 also when the Service is
    /// not served, and 65 if there is no such Service or port
    Explain(Explain),
    /// Show how a running gateway or controller is: what it forwards by, how fresh that is, and what is wrong. Exits 0 (healthy),
    /// 1 (something is wrong) or 2 (it does not answer, or is not ready)
    Status(Status),
    /// Show every mistake in the configuration and the manifests, and which load balancers are not served; exits 0, 65 (manifests)
    /// or 78 (configuration)
    Validate(Validate),
    /// Take back what Sheave left in a cluster's Services: its finalizers, addresses and conditions; run it when the controller
    /// is gone. Exits 0, or 69 if something is left or the API server does not answer
    Uninstall(Uninstall),
    /// Show the version
    Version,
}

/// `sheave demo`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Demo {
    /// End by itself after this time, as 10s [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = config::parse_duration)]
    pub(crate) duration: Option<Duration>,
}

/// `sheave run` and `sheave gateway`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Run {
    /// Folder of Kubernetes manifests, or a single file, in place of the API server
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    /// Folder of the manifests of a Karmada control plane, or a single file, in place of its API server
    #[arg(long, value_name = "DIR")]
    pub(crate) karmada_manifests: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: Node,
}

/// `sheave controller`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) node: Node,
}

/// `sheave routes`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Routes {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// `sheave explain`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Explain {
    /// The Service
    #[arg(value_name = "NAMESPACE/NAME", value_parser = explain::parse_service)]
    service: ServiceKey,
    /// The MultiClusterService of that name is meant [default: the Service, if it is one of ours]
    #[arg(long)]
    multi_cluster: bool,
    /// Its port, by number or name [default: any, lowest address first]
    #[arg(long, value_name = "PORT", value_parser = explain::parse_port)]
    port: Option<Port>,
    /// Its protocol, TCP or UDP [default: any]
    #[arg(long, value_name = "PROTOCOL", value_parser = explain::parse_protocol)]
    protocol: Option<Protocol>,
    /// The address that the client uses, if the Service has several [default: any, of the client's family]
    #[arg(long, value_name = "IP", value_parser = explain::parse_address)]
    address: Option<IpAddr>,
    /// The client's address, and its port where that decides, as 198.51.100.7:5000 [default: a client outside the cluster]
    #[arg(long, value_name = "IP[:PORT]", value_parser = explain::parse_client)]
    client: Option<Client>,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = TextOutput::Text)]
    pub(crate) output: TextOutput,
}

/// Where a command finds out: manifests, or a running gateway.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct SourceArgs {
    /// Folder of Kubernetes manifests, or a single file
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    /// Folder of the manifests of a Karmada control plane, or a single file, in place of its API server
    #[arg(long, value_name = "DIR")]
    pub(crate) karmada_manifests: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: Node,
    /// Ask the gateway whose admin server is here [default without --manifests: http:// and `admin.listen`]
    #[arg(long, value_name = "URL", value_parser = admin_url, conflicts_with_all = ["manifests", "karmada_manifests", "node"])]
    pub(crate) admin: Option<AdminUrl>,
}

/// `sheave status`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Status {
    /// Ask the process whose admin server is here [default: http:// and `admin.listen`]
    #[arg(long, value_name = "URL", value_parser = admin_url)]
    pub(crate) admin: Option<AdminUrl>,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = TextOutput::Text)]
    pub(crate) output: TextOutput,
}

/// `sheave validate`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Validate {
    /// Folder of Kubernetes manifests, or a single file
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    /// Folder of the manifests of a Karmada control plane, or a single file, in place of its API server
    #[arg(long, value_name = "DIR")]
    pub(crate) karmada_manifests: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: Node,
}

/// `sheave uninstall`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Uninstall {
    /// Show what would be removed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Go on although a controller runs, which puts back what is removed
    #[arg(long)]
    pub(crate) force: bool,
}

/// `--node`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Node {
    /// Name of the Node that this runs on [default: `node` of the configuration, $NODE_NAME, the host name]
    #[arg(long = "node", id = "node", value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// How `sheave routes` shows the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

/// How `sheave explain` and `sheave status` show their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOutput {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Where an admin server listens: the `host:port` of its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminUrl {
    /// As in the URL; a host name is possible, an IPv6 address is in brackets.
    pub(crate) authority: String,
}

impl Cli {
    /// Reads the command line. If there is nothing to do but to tell the user about it (help, version, a mistake), that
    /// is done here, and the answer is how to exit.
    pub(crate) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        Self::try_parse_from(args).map_err(|error| {
            // Help goes to stdout, mistakes to stderr. A closed one changes nothing.
            error.print().unwrap_or_default();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Ok,
                _ => Exit::Usage,
            }
        })
    }

    /// What the flags say about the configuration.
    pub(crate) fn overrides(&self) -> Overrides {
        let node = match &self.command {
            Command::Run(run) | Command::Gateway(run) => run.node.name.clone(),
            Command::Controller(controller) => controller.node.name.clone(),
            Command::Routes(routes) => routes.sources.node.name.clone(),
            Command::Explain(explain) => explain.sources.node.name.clone(),
            // These depend on no Node, so they must not depend on a name for one either.
            Command::Demo(_) => Some("demo".to_owned()),
            Command::Uninstall(_) => Some("none".to_owned()),
            Command::Validate(validate) => validate.node.name.clone(),
            // The process that is asked has its own name.
            Command::Status(_) | Command::Version => None,
        };
        Overrides { node }
    }
}

/// Folders of manifests, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Folders<'a> {
    /// Of the cluster that the gateways run in.
    pub(crate) local: Option<&'a Path>,
    /// Of a Karmada control plane.
    pub(crate) karmada: Option<&'a Path>,
}

impl<'a> Folders<'a> {
    /// None if there is none.
    pub(crate) fn of(local: Option<&'a Path>, karmada: Option<&'a Path>) -> Option<Self> {
        (local.is_some() || karmada.is_some()).then_some(Self { local, karmada })
    }
}

impl SourceArgs {
    /// The manifests, unless a gateway is to be asked.
    pub(crate) fn folders(&self) -> Option<Folders<'_>> {
        Folders::of(self.manifests.as_deref(), self.karmada_manifests.as_deref())
    }
}

impl Explain {
    /// What is asked.
    pub(crate) fn question(&self) -> Question {
        Question {
            service: self.service.clone(),
            multi_cluster: self.multi_cluster,
            port: self.port.clone(),
            protocol: self.protocol,
            address: self.address,
            client: self.client,
        }
    }
}

fn config_help() -> String {
    format!("Configuration file, with every key and its default:\n\n{}", config::REFERENCE)
}

fn admin_url(text: &str) -> Result<AdminUrl, String> {
    let authority = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let port = authority.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    let well_formed =
        !authority.contains(['/', '@', ' ']) && port.is_some_and(|port| port.parse::<u16>().is_ok());
    if well_formed {
        Ok(AdminUrl { authority: authority.to_owned() })
    } else {
        Err("write it as http://127.0.0.1:9841".to_owned())
    }
}

#[cfg(test)]
mod tests;
