//! `sheave diff`: what manifests would change in the routing table.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sheave_control::api::problem::reason;
use sheave_control::api::store::ServiceKey;
use sheave_model::FrontendSource;

use crate::arguments::Diff;
use crate::exit::Exit;
use crate::inspect::routes_of_gateway;
use crate::manifests::{ManifestProjection, Manifests};
use crate::options::Options;
use crate::stdout::{print, render};
use crate::views::diff::DiffView;
use crate::views::problem::ProblemView;
use crate::views::routes::{RoutesView, source_name};

/// Compares the routing table of a gateway, or of other manifests, with that of the new manifests.
pub fn run(command: &Diff, config: &Options) -> Exit {
    match compared(command, config) {
        Err(exit) => exit,
        Ok(diff) => match print(&render(&diff, || diff.to_text(), command.output)) {
            Exit::Ok if !diff.is_empty() => Exit::Differs,
            exit => exit,
        },
    }
}

fn compared(command: &Diff, config: &Options) -> Result<DiffView, Exit> {
    let old_folders = command.old_folders();
    let against_gateway = old_folders.is_none();
    let mut old = match old_folders {
        Some(folders) => ManifestProjection::read(folders, config)?.routes(config),
        None => routes_of_gateway(&command.running, config)?,
    };
    // The Node decides which endpoints are local.
    let of_gateway = against_gateway && command.node.is_none();
    let mut config = config.clone();
    if of_gateway {
        config.projection.node.clone_from(&old.node);
    }
    // clap requires one of the flags.
    let folders = command.new_folders().ok_or(Exit::Usage)?;
    let manifests = Manifests::read(folders)?.keeping_addresses(&published(&old));
    let mut new = ManifestProjection::new(manifests, &config).routes(&config);
    if against_gateway {
        old.problems.retain(is_of_table);
        new.problems.retain(is_of_table);
    }
    Ok(DiffView::new(&old, &new))
}

/// Whether both gateways and manifests report this Problem. A gateway also reports runtime Problems, but none of those that
/// controllers report.
fn is_of_table(problem: &ProblemView) -> bool {
    const OF_TABLES: [&str; 9] = [
        reason::INVALID_VALUE,
        reason::PROTOCOL_NOT_SUPPORTED,
        reason::ADDRESS_IN_USE,
        reason::NODE_PORT_CONFLICT,
        reason::EXTERNAL_IP_REFUSED,
        reason::SOURCE_RANGES_ONE_FAMILY,
        reason::ENDPOINT_LOOP,
        reason::LEGACY_FIELD,
        reason::NOT_ACROSS_CLUSTERS,
    ];
    OF_TABLES.contains(&problem.reason.as_str()) && problem.object.contains("Service ")
}

/// Addresses of each load balancer.
fn published(view: &RoutesView) -> BTreeMap<ServiceKey, Vec<IpAddr>> {
    let addresses = view.status.iter().filter_map(|status| {
        let (namespace, name) = status.service.split_once('/')?;
        let ips = status.ingress.iter().filter_map(|ingress| ingress.ip.parse().ok()).collect();
        let is_of_fleet = status.source == source_name(FrontendSource::MultiClusterService);
        let key = if is_of_fleet { ServiceKey::multi_cluster } else { ServiceKey::new };
        Some((key(namespace, name), ips))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::arguments::Folders;

    const SERVICE: &str = "kind: Service
metadata: {namespace: shop, name: web}
spec: {type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ports: [{port: 80}]}
";
    const POOL: &str = "apiVersion: sheave.dev/v1alpha1
kind: AddressPool
metadata: {name: main}
spec: {addresses: [203.0.113.0/24]}
";
    const FLEET: &str = "apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.karmada.io/v1alpha1
kind: MultiClusterService
metadata: {namespace: shop, name: web, annotations: {sheave.dev/load-balancer-class: sheave.dev/l4}}
spec: {types: [LoadBalancer]}
";

    /// Routes of a Service and a MultiClusterService of the same name, with these statuses, or with the published addresses.
    fn routes(statuses: [&str; 2], published: Option<&RoutesView>) -> RoutesView {
        let folder = tempfile::tempdir().unwrap();
        let [local, karmada] = ["local", "karmada"].map(|part| folder.path().join(part));
        let write = |folder: &std::path::Path, text: String| {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("all.yaml"), text).unwrap();
        };
        write(&local, format!("apiVersion: v1\n{SERVICE}{}\n---\n{POOL}", statuses[0]));
        write(&karmada, format!("{FLEET}{}\n", statuses[1]));
        let config = Options::of_node("gw-1");
        let folders = Folders { local: Some(&local), karmada: Some(&karmada) };
        let mut manifests = Manifests::read(folders).unwrap();
        if let Some(published) = published {
            manifests = manifests.keeping_addresses(&super::published(published));
        }
        ManifestProjection::new(manifests, &config).routes(&config)
    }

    #[test]
    fn a_service_and_a_multi_cluster_service_of_one_name_each_keep_their_own_address() {
        let status = |ip: &str| format!("status: {{loadBalancer: {{ingress: [{{ip: {ip}}}]}}}}");
        let old = routes([&status("203.0.113.7"), &status("203.0.113.9")], None);
        assert_eq!(old.frontends.len(), 2);
        let new = routes(["", ""], Some(&old));
        let diff = DiffView::new(&old, &new);
        assert!(diff.is_empty(), "{}", diff.to_text());
    }
}
