//! Cases of the bench: each builds its cluster, runs Sheave against it and returns rows.

mod changes;
mod controller;
mod fleet;
mod gateways;
mod scrape;
mod start;
mod top;

use clap::ValueEnum;

use crate::objects;
use crate::options::Sizes;
use crate::process::Sheave;
use crate::report::Row;
use crate::support::apiserver::ApiServer;

use self::start::Marks;

/// Number of endpoints of each Service in the usual cluster.
const ENDPOINTS: u32 = 10;

/// Case of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// A gateway with ten endpoints per Service: start, single changes, new list
    Gateway,
    /// Services without addresses until the controller has published all of them; then idle, with a gateway
    Controller,
    /// Very many Services with two endpoints each
    Many,
    /// Services with fifty endpoints each
    Wide,
    /// MultiClusterServices over twenty clusters, with ten endpoints in each
    Fleet,
    /// A controller with a thousand gateways that report
    Gateways,
    /// A scrape of /metrics with series for every frontend
    Scrape,
    /// `sheave top` on a terminal, in each of its views, idle and with traffic
    Top,
}

impl Case {
    /// All cases, in the order in which they run.
    pub(crate) const ALL: [Self; 8] = [
        Self::Gateway,
        Self::Controller,
        Self::Many,
        Self::Wide,
        Self::Fleet,
        Self::Gateways,
        Self::Scrape,
        Self::Top,
    ];

    /// Runs the case.
    pub(crate) fn run(self, sizes: &Sizes) -> Vec<Row> {
        match self {
            Self::Gateway => {
                let server = cluster(sizes.services, ENDPOINTS, true);
                let case = title(sizes.services, ENDPOINTS);
                let (gateway, mut rows) = start::run(&case, &server, sizes.services, sizes.full);
                rows.extend(changes::run(&case, &gateway, sizes, |change| {
                    let number = change.wrapping_mul(7_919) % sizes.services;
                    server.load(objects::slices(number, ENDPOINTS, change / sizes.services + 1));
                }));
                rows.extend(changes::relist(&case, &server, &gateway));
                rows
            }
            Self::Controller => controller::run(sizes),
            Self::Fleet => fleet::run(sizes),
            Self::Gateways => gateways::run(sizes),
            Self::Scrape => scrape::run(sizes),
            Self::Top => top::run(sizes),
            Self::Many => {
                let server = cluster(sizes.many, 2, true);
                let marks = Marks { ready: 5.0, memory: 800.0, count: sizes.full };
                let gateway = Sheave::start("gateway", &server);
                start::watch(&title(sizes.many, 2), gateway, sizes.many, marks).1
            }
            Self::Wide => {
                let server = cluster(sizes.wide, sizes.wide_endpoints, true);
                start::run(&title(sizes.wide, sizes.wide_endpoints), &server, sizes.wide, false).1
            }
        }
    }
}

fn title(services: u32, endpoints: u32) -> String {
    format!("{services} Services, {} endpoints", services * endpoints)
}

/// API server with this many Services, before or after they were published.
fn cluster(services: u32, endpoints: u32, published: bool) -> ApiServer {
    let server = ApiServer::start();
    server.load([objects::pool_definition()]);
    server.load([objects::pool()]);
    server.load(objects::nodes());
    server.load((0..services).map(|number| objects::service(number, published)));
    server.load((0..services).flat_map(|number| objects::slices(number, endpoints, 0)));
    server
}
