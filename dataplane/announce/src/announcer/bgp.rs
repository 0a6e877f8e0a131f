//! The announcer's thread where gateways announce by BGP: each one what it can serve, whatever the others do.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::holding::some_of;
use super::{Command, Inbox, Publish, RENEWAL, RETRY, StartError};
use crate::Claim;
use crate::bgp::{BgpInterfaces, BgpOptions, BgpPhase, Routed};
use crate::layer2::AnnounceError;
use crate::ownership::NoOwner;
use crate::status::{AddressStatus, Counts, GatewayState, Here, Status};

/// How long a gateway serves addresses that it has withdrawn: routers take milliseconds to learn of it, one after the other.
const AFTER_WITHDRAWAL: Duration = Duration::from_secs(1);

/// Runs until a command ends it, or it cannot go on.
pub(super) fn run(
    options: BgpOptions,
    interfaces: Arc<BgpInterfaces>,
    inbox: Inbox,
    publish: Publish,
) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(StartError::system("cannot start a runtime"))?;
    let routed = Routed::start(&interfaces);
    let mut announcing = BgpAnnouncing {
        routed: routed.map_err(StartError::system("cannot announce addresses (needs CAP_NET_ADMIN)"))?,
        options,
        interfaces,
        inbox,
        publish,
        claims: None,
        failed: BTreeMap::new(),
        phase: BgpPhase::Announced,
        phase_ends: None,
        warnings: Vec::new(),
        counts: Counts::default(),
    };
    let ran = runtime.block_on(announcing.run());
    ran.map_err(StartError::system("the interfaces of announced addresses cannot be used any more"))
}

/// Everything that the thread has.
struct BgpAnnouncing {
    options: BgpOptions,
    interfaces: Arc<BgpInterfaces>,
    inbox: Inbox,
    publish: Publish,
    routed: Routed,
    /// None before it knows of any.
    claims: Option<Arc<BTreeMap<IpAddr, Claim>>>,
    failed: BTreeMap<IpAddr, String>,
    phase: BgpPhase,
    /// When the next phase begins, once this gateway leaves.
    phase_ends: Option<Instant>,
    warnings: Vec<String>,
    counts: Counts,
}

impl BgpAnnouncing {
    async fn run(&mut self) -> io::Result<()> {
        let (mut renewal, mut retry) = (Instant::now() + RENEWAL, Instant::now() + RETRY);
        self.publish();
        loop {
            let due = self.phase_ends.into_iter().fold(renewal.min(retry), Instant::min);
            let next = tokio::select! {
                command = self.inbox.recv() => match command {
                    Some(command) => self.obey(command),
                    // Without anybody to tell it anything it ends as if it were killed.
                    None => ControlFlow::Break(()),
                },
                () = tokio::time::sleep_until(due.into()) => ControlFlow::Continue(()),
            };
            let now = Instant::now();
            if next.is_break() || self.advance(now).is_break() {
                return Ok(());
            }
            if now >= renewal {
                self.routed.refresh(now)?;
                renewal = now + RENEWAL;
            }
            if now >= retry {
                self.follow();
                retry = now + RETRY;
            }
        }
    }

    fn obey(&mut self, command: Command) -> ControlFlow<()> {
        match command {
            Command::Claims(claims) => {
                self.claims = Some(Arc::new(claims));
                self.follow();
                ControlFlow::Continue(())
            }
            Command::Leave | Command::End if self.phase == BgpPhase::Announced => self.leave(),
            Command::Detach => ControlFlow::Break(()),
            // Who else there is, and what they know, is the routers' concern.
            Command::Begin(_)
            | Command::Ready(_)
            | Command::Leave
            | Command::End
            | Command::Members(_)
            | Command::Knowledge(_)
            | Command::Continuation(_) => ControlFlow::Continue(()),
        }
    }

    /// Brings the addresses on the interface up to date.
    fn follow(&mut self) {
        let Some(claims) = self.claims.clone().filter(|_| self.phase != BgpPhase::Withdrawn) else { return };
        let node = &self.options.node;
        let served = claims.iter().filter(|(_, claim)| claim.nodes.contains(node)).map(|(ip, _)| *ip);
        let (served, held): (BTreeSet<IpAddr>, _) = (served.collect(), self.routed.held());
        let gone: BTreeSet<IpAddr> = &held - &served;
        let new: Vec<IpAddr> = served.difference(&held).copied().collect();
        self.routed.withdraw(&gone);
        self.counts.lost += gone.len() as u64;
        if !gone.is_empty() {
            tracing::info!(addresses = %some_of(&gone), "announced here no more");
        }
        if self.phase != BgpPhase::Announced {
            // Whoever is about to end takes nothing new.
            return self.publish();
        }
        self.routed.look();
        let failed = self.routed.announce(&new, served.len());
        let failed: BTreeMap<IpAddr, String> =
            failed.iter().filter_map(|error| Some((error.ip()?, AnnounceError::to_string(error)))).collect();
        let announced: BTreeSet<IpAddr> = new.into_iter().filter(|ip| !failed.contains_key(ip)).collect();
        if !announced.is_empty() {
            tracing::info!(addresses = %some_of(&announced), "announcing");
        }
        for (ip, error) in failed.iter().filter(|(ip, error)| self.failed.get(ip) != Some(error)) {
            tracing::warn!(%ip, error, "an address cannot be announced");
        }
        self.counts.gained += announced.len() as u64;
        self.failed = failed;
        let warnings = self.routed.warnings();
        for warning in warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.warnings = warnings;
        self.publish();
    }

    /// Has routers prefer others, if there are any, before the addresses are withdrawn.
    fn leave(&mut self) -> ControlFlow<()> {
        let addresses = self.routed.held().len();
        if addresses == 0 {
            return ControlFlow::Break(());
        }
        tracing::info!(addresses, drain = ?self.options.drain, "addresses are announced as about to go");
        self.enter(BgpPhase::Shutdown, self.options.drain);
        ControlFlow::Continue(())
    }

    /// Goes on to the next phase if its time has come.
    fn advance(&mut self, now: Instant) -> ControlFlow<()> {
        if self.phase_ends.is_none_or(|end| now < end) {
            return ControlFlow::Continue(());
        }
        match self.phase {
            BgpPhase::Announced | BgpPhase::Shutdown => {
                self.counts.lost += self.routed.held().len() as u64;
                self.enter(BgpPhase::Withdrawn, AFTER_WITHDRAWAL);
                ControlFlow::Continue(())
            }
            BgpPhase::Withdrawn => ControlFlow::Break(()),
        }
    }

    fn enter(&mut self, phase: BgpPhase, time: Duration) {
        if let Err(error) = self.routed.set_phase(phase) {
            tracing::warn!(%error, "the interfaces of announced addresses cannot be set");
        }
        self.phase = phase;
        self.phase_ends = Some(Instant::now() + time);
        self.publish();
    }

    fn publish(&self) {
        let addresses = self.claims.iter().flat_map(|claims| claims.iter());
        let addresses = addresses.map(|(ip, claim)| (*ip, self.address(*ip, claim))).collect();
        let status = Status {
            node: Arc::clone(&self.options.node),
            shared: true,
            state: if self.phase == BgpPhase::Announced {
                GatewayState::Eligible
            } else {
                GatewayState::Leaving
            },
            addresses: Arc::new(addresses),
            warnings: self.warnings.clone(),
            counts: self.counts,
            ..Status::default()
        };
        status.publish(&self.publish);
    }

    fn address(&self, ip: IpAddr, claim: &Claim) -> AddressStatus {
        let serves = claim.nodes.contains(&self.options.node);
        let on = |interface: &Arc<str>| Here::Announced { interfaces: vec![Arc::clone(interface)] };
        let here = match (self.failed.get(&ip), self.phase) {
            _ if !serves => Here::Nothing,
            (Some(error), _) => Here::Failed { error: error.clone() },
            // Claimed since this gateway began to end, or the kernel did not take it: it is tried again.
            (None, _) if !self.routed.holds(ip) => Here::Nothing,
            (None, BgpPhase::Announced) => on(&self.interfaces.announced.name),
            (None, BgpPhase::Shutdown) => on(&self.interfaces.shutdown.name),
            (None, BgpPhase::Withdrawn) => Here::Nothing,
        };
        AddressStatus { owner: Err(if serves { NoOwner::Shared } else { NoOwner::SharedElsewhere }), here }
    }
}
