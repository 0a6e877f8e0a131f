//! `sheave diff`: what manifests would change of the routing table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sheave_control::api::problem::reason;
use sheave_control::api::store::ServiceKey;

use super::inspect::routes_of_gateway;
use super::manifests::{ManifestProjection, Manifests};
use super::stdout::{print, render};
use crate::cli::Diff;
use crate::config::Config;
use crate::exit::Exit;
use crate::views::diff::DiffView;
use crate::views::problem::ProblemView;
use crate::views::routes::RoutesView;

/// Compares what a gateway serves, or would by other manifests, with what it would serve by these.
pub(crate) fn run(command: &Diff, config: &Config) -> Exit {
    match compared(command, config) {
        Err(exit) => exit,
        Ok(diff) => match print(&render(&diff, || diff.to_text(), command.output)) {
            Exit::Ok if !diff.is_empty() => Exit::Differs,
            exit => exit,
        },
    }
}

fn compared(command: &Diff, config: &Config) -> Result<DiffView, Exit> {
    let old_folders = command.old_folders();
    let against_gateway = old_folders.is_none();
    let mut old = match old_folders {
        Some(folders) => ManifestProjection::read(folders, config)?.routes(config),
        None => routes_of_gateway(&command.running, config)?,
    };
    // Which endpoints are local depends on the Node.
    let of_gateway = against_gateway && command.node.is_none();
    let config =
        Config { node: if of_gateway { old.node.clone() } else { config.node.clone() }, ..config.clone() };
    // One of the flags is required.
    let folders = command.new_folders().ok_or(Exit::Usage)?;
    let manifests = Manifests::read(folders)?.keeping_addresses(&published(&old));
    let mut new = ManifestProjection::new(manifests, &config).routes(&config);
    if against_gateway {
        old.problems.retain(is_of_table);
        new.problems.retain(is_of_table);
    }
    Ok(DiffView::new(&old, &new))
}

/// Whether gateways and manifests alike have a Problem: a gateway knows what happens while it runs, and not what controllers do.
fn is_of_table(problem: &ProblemView) -> bool {
    const OF_TABLES: [&str; 8] = [
        reason::INVALID_VALUE,
        reason::PROTOCOL_NOT_SUPPORTED,
        reason::ADDRESS_IN_USE,
        reason::EXTERNAL_IP_REFUSED,
        reason::SOURCE_RANGES_ONE_FAMILY,
        reason::ENDPOINT_LOOP,
        reason::LEGACY_FIELD,
        reason::NOT_ACROSS_CLUSTERS,
    ];
    OF_TABLES.contains(&problem.reason.as_str()) && problem.object.contains("Service ")
}

/// The addresses that each load balancer has.
fn published(view: &RoutesView) -> BTreeMap<ServiceKey, Vec<IpAddr>> {
    let addresses = view.status.iter().filter_map(|status| {
        let (namespace, name) = status.service.split_once('/')?;
        let ips = status.ingress.iter().filter_map(|ingress| ingress.ip.parse().ok()).collect();
        Some((ServiceKey::new(namespace, name), ips))
    });
    addresses.collect()
}
