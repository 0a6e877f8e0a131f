//! Command line of the bench (everything after `--`), and the resulting sizes.

use std::time::Duration;

use clap::Parser;

use crate::cases::Case;

/// Measures gateway and controller with the number of objects of large clusters.
#[derive(Debug, Parser)]
#[command(name = "scale")]
pub(crate) struct Options {
    /// A tenth of everything, less than a minute in total; marks do not count
    #[arg(long)]
    quick: bool,
    /// Only these cases
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Case::ALL)]
    only: Vec<Case>,
    /// Exit with 1 if a mark is missed
    #[arg(long)]
    pub(crate) strict: bool,
    /// Passed by cargo to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// Sizes of the cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Whether the marks apply to these sizes.
    pub(crate) full: bool,
    /// Services of most cases.
    pub(crate) services: u32,
    /// Services with two endpoints each.
    pub(crate) many: u32,
    /// Services with [`Sizes::wide_endpoints`] each.
    pub(crate) wide: u32,
    /// Endpoints of each Service of the wide case.
    pub(crate) wide_endpoints: u32,
    /// MultiClusterServices.
    pub(crate) fleet: u32,
    /// Services in the scrape with series for every frontend.
    pub(crate) scraped: u32,
    /// Gateways that report to a controller.
    pub(crate) gateways: u32,
    /// Number of endpoint changes that are timed.
    pub(crate) changes: u32,
    /// How long idle processes are observed.
    pub(crate) idle: Duration,
}

impl Options {
    /// Requested cases, in order.
    pub(crate) fn cases(&self) -> Result<Vec<Case>, String> {
        if self.only.is_empty() {
            return Err("--only names no case".to_owned());
        }
        Ok(Case::ALL.into_iter().filter(|case| self.only.contains(case)).collect())
    }

    /// Sizes of kube-proxy's own scale tests, or a tenth.
    pub(crate) fn sizes(&self) -> Sizes {
        if self.quick {
            Sizes {
                full: false,
                services: 1_000,
                many: 4_412,
                wide: 500,
                wide_endpoints: 50,
                fleet: 100,
                scraped: 3_000,
                gateways: 200,
                changes: 100,
                idle: Duration::from_secs(6),
            }
        } else {
            Sizes {
                full: true,
                services: 10_000,
                many: 50_000,
                wide: 5_006,
                wide_endpoints: 50,
                fleet: 1_000,
                scraped: 30_000,
                gateways: 1_000,
                changes: 600,
                idle: Duration::from_secs(30),
            }
        }
    }
}
