//! A gateway with MultiClusterServices over a fleet of clusters: start, and one changed Work at a time.

use crate::fleet;
use crate::objects;
use crate::options::Sizes;
use crate::process::Sheave;
use crate::report::Row;
use crate::support::apiserver::ApiServer;

use super::changes;
use super::start::{self, Marks};

/// Number of member clusters.
const CLUSTERS: u32 = 20;
/// Number of endpoints of each Service in each cluster.
const ENDPOINTS: u32 = 10;

/// Starts the gateway and applies changes.
pub(super) fn run(sizes: &Sizes) -> Vec<Row> {
    let services = sizes.fleet;
    let case = format!("{services} in a fleet, {} endpoints", services * CLUSTERS * ENDPOINTS);
    let server = ApiServer::start();
    server.load([objects::pool_definition()]);
    server.load(objects::nodes());
    let karmada = ApiServer::start();
    karmada.aggregate_clusters();
    karmada.load(fleet::definitions());
    karmada.load(fleet::clusters(CLUSTERS));
    karmada.load((0..services).flat_map(fleet::service));
    let works = (0..services).flat_map(|number| (0..CLUSTERS).map(move |cluster| (number, cluster)));
    karmada.load(works.map(|(number, cluster)| fleet::work(number, cluster, ENDPOINTS, 0)));
    let gateway = Sheave::start_with("gateway", &server, Some(&karmada), "");
    let marks = Marks { ready: 3.0, memory: 600.0, count: sizes.full };
    let (gateway, mut rows) = start::watch(&case, gateway, services, marks);
    rows.extend(changes::run(&case, &gateway, sizes, |change| {
        let number = change.wrapping_mul(7_919) % services;
        let work = fleet::work(number, change % CLUSTERS, ENDPOINTS, change / services + 1);
        karmada.load([work]);
    }));
    rows
}
