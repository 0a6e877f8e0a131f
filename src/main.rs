//! The `sheave` command: reads the command line and the configuration, and hands over to what was asked for.

mod admin;
mod app;
mod cli;
mod client;
mod columns;
mod config;
mod controller;
mod demo;
mod exit;
mod explain;
mod exposition;
mod gateway;
mod health;
mod logging;
mod offline;
mod output;
mod report;
mod retry;
mod routes;
mod scrape;
mod server;
mod signal;
mod status;
mod steering;
mod uninstall;

use std::process::ExitCode;
use std::time::Duration;

use cli::{Cli, Command};
use config::Config;
use exit::Exit;
use gateway::Source;

/// How long the end of the process may wait for work that cannot be called off, as a scan of a hung file system.
const LAST_WORK: Duration = Duration::from_secs(1);

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
        (Command::Version, _) => output::print(concat!("sheave ", env!("CARGO_PKG_VERSION"), "\n")),
        (Command::Validate(validate), config) => offline::validate(&validate, config),
        (_, Err(mistakes)) => offline::tell_mistakes(&mistakes),
        (Command::Routes(routes), Ok(config)) => offline::routes(&routes, &config),
        (Command::Explain(explain), Ok(config)) => offline::explain(&explain, &config),
        (Command::Run(run), Ok(config)) => {
            let source = run.manifests.as_deref().map_or(Source::ApiWithController, Source::Manifests);
            serve(&config, gateway::run(&config, source, run.karmada_manifests.as_deref(), None, |_| ()))
        }
        (Command::Gateway(run), Ok(config)) => {
            let source = run.manifests.as_deref().map_or(Source::Api, Source::Manifests);
            serve(&config, gateway::run(&config, source, run.karmada_manifests.as_deref(), None, |_| ()))
        }
        (Command::Controller(_), Ok(config)) => serve(&config, controller::run(&config)),
        (Command::Status(status), Ok(config)) => offline::status(&status, &config),
        (Command::Uninstall(options), Ok(config)) => serve(&config, uninstall::run(&options, &config)),
        (Command::Demo(demo), Ok(config)) => {
            let logging = config.clone();
            serve(&logging, demo::run(config, demo.duration))
        }
    }
}

/// Runs the control side on this thread; the workers have their own.
fn serve(config: &Config, process: impl Future<Output = Exit>) -> Exit {
    let logs = logging::init(&config.logging);
    let exit = complete(process);
    drop(logs);
    exit
}

fn complete(process: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(process);
            runtime.shutdown_timeout(LAST_WORK);
            exit
        }
        Err(error) => {
            eprintln!("sheave: no reactor for the control loop: {error}");
            Exit::Software
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_that_hangs_does_not_keep_the_process_from_ending() {
        let (release, released) = mpsc::channel::<()>();
        let (started, has_started) = tokio::sync::oneshot::channel();
        let process = async {
            let hanging = tokio::task::spawn_blocking(move || {
                started.send(()).unwrap();
                released.recv().unwrap_err();
            });
            has_started.await.unwrap();
            drop(hanging);
            Exit::Ok
        };
        assert_eq!(complete(process), Exit::Ok);
        drop(release);
    }
}
