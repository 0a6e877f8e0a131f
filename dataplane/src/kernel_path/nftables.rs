//! The ruleset in the kernel's nftables, and what the node must allow for it to work.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sheave_kernel::ruleset::{Changes, Element, Family};
use sheave_kernel::{Flows, KernelTable, LeftOver, Obstacle, Options, Plan, TranslatedFlow, obstacles};
use sheave_model::FrontendAddr;

use super::RulesetSource;
use super::errors::{KernelPathError, KernelPathErrors};
use super::ruleset::Ruleset;
use crate::namespace_lock::{Locked, NamespaceLock, NamespaceLockError};

/// The tables' lock.
const LOCK: Locked = Locked { file: "kernel-path.lock", name: "sheave-kernel-path" };

/// Owner of the tables.
#[derive(Clone, Debug, Default)]
pub struct KernelPathOptions {
    /// Name of the installation. Tables of another one stay as they are.
    pub installation: String,
    /// Directory of a lock that keeps other processes from the tables where the kernel does not (before Linux 6.9).
    pub state_dir: PathBuf,
}

impl RulesetSource for KernelPathOptions {
    fn open(&self) -> Box<dyn Ruleset> {
        Box::new(Tables { options: self.clone(), lock: None, table: None })
    }

    fn left_over(&self) -> Result<LeftOver, KernelPathError> {
        KernelTable::left_over(&self.installation).map_err(KernelPathError::new)
    }
}

/// The tables of this network namespace, which are opened when they are established.
struct Tables {
    options: KernelPathOptions,
    lock: Option<NamespaceLock>,
    table: Option<KernelTable>,
}

impl Tables {
    fn table(&mut self) -> Result<&mut KernelTable, KernelPathError> {
        self.table.as_mut().ok_or_else(|| KernelPathError::new("the tables are removed"))
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

/// Has the lock from now on.
fn acquire(held: &mut Option<NamespaceLock>, directory: &Path) -> Result<(), sheave_kernel::Error> {
    if held.is_none() {
        *held = Some(NamespaceLock::acquire(directory, LOCK).map_err(|error| match error {
            NamespaceLockError::Taken(what) => sheave_kernel::Error::Locked(what),
            NamespaceLockError::Unusable { .. } => sheave_kernel::Error::Unlockable(error.to_string()),
        })?);
    }
    Ok(())
}

impl Ruleset for Tables {
    fn obstacles(&mut self) -> Result<KernelPathErrors, KernelPathError> {
        let found = obstacles().map_err(KernelPathError::new)?;
        let of = |family| found.iter().find(|it| stands(it, family)).map(KernelPathError::new);
        let full = found.iter().find(|it| matches!(it, Obstacle::TrackingFull { .. }));
        Ok(KernelPathErrors::new(of(Family::Ipv4), of(Family::Ipv6))
            .with_tracking_full(full.map(KernelPathError::new)))
    }

    fn establish(&mut self, plan: &mut Plan, keep: bool) -> Result<Changes, KernelPathError> {
        // Opened anew, it says what is in the kernel: what an earlier process left, or another program changed.
        self.table = None;
        let options = Options { installation: self.options.installation.clone(), ..Options::default() };
        let lock = || acquire(&mut self.lock, &self.options.state_dir);
        let (mut table, present) = KernelTable::open(&options, lock).map_err(KernelPathError::new)?;
        if keep {
            plan.keep(&present.elements);
        }
        let changes = plan.difference((&present.elements, &present.chains));
        if let Err(error) = change(&mut table, plan, &changes) {
            replace(&mut table, plan, &error)?;
        }
        self.table = Some(table);
        Ok(changes)
    }

    fn apply(&mut self, plan: &Plan, changes: &Changes) -> Result<(), KernelPathError> {
        change(self.table()?, plan, changes).map_err(KernelPathError::new)
    }

    fn is_whole(&mut self) -> Result<bool, KernelPathError> {
        let Ok(table) = self.table() else { return Ok(false) };
        for followed in [table.follow_interfaces(), table.follow_liberal()] {
            if let Err(error) = followed {
                tracing::debug!(%error, "the rules of the kernel path cannot follow the machine");
            }
        }
        match table.verify() {
            Ok(()) => Ok(true),
            Err(sheave_kernel::Error::Changed) => Ok(false),
            Err(error) => Err(KernelPathError::new(error)),
        }
    }

    fn remove_unused(&mut self) -> Result<bool, KernelPathError> {
        if Flows::open().map_err(KernelPathError::new)?.is_any_translated().map_err(KernelPathError::new)? {
            return Ok(false);
        }
        let Some(table) = self.table.take() else { return Ok(false) };
        table.remove().map_err(KernelPathError::new)?;
        self.lock = None;
        Ok(true)
    }

    fn counts(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr, u64)>, KernelPathError> {
        let counts = self.table()?.counts().map_err(KernelPathError::new)?;
        Ok(counts.into_iter().map(|((frontend, endpoint), count)| (frontend, endpoint, count)).collect())
    }

    fn failed(&mut self) -> Result<Vec<(FrontendAddr, SocketAddr)>, KernelPathError> {
        self.table()?.failed().map_err(KernelPathError::new)
    }

    fn forget_flows(&mut self, flows: &[(FrontendAddr, SocketAddr)]) -> Result<bool, KernelPathError> {
        let mut tracked = Flows::open().map_err(KernelPathError::new)?;
        tracked.end(flows.iter().copied(), AT_A_TIME).map_err(KernelPathError::new)
    }

    fn end_flows(&mut self, ends: &dyn Fn(&TranslatedFlow) -> bool) -> Result<bool, KernelPathError> {
        let mut tracked = Flows::open().map_err(KernelPathError::new)?;
        tracked.end_flows(ends, AT_A_TIME).map_err(KernelPathError::new)
    }

    fn forget_connections(&mut self, frontends: &HashSet<FrontendAddr>) -> Result<bool, KernelPathError> {
        let mut tracked = Flows::open().map_err(KernelPathError::new)?;
        tracked.end_connections(frontends, AT_A_TIME).map_err(KernelPathError::new)
    }
}

/// How many connections or flows end together. That takes a tenth of a second, in which changes wait.
const AT_A_TIME: usize = 10_000;
/// How many source ranges leave one by one. The kernel takes about 10 ms to remove one of thousands (`nft_pipapo_remove`), and 1 s to load
/// everything.
const FEW_RANGES: usize = 100;

fn change(table: &mut KernelTable, plan: &Plan, changes: &Changes) -> Result<(), sheave_kernel::Error> {
    let ranges = changes.removed.iter().filter(|element| matches!(element, Element::Admitted(..))).count();
    if ranges <= FEW_RANGES {
        table.apply(changes).map(drop)
    } else {
        table.reload(&plan.elements(), &plan.chains()).map(drop)
    }
}

/// Puts the plan in the place of tables that could not be changed to it, or at least nothing: what they have is out of date.
fn replace(table: &mut KernelTable, plan: &Plan, why: &sheave_kernel::Error) -> Result<(), KernelPathError> {
    tracing::warn!(error = %why, "nftables refused a change of the tables `sheave`; replacing them");
    let (elements, chains) = (plan.elements(), plan.chains());
    let Err(error) = table.reload(&elements, &chains) else { return Ok(()) };
    if let Err(error) = table.reload(&[], &[]) {
        tracing::warn!(
            %error,
            "the kernel goes on with what it was told; `nft delete table ip sheave` and `nft delete table ip6 sheave` end that"
        );
    }
    Err(KernelPathError::new(error))
}
