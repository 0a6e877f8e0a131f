//! Command line: commands, flags and their help.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sheave_console::arguments::{
    ApiServerArgs, Diff, Events, Explain, Gateways, ManifestArgs, NodeArgs, Replay, Routes, RunningArgs,
    Status, TextFormat, Top, Trace, Validate, Watch,
};
use sheave_console::exit::Exit;

use crate::config::{self, Overrides};

/// A Layer-4 load balancer for Kubernetes and Karmada fleets
#[derive(Debug, PartialEq, Parser)]
#[command(
    name = "sheave",
    version,
    arg_required_else_help = true,
    term_width = 100,
    after_help = ENVIRONMENT,
    after_long_help = long_help()
)]
pub(crate) struct Cli {
    /// Configuration file (YAML) [default: the settings that `sheave --help` shows]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Subcommands.
#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Command {
    /// Try Sheave without a cluster and without privileges
    ///
    /// Starts demo backends, two pretend clusters and a gateway on loopback addresses, and prints what to try.
    Demo(Demo),
    /// Run a gateway and a controller in one process
    ///
    /// With --manifests it runs a gateway that follows a folder of manifests, without a cluster.
    Run(Run),
    /// Forward traffic for the Services of an API server
    ///
    /// A gateway only reads from the API, and keeps forwarding while the API server is away.
    Gateway(Run),
    /// Allocate addresses to Services of type LoadBalancer and publish their status
    ///
    /// A controller forwards nothing. Of several controllers, the elected leader works and the others stand by.
    Controller(Controller),
    /// Show the routing table of manifests or of a running gateway
    Routes(Routes),
    /// Show what manifests would change
    ///
    /// Compares them with what a running gateway serves, or with other manifests: frontends, addresses, endpoints, Problems, and which
    /// part of new connections goes elsewhere. Exits 0 (nothing changes) or 1.
    Diff(Diff),
    /// Show what manifests would change for real traffic, from a connection log
    ///
    /// Picks an endpoint for each logged connection under the new manifests, with the log's times as the clock: which connections go to
    /// another endpoint, the load of each endpoint and cluster, who would be refused and why, and which clients lose their endpoint.
    /// Exits 0 (nothing changes for the traffic), 1, or 65 if the manifests or the log cannot be read.
    Replay(Replay),
    /// Explain where a client of a Service goes, and why
    ///
    /// Lists the rule behind each decision and what happens to each endpoint. Exits 0 even if the Service is not served, and 65 if
    /// the Service or port does not exist.
    Explain(Explain),
    /// Find out where a client's packet goes, or where it stops
    ///
    /// The gateway looks at what it decides, who answers for the address, the way to the client and back, packet filters, connection
    /// tracking, its sockets, the client's connections, and connects to each endpoint. It changes nothing, and says what it could not
    /// see. Exits 0 (the packet arrives), 1 (it stops or may stop) or 65 (no such Service or port).
    Trace(Trace),
    /// Follow a running gateway's decision for a client of a Service
    ///
    /// Prints the state, then a line for each change: endpoints, their states, the action, shares of clusters, addresses, the announcing
    /// gateway, Problems. Waits for a Service that does not exist yet. Ctrl-C ends it.
    Watch(Watch),
    /// Show what has changed on a running gateway, and when
    ///
    /// Endpoints that came, left, failed and recovered, states of Services, frontends and their settings, Problems, owners of addresses,
    /// and what went wrong with the process. The latest events are kept across restarts and upgrades.
    Events(Events),
    /// Show the health of a running gateway or controller, or of all gateways
    ///
    /// Shows the objects it follows, how fresh they are, and its Problems. Exits 0 (healthy), 1 (degraded) or 2 (down or not ready).
    Status(Status),
    /// Show the gateways that announce addresses, and which gateway owns each address
    ///
    /// Shows the view of the gateway that is asked: which gateways are alive, which ones it receives heartbeats from, who owns each
    /// address and why.
    Gateways(Gateways),
    /// Show live traffic of a running gateway by Service, endpoint or cluster
    ///
    /// Says first how the gateway is, and lists what is not well above all else. Enter explains a Service, t traces a packet for it, ?
    /// lists all keys. Needs a terminal; --once prints the traffic of one second. IN is what clients send, OUT what they get; NEW counts
    /// TCP connections and UDP flows.
    Top(Top),
    /// Check the configuration and manifests
    ///
    /// Reports every mistake and every load balancer that is not served. Exits 0, 65 (invalid manifests) or 78 (invalid
    /// configuration).
    Validate(Validate),
    /// Translate objects of MetalLB, kube-vip, ServiceLB (k3s), Cilium LB-IPAM or ingress-nginx
    ///
    /// Prints AddressPools and changed Services as YAML for kubectl apply, with the remaining steps as comments, and lists parts without
    /// an equivalent on stderr. The TCP and UDP ports of ingress-nginx become Gateways with routes. Exits 0 (everything is translated), 1 (something has no equivalent) or 65 (a manifest cannot be read).
    Migrate(Migrate),
    /// Remove Sheave's finalizers, addresses and conditions from the Services of a cluster
    ///
    /// Run it after the controller is deleted. Exits 0, or 69 if something is left or the API server does not answer.
    Uninstall(Uninstall),
    /// Show the version, commit and build features
    Version(Version),
    /// Print a completion script for a shell
    ///
    /// For example: source <(sheave completions bash)
    Completions {
        /// Shell to complete for
        shell: Shell,
    },
    /// Print the manual page of Sheave or of one command
    ///
    /// For example: sheave man explain | man -l -
    Man {
        /// Command to describe [default: sheave itself]
        command: Option<String>,
    },
}

/// `sheave demo`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Demo {
    /// Exit after DURATION, for example 10s [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = config::parse_duration)]
    pub(crate) duration: Option<Duration>,
}

/// `sheave run` and `sheave gateway`. Manifests replace the API server, so the flags conflict.
#[derive(Debug, PartialEq, Args)]
#[command(mut_args(|arg| match arg.get_id().as_str() {
    "kubeconfig" | "context" => arg.conflicts_with("manifests"),
    _ => arg,
}))]
pub(crate) struct Run {
    /// Take over from the process that serves on this node, if there is one: a hot upgrade
    ///
    /// Sockets, UDP flows and session affinity go over, so clients notice nothing; the other process keeps its TCP connections until they
    /// end or `timeouts.drain` is over. Both need the same `stateDir`. If that fails, this process exits 69 and the other one serves on.
    #[arg(long)]
    pub(crate) takeover: bool,
    #[command(flatten)]
    pub(crate) manifests: ManifestArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    #[command(flatten)]
    pub(crate) api: ApiServerArgs,
}

/// `sheave controller`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    #[command(flatten)]
    pub(crate) api: ApiServerArgs,
}

/// `sheave migrate`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Migrate {
    /// Folder or file of manifests to read; - reads standard input, for example of kubectl get -A -o yaml
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: PathBuf,
    /// What LoadBalancer Services become
    #[arg(long, value_enum, value_name = "OBJECTS", default_value_t = MigrateTo::Services)]
    pub(crate) to: MigrateTo,
}

/// What `sheave migrate` makes of LoadBalancer Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MigrateTo {
    /// LoadBalancer Services of Sheave
    Services,
    /// Gateways with a TCPRoute or UDPRoute for each port
    GatewayApi,
}

/// `sheave uninstall`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Uninstall {
    /// Show what would be removed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Continue even if a controller is running, which would restore what is removed
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) api: ApiServerArgs,
}

/// `sheave version`.
#[derive(Debug, PartialEq, Args)]
pub(crate) struct Version {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub(crate) output: TextFormat,
}

impl Cli {
    /// Parses the command line. Prints help, the version or mistakes here; the error is the exit code. A program that is called
    /// `kubectl-sheave` shows itself as a kubectl plugin in its help.
    pub(crate) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        let args: Vec<OsString> = args.into_iter().collect();
        let plugin = is_plugin(args.first());
        let parsed = Self::definition(plugin).try_get_matches_from(args).and_then(|matches| {
            let mut cli = Self::from_arg_matches(&matches)?;
            if let Some(running) = cli.command.running_mut() {
                running.plugin = plugin;
            }
            match &cli.command {
                Command::Explain(Explain { asked, .. })
                | Command::Trace(Trace { asked, .. })
                | Command::Watch(Watch { asked, .. }) => asked.check(),
                Command::Events(events) => events.service(String::new).map(drop),
                Command::Diff(diff) => diff.check(),
                Command::Replay(replay) => replay.check(),
                Command::Man { command: Some(name) } if Self::command().find_subcommand(name).is_none() => {
                    Err(format!("there is no command {name}"))
                }
                _ => Ok(()),
            }
            .map_err(|why| Self::command().error(ErrorKind::ValueValidation, why))?;
            Ok(cli)
        });
        parsed.map_err(|error| {
            // Help goes to stdout, mistakes to stderr. A closed stream does not change the exit code.
            error.print().unwrap_or_default();
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Ok,
                _ => Exit::Usage,
            }
        })
    }

    fn definition(plugin: bool) -> clap::Command {
        let command = Self::command();
        if plugin { command.name("kubectl-sheave").bin_name("kubectl sheave") } else { command }
    }

    /// Settings that flags override.
    pub(crate) fn overrides(&self) -> Overrides {
        let (node, api) = match &self.command {
            Command::Run(run) | Command::Gateway(run) => (run.node.name.clone(), Some(&run.api)),
            Command::Controller(controller) => (controller.node.name.clone(), Some(&controller.api)),
            Command::Routes(Routes { sources, .. }) | Command::Explain(Explain { sources, .. }) => {
                (sources.node.name.clone(), Some(&sources.running.api))
            }
            Command::Diff(diff) => (diff.node.clone(), Some(&diff.running.api)),
            Command::Validate(validate) => (validate.node.name.clone(), None),
            Command::Replay(replay) => (replay.node.name.clone(), None),
            // These commands depend on no Node, so they must not fail for want of a Node name.
            Command::Demo(_) => (Some("demo".to_owned()), None),
            Command::Migrate(_) => (Some("none".to_owned()), None),
            Command::Uninstall(uninstall) => (Some("none".to_owned()), Some(&uninstall.api)),
            // The process that is queried has its own node name.
            Command::Watch(Watch { running, .. })
            | Command::Events(Events { running, .. })
            | Command::Trace(Trace { running, .. })
            | Command::Status(Status { running, .. })
            | Command::Gateways(Gateways { running, .. })
            | Command::Top(Top { running, .. }) => (None, Some(&running.api)),
            Command::Version(_) | Command::Completions { .. } | Command::Man { .. } => (None, None),
        };
        let (kubeconfig, context) =
            api.map_or((None, None), |api| (api.kubeconfig.clone(), api.context.clone()));
        Overrides { node, kubeconfig, context }
    }
}

impl Command {
    /// Arguments that select the running process, for commands that query one.
    fn running_mut(&mut self) -> Option<&mut RunningArgs> {
        match self {
            Self::Routes(Routes { sources, .. }) | Self::Explain(Explain { sources, .. }) => {
                Some(&mut sources.running)
            }
            Self::Diff(Diff { running, .. })
            | Self::Watch(Watch { running, .. })
            | Self::Events(Events { running, .. })
            | Self::Trace(Trace { running, .. })
            | Self::Status(Status { running, .. })
            | Self::Gateways(Gateways { running, .. })
            | Self::Top(Top { running, .. }) => Some(running),
            _ => None,
        }
    }
}

/// Whether the program was run as a kubectl plugin, judged by its name.
fn is_plugin(program: Option<&OsString>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "kubectl-sheave")
}

const ENVIRONMENT: &str = "\
Environment:
  KUBECONFIG  kubeconfig to use where no flag and no configuration names one, outside of Pods
  NODE_NAME   name of the Node, where no flag and no configuration gives one
  RUST_LOG    log filter, for example info,sheave_dataplane=debug; overrides `logging.level`
  NO_COLOR    disables colors if set

Flags override the configuration file, which overrides KUBECONFIG and NODE_NAME.";

fn long_help() -> String {
    format!("{ENVIRONMENT}\n\nConfiguration file, with every key and its default:\n\n{}", config::REFERENCE)
}

#[cfg(test)]
mod tests;
