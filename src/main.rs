//! The `sheave` command: reads the command line and the configuration, and hands over to what was asked for.

mod cli;
mod commands;
mod config;
mod exit;
mod gateway;
mod http;
mod logging;
mod process;
mod retry;
mod views;

use std::process::ExitCode;

use cli::{Cli, Command};
use commands::{demo, inspect, stdout, uninstall};
use config::Config;
use exit::Exit;
use process::gateway::ObjectSource;
use process::{controller, serve};

fn main() -> ExitCode {
    let cli = match Cli::from_args(std::env::args_os()) {
        Ok(cli) => cli,
        Err(exit) => return exit.into(),
    };
    execute(cli).into()
}

fn execute(cli: Cli) -> Exit {
    let config = Config::load(cli.config.as_deref(), &cli.overrides());
    match (cli.command, config) {
        (Command::Version, _) => stdout::print(concat!("sheave ", env!("CARGO_PKG_VERSION"), "\n")),
        (Command::Validate(validate), config) => inspect::validate(&validate, config),
        (_, Err(mistakes)) => inspect::tell_mistakes(&mistakes),
        (Command::Routes(routes), Ok(config)) => inspect::routes(&routes, &config),
        (Command::Explain(explain), Ok(config)) => inspect::explain(&explain, &config),
        (Command::Run(run), Ok(config)) => {
            let source =
                run.manifests.as_deref().map_or(ObjectSource::ApiWithController, ObjectSource::Manifests);
            serve(
                &config,
                process::gateway::run(&config, source, run.karmada_manifests.as_deref(), None, |_| ()),
            )
        }
        (Command::Gateway(run), Ok(config)) => {
            let source = run.manifests.as_deref().map_or(ObjectSource::Api, ObjectSource::Manifests);
            serve(
                &config,
                process::gateway::run(&config, source, run.karmada_manifests.as_deref(), None, |_| ()),
            )
        }
        (Command::Controller(_), Ok(config)) => serve(&config, controller::run(&config)),
        (Command::Status(status), Ok(config)) => inspect::status(&status, &config),
        (Command::Uninstall(options), Ok(config)) => serve(&config, uninstall::run(&options, &config)),
        (Command::Demo(demo), Ok(config)) => {
            let logging = config.clone();
            serve(&logging, demo::run(config, demo.duration))
        }
    }
}
