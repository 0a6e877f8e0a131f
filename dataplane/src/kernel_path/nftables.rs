//! The ruleset in the kernel's nftables, and what the node must allow for it to work.

use std::net::SocketAddr;

use sheave_kernel::ruleset::{Changes, Family};
use sheave_kernel::{Flows, KernelTable, Obstacle, Options, Plan, obstacles};
use sheave_model::FrontendAddr;

use super::writer::{KernelPathError, KernelPathErrors, Ruleset};

/// The tables of this network namespace.
struct Tables(Option<KernelTable>);

impl Tables {
    fn table(&mut self) -> Result<&mut KernelTable, KernelPathError> {
        self.0.as_mut().ok_or_else(|| KernelPathError::new("the tables are removed"))
    }
}

/// Whether packets of the family are not forwarded.
fn stands(obstacle: &Obstacle, family: Family) -> bool {
    match obstacle {
        Obstacle::NoRight => true,
        Obstacle::NotForwarding(other) => *other == family,
        Obstacle::ForwardDropped { chain } => {
            // It begins with the family of its table.
            let other = if family == Family::Ipv4 { "ip6 " } else { "ip " };
            !chain.starts_with(other)
        }
        Obstacle::TrackingFull { .. } => false,
    }
}

/// Removes the tables of an earlier process, if nobody uses them, on a thread of its own.
pub(super) fn remove_left_over() {
    let remove = || match KernelTable::remove_left_over() {
        Ok(true) => {
            tracing::info!("removed the tables `sheave` of nftables: no Service asks for the kernel path");
        }
        Ok(false) => {}
        Err(error) => tracing::debug!(%error, "there may be tables of nftables that an earlier process left"),
    };
    if let Err(error) = std::thread::Builder::new().name("kernel-path".to_owned()).spawn(remove) {
        tracing::debug!(%error, "no thread for nftables");
    }
}

/// The ruleset of this network namespace, which is opened when it is established.
pub(crate) fn ruleset() -> Box<dyn Ruleset> {
    Box::new(Tables(None))
}

impl Ruleset for Tables {
    fn obstacles(&mut self) -> KernelPathErrors {
        match obstacles() {
            Ok(found) => {
                let of = |family| found.iter().find(|it| stands(it, family)).map(KernelPathError::new);
                KernelPathErrors::new(of(Family::Ipv4), of(Family::Ipv6))
            }
            Err(error) => {
                let error = KernelPathError::new(error);
                KernelPathErrors::new(Some(error.clone()), Some(error))
            }
        }
    }

    fn establish(&mut self, plan: &Plan) -> Result<(), KernelPathError> {
        // Opened anew, it says what is in the kernel: what an earlier process left, or another program changed.
        self.0 = None;
        let (mut table, present) = KernelTable::open(Options::default()).map_err(KernelPathError::new)?;
        let changes = plan.difference((&present.elements, &present.chains));
        table.apply(&changes).map_err(KernelPathError::new)?;
        self.0 = Some(table);
        Ok(())
    }

    fn apply(&mut self, changes: &Changes) -> Result<(), KernelPathError> {
        self.table()?.apply(changes).map_err(KernelPathError::new).map(drop)
    }

    fn is_whole(&mut self) -> bool {
        self.table().is_ok_and(|table| table.verify().is_ok())
    }

    fn counts(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr, u64)>, KernelPathError> {
        let counters = self.table()?.counters().map_err(KernelPathError::new)?;
        let counted = counters.endpoints.into_iter();
        Ok(counted.map(|((frontend, endpoint), count)| (frontend, endpoint, count)).collect())
    }

    fn forget_flows(&mut self, flows: &[(FrontendAddr, SocketAddr)]) -> Result<(), KernelPathError> {
        let mut tracked = Flows::open().map_err(KernelPathError::new)?;
        tracked.end(flows.iter().copied()).map_err(KernelPathError::new)
    }
}
