//! Migrations of a text, and what is served of their output.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sheave_model::{ClientSource, FrontendKind};

use super::super::{Migration, MigrationOptions, ServiceTarget, migrate};
use super::OPTIONS;
use crate::api::store::Dirty;
use crate::projection::{Options, Projector};
use crate::sources::manifests::{self, RawManifests};

/// What must be there for Gateways to be served.
pub(super) const CLUSTER: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: sheave}
spec: {controllerName: sheave.dev/gateway}
---
apiVersion: v1
kind: Node
metadata: {name: gw-1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
";

/// A pool with the addresses of all tests.
pub(super) const POOL: &str = "
apiVersion: sheave.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec: {addresses: [203.0.113.0/24]}
";

pub(super) fn migrated(text: &str, services: ServiceTarget) -> Migration {
    let read = RawManifests::parse("x.yaml", text);
    assert!(read.problems.is_empty(), "{:?}", read.problems);
    migrate(&read.objects, &MigrationOptions { services, ..OPTIONS })
}

/// Everything that is reported, as `field: message`.
pub(super) fn reports(migration: &Migration) -> Vec<String> {
    let of_objects = migration.objects.iter().flat_map(|object| &object.left);
    let all = of_objects.chain(&migration.left);
    all.map(|it| format!("{}: {}: {}", it.problem.object, it.problem.field, it.problem.message)).collect()
}

/// The objects of a migration as a file.
pub(super) fn yaml(migration: &Migration) -> String {
    let objects = migration.objects.iter().map(|it| serde_saphyr::to_string(&it.manifest).unwrap());
    objects.collect::<Vec<_>>().join("---\n")
}

/// Objects of this kind in a migration.
pub(super) fn of_kind<'a>(migration: &'a Migration, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    migration.objects.iter().map(|it| &it.manifest).filter(move |it| it["kind"] == kind)
}

/// Endpoints, source ranges and client source of a load balancer's frontend.
pub(super) type Served = (BTreeSet<String>, String, ClientSource);

/// The load balancers' frontends of these manifests, by address, and their Problems.
pub(super) fn served(texts: &[&str]) -> (BTreeMap<String, Served>, Vec<String>) {
    let folder = tempfile::TempDir::new().unwrap();
    for (number, text) in texts.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.yaml")), text).unwrap();
    }
    let loaded = manifests::load(folder.path());
    let options = Options {
        node: "gw-1".to_owned(),
        handle_unclassified: true,
        accept_proxy_allow: ["0.0.0.0/0", "::/0"].map(|cidr| cidr.parse().unwrap()).to_vec(),
        ..Options::default()
    };
    let projection = Projector::new(options).project(&loaded.objects, &Dirty::Everything);
    let mut problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    problems.extend(projection.problems.iter().map(|it| format!("{it:?}")));
    let frontends = projection.table.frontends().iter();
    let frontends = frontends.filter(|it| it.kind == FrontendKind::LoadBalancer).map(|frontend| {
        let backends = frontend.pools().flat_map(|pool| pool.backends.iter());
        let endpoints = backends.flat_map(|it| it.endpoints.iter()).map(|it| format!("{:?}", it.addr));
        let ranges = format!("{:?}", frontend.source_ranges);
        (frontend.addr.to_string(), (endpoints.collect(), ranges, frontend.client_sources.external))
    });
    (frontends.collect(), problems)
}
