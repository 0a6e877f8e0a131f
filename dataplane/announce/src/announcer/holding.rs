//! The addresses that this gateway announces, or should: what became of each on the network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use crate::Claim;
use crate::ability::Reach;
use crate::layer2::{Announced, ConflictAnswer, Layer2, Layer2Event};
use crate::status::{Counts, Here};

/// The warning that the kernel answers itself, among those that are named after settings.
const KERNEL_ANSWERS: &str = "nftables";

/// Addresses of this gateway.
pub(super) struct Holdings {
    pub(super) layer2: Layer2,
    /// For addresses whose claims name no interfaces.
    interfaces: Vec<Arc<str>>,
    /// State of each address of this gateway.
    pub(super) held: BTreeMap<IpAddr, Here>,
    /// Addresses still to be announced, and whether another machine may have them.
    pub(super) queue: VecDeque<(IpAddr, bool)>,
    /// Addresses that could not be announced yet, and that another machine may have.
    unprobed: BTreeSet<IpAddr>,
    /// Warnings by setting of the machine.
    pub(super) warnings: BTreeMap<String, String>,
    pub(super) counts: Counts,
    /// Another machine announces what this one has, and no gateway is expected to.
    pub(super) challenged: bool,
    /// Something has changed since the status was published.
    pub(super) changed: bool,
    /// Changes that are not logged yet.
    log: Log,
}

/// Changes that are logged together: addresses newly announced, withdrawn, and failed by their error.
#[derive(Default)]
struct Log {
    announced: BTreeSet<IpAddr>,
    withdrawn: BTreeSet<IpAddr>,
    failed: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Holdings {
    pub(super) fn new(layer2: Layer2, interfaces: Vec<Arc<str>>) -> Self {
        Self {
            layer2,
            interfaces,
            held: BTreeMap::new(),
            queue: VecDeque::new(),
            unprobed: BTreeSet::new(),
            warnings: BTreeMap::new(),
            counts: Counts::default(),
            challenged: false,
            changed: true,
            log: Log::default(),
        }
    }

    /// In which networks this machine can announce, if that has changed since the last call.
    pub(super) fn changed_reach(&mut self) -> Option<Reach> {
        if !self.layer2.take_networks_changed() {
            return None;
        }
        let by_default = |interface| self.interfaces.is_empty() || self.interfaces.contains(interface);
        let networks = self.layer2.networks();
        Some(Reach::of(networks.map(|(network, interface)| (network, &**interface, by_default(interface)))))
    }

    /// Announces these, one after the other; with `probe`, those that nobody else has.
    pub(super) fn announce(&mut self, addresses: Vec<IpAddr>, mut probe: impl FnMut(IpAddr) -> bool) {
        self.changed |= !addresses.is_empty();
        self.counts.gained += addresses.len() as u64;
        self.queue.extend(addresses.into_iter().map(|ip| (ip, probe(ip))));
    }

    /// Announces the next of them.
    pub(super) fn announce_some(&mut self, most: usize, claims: &BTreeMap<IpAddr, Claim>) {
        for _ in 0..most {
            let Some((ip, probe)) = self.queue.pop_front() else { return };
            let here = self.put(ip, claims, probe);
            self.set(ip, here);
        }
    }

    /// Announces those again whose interfaces are others now.
    pub(super) fn follow_interfaces(
        &mut self,
        former: &BTreeMap<IpAddr, Claim>,
        claims: &BTreeMap<IpAddr, Claim>,
    ) {
        let differs = |ip: &&IpAddr| {
            claims.get(*ip).is_some_and(|claim| {
                former.get(*ip).is_none_or(|former| former.interfaces != claim.interfaces)
            })
        };
        let others = self.held.keys().filter(differs);
        self.queue.extend(others.map(|ip| (*ip, false)));
    }

    fn put(&mut self, ip: IpAddr, claims: &BTreeMap<IpAddr, Claim>, probe: bool) -> Here {
        let named = claims.get(&ip).map(|claim| &claim.interfaces).filter(|named| !named.is_empty());
        let interfaces = named.unwrap_or(&self.interfaces);
        let probe = self.unprobed.remove(&ip) || probe;
        match self.layer2.announce(ip, interfaces, probe) {
            // It stays claimed, and is announced as soon as an interface is back.
            Ok(Announced::Now(interfaces)) if interfaces.is_empty() => {
                let error = "no interface that is up has a subnet that contains it".to_owned();
                Here::Failed { error }
            }
            Ok(
                Announced::Now(interfaces) | Announced::AfterProbe(interfaces) | Announced::Soon(interfaces),
            ) => Here::Announced { interfaces },
            Err(error) => {
                if probe {
                    self.unprobed.insert(ip);
                }
                Here::Failed { error: error.to_string() }
            }
        }
    }

    /// The addresses that are left to another machine.
    pub(super) fn contested(&self) -> Vec<IpAddr> {
        let left = |here: &Here| match here {
            Here::Conflict { answer, .. } => {
                matches!(answer, ConflictAnswer::Withdrawn | ConflictAnswer::NotAnnounced)
            }
            _ => false,
        };
        self.held.iter().filter(|(_, here)| left(here)).map(|(ip, _)| *ip).collect()
    }

    /// Goes on with these of what a process before this one has left here, and gives up the rest.
    pub(super) fn take_adopted(&mut self, kept: &BTreeSet<IpAddr>, claims: &BTreeMap<IpAddr, Claim>) {
        let kept: Vec<IpAddr> = self.layer2.adopted().filter(|ip| kept.contains(ip)).collect();
        for ip in kept {
            let here = self.put(ip, claims, false);
            self.set(ip, here);
        }
        self.layer2.release_adopted();
    }

    /// Gives up these.
    pub(super) fn withdraw(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        let addresses: BTreeSet<IpAddr> = addresses.into_iter().collect();
        if addresses.is_empty() {
            return;
        }
        self.queue.retain(|(ip, _)| !addresses.contains(ip));
        self.unprobed.retain(|ip| !addresses.contains(ip));
        let here: Vec<IpAddr> = addresses.into_iter().filter(|ip| self.held.remove(ip).is_some()).collect();
        self.layer2.withdraw_these(&here);
        self.log.withdrawn.extend(&here);
        self.counts.lost += here.len() as u64;
        self.changed = true;
    }

    /// Waits until something happens to addresses, and takes it in. Cancel safe.
    pub(super) async fn event(&mut self) {
        let event = self.layer2.next_event().await;
        self.take(event);
        self.changed = true;
    }

    fn take(&mut self, event: Layer2Event) {
        match event {
            Layer2Event::Announced { ip } => {
                self.log.announced.insert(ip);
                self.refresh_interfaces(ip);
            }
            Layer2Event::Conflict { ip, mac, interface, answer } => {
                let mac = mac.map_or_else(|| "unknown".to_owned(), |mac| mac.to_string());
                tracing::warn!(%ip, %mac, %interface, ?answer, "another machine uses an announced address");
                self.counts.conflicts += 1;
                self.update(ip, Here::Conflict { mac, interface, answer });
            }
            Layer2Event::Challenged => self.challenged = true,
            Layer2Event::ConflictOver { ip } => {
                tracing::info!(%ip, "nobody else uses the address any more");
                let interfaces = self.layer2.interfaces(ip);
                self.update(ip, Here::Announced { interfaces });
            }
            Layer2Event::InterfaceLost { interface, addresses, stranded } => {
                tracing::warn!(%interface, addresses = addresses.len(), "an interface cannot announce any more");
                addresses.into_iter().for_each(|ip| self.refresh_interfaces(ip));
                let error = format!(
                    "interface {interface} is gone, down, or has no subnet with the address any more"
                );
                stranded.iter().for_each(|ip| self.update(*ip, Here::Failed { error: error.clone() }));
            }
            Layer2Event::InterfaceBack { interface } => {
                tracing::info!(%interface, "an interface can announce");
                self.retry();
            }
            Layer2Event::AddressLost { ip, interface } => {
                tracing::warn!(%ip, %interface, "somebody removed an announced address; it is there again");
            }
            Layer2Event::Failed(error) => {
                let ip = error.ip();
                ip.into_iter().for_each(|ip| self.update(ip, Here::Failed { error: error.to_string() }));
            }
            Layer2Event::Lapsed { addresses } => {
                tracing::warn!(
                    addresses = addresses.len(),
                    "the kernel may have removed addresses that were renewed too late: announcing again"
                );
                // They may be another's by now: then they are held no more.
                let held = addresses.into_iter().filter_map(|ip| Some((ip, self.held.get(&ip)?)));
                self.queue.extend(held.map(|(ip, here)| (ip, matches!(here, Here::Conflict { .. }))));
            }
            Layer2Event::Setting(warning) => self.warn(warning.sysctl.clone(), warning.to_string()),
            Layer2Event::KernelAnswers(Some(error)) => {
                let warning = format!(
                    "nftables cannot keep the kernel from answering for announced addresses ({error}): if this process dies, new clients \
                     in the network may be refused for up to 4 s"
                );
                self.warn(KERNEL_ANSWERS.to_owned(), warning);
            }
            Layer2Event::KernelAnswers(None) => {
                tracing::info!(
                    "the kernel does not answer for announced addresses any more: this process does"
                );
                self.warnings.remove(KERNEL_ANSWERS);
            }
        }
    }

    fn warn(&mut self, setting: String, warning: String) {
        tracing::warn!("{warning}");
        self.warnings.insert(setting, warning);
    }

    /// Tries again what has failed, and looks where the rest is now.
    pub(super) fn retry(&mut self) {
        self.layer2.complete();
        let all: Vec<(IpAddr, bool)> =
            self.held.iter().map(|(ip, here)| (*ip, matches!(here, Here::Failed { .. }))).collect();
        for (ip, failed) in all {
            if failed && self.layer2.interfaces(ip).is_empty() {
                self.queue.push_back((ip, false));
            } else {
                self.refresh_interfaces(ip);
            }
        }
    }

    fn refresh_interfaces(&mut self, ip: IpAddr) {
        let interfaces = self.layer2.interfaces(ip);
        let conflict = matches!(self.held.get(&ip), Some(Here::Conflict { .. }));
        if !interfaces.is_empty() && !conflict {
            self.update(ip, Here::Announced { interfaces });
        }
    }

    /// Sets what became of an address, unless it was given up meanwhile.
    fn update(&mut self, ip: IpAddr, here: Here) {
        if self.held.contains_key(&ip) {
            self.set(ip, here);
        }
    }

    fn set(&mut self, ip: IpAddr, here: Here) {
        if self.held.get(&ip) == Some(&here) {
            return;
        }
        match &here {
            // One that is probed is not announced yet.
            Here::Announced { .. } if !self.layer2.interfaces(ip).is_empty() => {
                self.log.announced.insert(ip);
            }
            Here::Failed { error } => {
                self.log.failed.entry(error.clone()).or_default().insert(ip);
            }
            Here::Announced { .. } | Here::Conflict { .. } | Here::Nothing | Here::Waiting { .. } => {}
        }
        self.held.insert(ip, here);
        self.changed = true;
    }

    /// Tells the log what has happened to addresses since the last call. What others have taken over meanwhile did not fail.
    pub(super) fn tell_log(&mut self) {
        let Log { announced, withdrawn, failed } = std::mem::take(&mut self.log);
        if !announced.is_empty() {
            tracing::info!(addresses = %some_of(&announced), "announcing");
        }
        if !withdrawn.is_empty() {
            tracing::info!(addresses = %some_of(&withdrawn), "announced here no more");
        }
        for (error, mut addresses) in failed {
            addresses.retain(|ip| matches!(self.held.get(ip), Some(Here::Failed { .. })));
            if !addresses.is_empty() {
                tracing::warn!(addresses = %some_of(&addresses), error, "addresses cannot be announced");
            }
        }
    }
}

/// The first of them, and how many more there are.
pub(super) fn some_of(addresses: &BTreeSet<IpAddr>) -> String {
    const SHOWN: usize = 3;
    let mut text = addresses.iter().take(SHOWN).map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    if addresses.len() > SHOWN {
        text += &format!(" and {} more", addresses.len() - SHOWN);
    }
    text
}
