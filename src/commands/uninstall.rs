//! `sheave uninstall`: removes what Sheave wrote to Services, MultiClusterServices and objects of the Gateway API, and prints it.

use std::sync::Arc;

use sheave_console::exit::Exit;
use sheave_console::stdout;
use sheave_control::controller::ownership::Ownership;
use sheave_control::controller::uninstall::{
    GatewayApiMarks, GatewayApiUninstall, Leftover, Uninstall, UninstallError, leader,
};
use sheave_control::sources::connection::Connection;

use crate::cli;
use crate::config::Config;
use crate::process::{connect, connect_karmada};

/// Runs the command. Exits 0 if everything is removed, and 69 if something is left or may be.
pub(crate) async fn run(options: &cli::Uninstall, config: &Config) -> Exit {
    let connection = match connect(config, "uninstall").await {
        Ok(connection) => connection,
        Err(why) => return failed(&why),
    };
    if !options.dry_run && !options.force && !nobody_leads(&connection, config).await {
        return Exit::Unavailable;
    }
    let names = Ownership::new(&config.load_balancer_class, config.shared_finalizer);
    let services = Uninstall::new(&connection, names.clone());
    let mut parts = vec![KindCleanup { kind: "Service", uninstall: services, server: connection.server() }];
    match connect_karmada(config, "uninstall").await {
        Ok(Some(karmada)) => parts.push(KindCleanup {
            kind: "MultiClusterService",
            uninstall: Uninstall::of_fleet(&karmada, names.clone()),
            server: karmada.server(),
        }),
        Ok(None) => {}
        Err(why) => return failed(&why),
    }
    let mut exit = Exit::Ok;
    for part in &parts {
        // A failure at one API server does not stop the cleanup at the other.
        let ended = part.run(options.dry_run).await;
        exit = if exit == Exit::Ok { ended } else { exit };
    }
    let Some(controller) = config.gateway_api.owned_name() else { return exit };
    let uninstall = GatewayApiUninstall::new(&connection, names, controller);
    let ended = run_gateway_api(&uninstall, &connection.server(), options.dry_run).await;
    if exit == Exit::Ok { ended } else { exit }
}

/// Cleans the objects of the Gateway API, and names the Gateways that stay without a controller.
async fn run_gateway_api(uninstall: &GatewayApiUninstall, server: &str, dry_run: bool) -> Exit {
    let GatewayApiMarks { marked, gateways } = match uninstall.find().await {
        Ok(found) => found,
        Err(error) => return failed(&format!("the Gateways of {server} cannot be listed: {error}")),
    };
    let mut lines = String::new();
    let (mut cleaned, mut left) = (0, Vec::new());
    for leftover in &marked {
        if dry_run {
            lines.push_str(&format!("{leftover}\n"));
            continue;
        }
        match uninstall.clean(leftover).await {
            Ok(()) => {
                cleaned += 1;
                lines.push_str(&format!("{leftover}: removed\n"));
            }
            Err(error) => {
                stdout::complain(&format!("{leftover}: not removed: {error}"));
                left.push(leftover.name());
            }
        }
    }
    if !marked.is_empty() {
        let objects = |number: usize, what| count("object", number, &format!("of the Gateway API {what}"));
        lines.push_str(&match dry_run {
            true => format!("{}: nothing was changed\n", objects(marked.len(), "would be cleaned")),
            false => format!("{}\n", objects(cleaned, "cleaned")),
        });
    }
    for gateway in gateways {
        lines.push_str(&format!("Gateway {gateway} still has a GatewayClass of Sheave\n"));
    }
    let printed = if lines.is_empty() { Exit::Ok } else { stdout::print(&lines) };
    if left.is_empty() {
        return printed;
    }
    failed(&format!("not clean: {}; run the command again", left.join(", ")))
}

/// Cleanup of one kind of objects at their API server.
struct KindCleanup {
    kind: &'static str,
    uninstall: Uninstall,
    server: Arc<str>,
}

impl KindCleanup {
    async fn run(&self, dry_run: bool) -> Exit {
        let Self { kind, uninstall, server } = self;
        match uninstall.find().await {
            Err(error) => failed(&format!("the {kind}s of {server} cannot be listed: {error}")),
            Ok(found) if dry_run => list(kind, &found),
            Ok(found) => clean(kind, uninstall, &found).await,
        }
    }
}

async fn nobody_leads(connection: &Connection, config: &Config) -> bool {
    let lease = &config.lease;
    let why = match leader(connection, lease).await {
        Ok(None) => return true,
        Ok(Some(leader)) => format!(
            "the controller {leader} runs (it renews the Lease {lease}) and would put everything back; \
             delete its Deployment first"
        ),
        Err(error) => {
            let server = connection.server();
            format!("the Lease {lease} of {server} cannot be read, so a controller may be running: {error}")
        }
    };
    stdout::complain(&format!("{why}; use --force to continue anyway. Nothing was changed"));
    false
}

fn list(kind: &str, found: &[Leftover]) -> Exit {
    let lines: String = found.iter().map(|it| format!("{it}\n")).collect();
    stdout::print(&format!("{lines}{}: nothing was changed\n", count(kind, found.len(), "would be cleaned")))
}

async fn clean(kind: &str, uninstall: &Uninstall, found: &[Leftover]) -> Exit {
    let mut cleaned = 0;
    let mut left = Vec::new();
    for (place, leftover) in found.iter().enumerate() {
        match uninstall.clean(leftover).await {
            Ok(()) => {
                cleaned += 1;
                if stdout::print(&format!("{leftover}: removed\n")) != Exit::Ok {
                    return Exit::Software;
                }
            }
            Err(error) => {
                stdout::complain(&format!("{leftover}: not removed: {error}"));
                left.push(leftover);
                if matches!(error, UninstallError::Unavailable(_)) {
                    left.extend(&found[place + 1..]);
                    break;
                }
            }
        }
    }
    let printed = stdout::print(&format!("{}\n", count(kind, cleaned, "cleaned")));
    if left.is_empty() {
        return printed;
    }
    let names: Vec<_> = left.iter().map(|it| it.service.to_string()).collect();
    failed(&format!("not clean: {}; run the command again", names.join(", ")))
}

fn count(kind: &str, objects: usize, what: &str) -> String {
    let s = if objects == 1 { "" } else { "s" };
    format!("{objects} {kind}{s} {what}")
}

fn failed(why: &str) -> Exit {
    stdout::complain(why);
    Exit::Unavailable
}
