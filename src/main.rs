//! `sheave` command: parses the command line, loads the configuration and runs the command.

mod cli;
mod commands;
mod config;
mod gateway;
mod logging;
mod process;
mod takeover;

use std::process::ExitCode;

use sheave_console::admin_server::AdminServer;
use sheave_console::arguments::RunningArgs;
use sheave_console::exit::Exit;
use sheave_console::{diff, inspect, replay, top, trace, validate, watch};

use cli::{Cli, Command};
use commands::{completions, demo, migrate, status_here, uninstall, version};
use config::{Config, ConfigOrigin};
use gateway::options::console_options;
use process::gateway::{Lifetime, ObjectSource, Takeover};
use process::{controller, serve};

fn main() -> ExitCode {
    let cli = match Cli::from_args(std::env::args_os()) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    execute(cli).into()
}

fn execute(cli: Cli) -> Exit {
    let origin = ConfigOrigin { file: cli.config.clone(), overrides: cli.overrides() };
    let config = Config::load(origin.file.as_deref(), &origin.overrides);
    match (cli.command, config) {
        (Command::Version(version), _) => version::run(&version),
        (Command::Completions { shell }, _) => completions::completions(shell),
        (Command::Man { command }, _) => completions::man(command.as_deref()),
        (Command::Validate(validate), config) => {
            // The manifests are checked with the default configuration if there are mistakes in it.
            let (config, mistakes) = match config {
                Ok(config) => (config, Vec::new()),
                Err(mistakes) => (Config::fallback(), mistakes),
            };
            validate::run(&validate, &console_options(&config), mistakes)
        }
        (_, Err(mistakes)) => validate::print_mistakes(&mistakes),
        (Command::Routes(routes), Ok(config)) => inspect::routes(&routes, &console_options(&config)),
        (Command::Migrate(options), Ok(config)) => migrate::run(&options, &config),
        (Command::Diff(diff), Ok(config)) => diff::run(&diff, &console_options(&config)),
        (Command::Replay(options), Ok(config)) => replay::run(&options, &console_options(&config)),
        (Command::Explain(explain), Ok(config)) => inspect::explain(&explain, &console_options(&config)),
        (Command::Run(run), Ok(config)) => gateway(&config, origin, &run, ObjectSource::ApiWithController),
        (Command::Gateway(run), Ok(config)) => gateway(&config, origin, &run, ObjectSource::Api),
        (Command::Controller(_), Ok(config)) => serve(&config, controller::run(&config, origin)),
        (Command::Trace(options), Ok(config)) => trace::run(&options, &console_options(&config)),
        (Command::Events(events), Ok(config)) => inspect::events(&events, &console_options(&config)),
        (Command::Watch(options), Ok(config)) => with_server(&options.running, &config, |server| {
            serve(&config, watch::run(&options, &console_options(&config), server))
        }),
        (Command::Status(status), Ok(config)) if status.here => {
            serve(&config, status_here::run(&config.state_dir))
        }
        (Command::Status(status), Ok(config)) if status.fleet => {
            inspect::all_gateways(&status, &console_options(&config))
        }
        (Command::Status(status), Ok(config)) => inspect::status(&status, &console_options(&config)),
        (Command::Gateways(gateways), Ok(config)) => inspect::gateways(&gateways, &console_options(&config)),
        (Command::Top(options), Ok(config)) => {
            with_server(&options.running, &config, |server| serve(&config, top::run(&options, server)))
        }
        (Command::Uninstall(options), Ok(config)) => serve(&config, uninstall::run(&options, &config)),
        (Command::Demo(demo), Ok(config)) => {
            let logging = config.clone();
            serve(&logging, demo::run(config, demo.duration))
        }
    }
}

/// Runs a command that queries a process repeatedly. The connection is opened before this process gives up its privileges, which
/// a credential plugin may need.
fn with_server(running: &RunningArgs, config: &Config, command: impl FnOnce(AdminServer) -> Exit) -> Exit {
    AdminServer::of_process(running, &console_options(config)).map_or_else(|exit| exit, command)
}

/// Runs a gateway on manifests, or on `otherwise` if there are none.
fn gateway(config: &Config, origin: ConfigOrigin, run: &cli::Run, otherwise: ObjectSource<'_>) -> Exit {
    let source = run.manifests.local.as_deref().map_or(otherwise, ObjectSource::Manifests);
    let takeover = if run.takeover { Takeover::Requested } else { Takeover::Allowed };
    let karmada = run.manifests.karmada.as_deref();
    let lifetime = Lifetime { takeover, duration: None, origin: Some(origin) };
    serve(config, process::gateway::run(config, source, karmada, lifetime, |_| ()))
}
