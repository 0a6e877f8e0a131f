//! The new manifests as a compiled table: with what is taken out, and with the addresses that the log shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sheave_control::api::store::ServiceKey;
use sheave_control::projection::AbsentEndpoints;
use sheave_dataplane::select::ActiveTable;
use sheave_model::{Frontend, FrontendSource};

use super::names::{LoggedNames, LoggedRoute, ServiceName};
use crate::arguments::Folders;
use crate::exit::Exit;
use crate::manifests::ManifestProjection;
use crate::options::Options;
use crate::stdout::complain;

/// Maximum number of projections. A log usually needs one or two: the first window shows almost all Services.
const MOST_PROJECTIONS: u32 = 32;

/// The table of the new manifests.
pub(super) struct NewTable {
    /// `None` only while it is projected anew.
    projected: Option<ManifestProjection>,
    config: Options,
    /// Addresses that the log shows, of load balancers that have none in the manifests.
    published: BTreeMap<ServiceKey, Vec<IpAddr>>,
    /// Whether `published` has addresses that the table was not projected with.
    stale: bool,
    projections: u32,
    active: ActiveTable,
}

impl NewTable {
    /// Reads manifests and takes endpoints out. Reports errors.
    pub(super) fn read(
        folders: Folders<'_>,
        absent: AbsentEndpoints,
        config: &Options,
    ) -> Result<Self, Exit> {
        let mut config = config.clone();
        let mut projected = ManifestProjection::read(folders, &config)?;
        if !absent.is_empty() {
            check_names(&absent, &projected).map_err(|why| {
                complain(&why);
                Exit::Data
            })?;
            config.projection.absent = Arc::new(absent);
            projected = projected.projected_anew(&BTreeMap::new(), &config);
        }
        let active = ActiveTable::compile(Arc::clone(projected.table()), &ActiveTable::default());
        Ok(Self {
            projected: Some(projected),
            config,
            published: BTreeMap::new(),
            stale: false,
            projections: 1,
            active,
        })
    }

    /// The compiled table.
    pub(super) fn active(&self) -> &ActiveTable {
        &self.active
    }

    /// The projection behind it.
    pub(super) fn projected(&self) -> Option<&ManifestProjection> {
        self.projected.as_ref()
    }

    /// Notes the frontends that logs have shown since the last call.
    pub(super) fn note_frontends(&mut self, names: &mut LoggedNames) {
        let new: Vec<LoggedRoute> = names.new_routes().to_vec();
        for LoggedRoute { service, frontend } in new {
            let key = service_key(names.service_of(service));
            let objects = self.projected.as_ref().map(ManifestProjection::objects);
            if objects.is_some_and(|objects| objects.is_at_published_address(&key, frontend)) {
                let addresses = self.published.entry(key).or_default();
                if !addresses.contains(&frontend.ip()) {
                    addresses.push(frontend.ip());
                    self.stale = true;
                }
            }
        }
    }

    /// Projects the manifests with the addresses of the log; false if that would change nothing. Manifests that were exported without a
    /// status would get other addresses from their pools, while a controller keeps those that are published.
    pub(super) fn follow_addresses(&mut self) -> bool {
        if !std::mem::take(&mut self.stale) || self.projections >= MOST_PROJECTIONS {
            return false;
        }
        let Some(projected) = self.projected.take() else { return false };
        let projected = projected.projected_anew(&self.published, &self.config);
        // Affinity records and loads stay valid.
        self.active = ActiveTable::compile(Arc::clone(projected.table()), &self.active);
        self.projected = Some(projected);
        self.projections += 1;
        true
    }
}

fn service_key(name: &ServiceName) -> ServiceKey {
    let (namespace, service) = name.parts();
    match name.source {
        FrontendSource::Service => ServiceKey::new(namespace, service),
        FrontendSource::MultiClusterService => ServiceKey::multi_cluster(namespace, service),
        FrontendSource::Gateway => ServiceKey::gateway(namespace, service),
    }
}

/// Refuses names of nodes, zones and clusters that no endpoint has: a typing error would look as if nothing changed.
fn check_names(absent: &AbsentEndpoints, projected: &ManifestProjection) -> Result<(), String> {
    let mut known = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
    let pools = projected.table().frontends().iter().flat_map(|frontend| frontend.pools());
    for backend in pools.flat_map(|pool: &Frontend| pool.backends.iter()) {
        let [nodes, zones, clusters] = &mut known;
        clusters.insert(backend.cluster.to_string());
        for endpoint in &backend.endpoints {
            for (names, name) in [(&mut *nodes, &endpoint.node), (&mut *zones, &endpoint.zone)] {
                if !name.is_empty() {
                    names.insert(name.to_string());
                    names.insert(format!("{}/{name}", backend.cluster));
                }
            }
        }
    }
    let [nodes, zones, clusters] = &mut known;
    let objects = projected.objects();
    nodes.extend(objects.nodes.keys().map(ToString::to_string));
    clusters.extend(objects.fleet.clusters.keys().map(ToString::to_string));
    let given = [
        ("node", &absent.nodes, nodes),
        ("zone", &absent.zones, zones),
        ("cluster", &absent.clusters, clusters),
    ];
    for (kind, names, known) in given {
        if let Some(unknown) = names.iter().find(|name| !known.contains(*name)) {
            return Err(format!(
                "--without-{kind} {unknown}: no endpoint of the manifests is there; {}",
                listed(kind, known)
            ));
        }
    }
    Ok(())
}

/// Sentence with the known names.
fn listed(kind: &str, known: &BTreeSet<String>) -> String {
    const LISTED: usize = 8;
    let names: Vec<&str> = known.iter().filter(|name| !name.contains('/')).map(String::as_str).collect();
    match names.len() {
        0 => format!("the manifests name no {kind}"),
        count if count > LISTED => {
            format!("there are {count} {kind}s, for example {}", names[..LISTED].join(", "))
        }
        _ => format!("there are: {}", names.join(", ")),
    }
}
