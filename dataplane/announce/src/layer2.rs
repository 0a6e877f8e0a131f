//! Layer 2: makes the network send packets for an address to this machine.
//!
//! An announced address is on the interfaces whose subnets contain it, for a few seconds from each `refresh`. This module tells
//! neighbours where it is, in place of the kernel, and watches for others that use it. `README.md` of this crate describes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::network::Network;
use crate::precedence::Precedence;

mod agenda;
mod announcement;
mod changes;
pub(crate) mod filter;
pub(crate) mod frame;
pub(crate) mod kernel_address;
mod kernel_answers;
pub(crate) mod links;
pub(crate) mod netlink;
mod nftables;
pub(crate) mod packets;
pub(crate) mod settings;
mod work;

use agenda::Agenda;
pub use announcement::OnConflict;
use announcement::{Announcement, Manner};
pub use frame::MacAddress;
use kernel_answers::KernelAnswers;
use links::{Links, Subnet, containing};
use netlink::{Notifications, Requests};
use packets::Packets;
pub use settings::SettingWarning;

/// How addresses are announced.
#[derive(Clone, Copy, Debug)]
pub struct Layer2Options {
    /// How long the kernel keeps an address that is not refreshed, in whole seconds. It may take a second longer.
    pub lifetime: Duration,
    /// How often an address is announced again, after the first seconds; `None` = never.
    pub repeat: Option<Duration>,
    /// What to do when another machine uses an announced address.
    pub on_conflict: OnConflict,
    /// Whether a process before this one handed its addresses over. They stay until they are announced or `release_adopted` is
    /// called; otherwise they are removed at the start.
    pub adopt: bool,
}

impl Default for Layer2Options {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(3),
            repeat: Some(Duration::from_secs(60)),
            on_conflict: OnConflict::default(),
            adopt: false,
        }
    }
}

/// How an address is announced after `announce`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Announced {
    /// It is on these interfaces.
    Now(Vec<Arc<str>>),
    /// It is being probed on these interfaces: `Layer2Event::Announced` or `Layer2Event::Conflict` follows.
    AfterProbe(Vec<Arc<str>>),
}

/// Why an address is not announced.
#[derive(Debug, Error)]
pub enum AnnounceError {
    /// No interface has a subnet that contains it.
    #[error(
        "no interface that is up has a subnet that contains {ip} (subnets: {}){}",
        listed(.subnets), unknown(.missing)
    )]
    NoSubnet {
        /// The address.
        ip: IpAddr,
        /// The subnets in which addresses of its family can be announced, each with its interface.
        subnets: Vec<String>,
        /// The interfaces that were asked for and do not exist.
        missing: Vec<Arc<str>>,
    },
    /// The machine has the address already, and not from here.
    #[error(
        "{ip} is already an address of interface {interface}; remove it there, or take it out of the pool"
    )]
    NotOurs {
        /// The address.
        ip: IpAddr,
        /// Where it is.
        interface: Arc<str>,
    },
    /// The kernel does not take it.
    #[error("cannot add {ip} to interface {interface}: {source}")]
    Refused {
        /// The address.
        ip: IpAddr,
        /// Where it was to be.
        interface: Arc<str>,
        /// The reason.
        source: io::Error,
    },
    /// The links and addresses of the machine cannot be read.
    #[error("cannot read the addresses of this machine: {0}")]
    Unknown(#[from] io::Error),
}

impl AnnounceError {
    /// The address, if one alone is concerned.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::NoSubnet { ip, .. } | Self::NotOurs { ip, .. } | Self::Refused { ip, .. } => Some(*ip),
            Self::Unknown(_) => None,
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn unknown(names: &[Arc<str>]) -> String {
    if names.is_empty() { String::new() } else { format!("; there is no interface {}", names.join(", ")) }
}

/// What was done about a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictAnswer {
    /// The address stays and is announced again.
    Defended,
    /// The address was withdrawn. It is probed every 30 s, and announced again when nobody has it.
    Withdrawn,
    /// The address was withdrawn because another gateway has precedence. It is probed every 2 s at the latest.
    LeftToGateway,
    /// The probe showed that another has it, so it was not announced. It is probed again after 1, 2, 4, 8 and 16 s, then every 30 s.
    NotAnnounced,
}

/// What happened to announced addresses.
#[derive(Debug)]
pub enum Layer2Event {
    /// Nobody had the address when it was probed; it is announced now.
    Announced {
        /// The address.
        ip: IpAddr,
    },
    /// Another machine uses the address. Reported once per conflict.
    Conflict {
        /// The address.
        ip: IpAddr,
        /// The other's address on the network, if it says so.
        mac: Option<MacAddress>,
        /// Where it was seen.
        interface: Arc<str>,
        /// What was done.
        answer: ConflictAnswer,
    },
    /// The other machine has not been seen for 30 s; the address is announced.
    ConflictOver {
        /// The address.
        ip: IpAddr,
    },
    /// An interface went down, vanished, or lost a subnet, and these addresses with it. They return with it unless they are withdrawn.
    InterfaceLost {
        /// The interface.
        interface: Arc<str>,
        /// The addresses that are no longer on it.
        addresses: Vec<IpAddr>,
        /// Those of them that are on no interface now.
        stranded: Vec<IpAddr>,
    },
    /// An interface that can announce appeared, or has a new subnet. What it can announce and was announced before is on it again.
    /// What was refused for want of a subnet can be tried again.
    InterfaceBack {
        /// The interface.
        interface: Arc<str>,
    },
    /// Somebody removed the address from the interface. It was put on again.
    AddressLost {
        /// The address.
        ip: IpAddr,
        /// The interface.
        interface: Arc<str>,
    },
    /// An address that should be on an interface now cannot be put there.
    Failed(AnnounceError),
    /// `refresh` was not called for so long that the kernel may have removed these addresses, and others may have them. They were
    /// withdrawn; announce them again if they still belong here.
    Lapsed {
        /// The addresses.
        addresses: Vec<IpAddr>,
    },
    /// A setting of an interface keeps announcements from working.
    Setting(SettingWarning),
    /// The kernel cannot be kept from answering for announced addresses itself; without a reason, it is again. Reported when that changes.
    KernelAnswers(Option<io::Error>),
}

/// The addresses that this machine announces.
///
/// Dropping it leaves them to their lifetime.
pub struct Layer2 {
    manner: Manner,
    requests: Requests,
    notifications: Notifications,
    packets: Packets,
    kernel_answers: KernelAnswers,
    /// That it cannot be kept from it was reported.
    kernel_answers_itself: bool,
    /// Until then the addresses are surely this machine's; unknown where nobody says.
    trusted_until: Option<Instant>,
    links: Links,
    subnets: Vec<Subnet>,
    /// Since somebody asked.
    subnets_changed: bool,
    announcements: BTreeMap<IpAddr, Announcement>,
    /// Addresses of a process before this one, with their links, and when they were renewed.
    adopted: BTreeSet<(IpAddr, u32)>,
    adopted_renewed: Instant,
    agenda: Agenda,
    events: VecDeque<Layer2Event>,
    precedence: Precedence,
    /// The links whose settings were checked.
    checked: BTreeSet<u32>,
    /// When some address was renewed; no other was renewed before.
    oldest: Option<Instant>,
    /// When the filters for packets, and what the kernel does not answer, are to be made anew.
    watch_due: Option<Instant>,
    /// More packets wait than were received.
    backlog: bool,
}

impl Layer2 {
    /// Whether the sockets can be opened.
    ///
    /// # Errors
    /// As socket(2).
    pub fn check() -> io::Result<()> {
        Requests::open()?;
        Packets::open()?;
        Ok(())
    }

    /// Opens the sockets, and removes what a process before this one has left, unless it is adopted. Needs CAP_NET_ADMIN and
    /// CAP_NET_RAW, and a tokio runtime.
    ///
    /// # Errors
    /// As socket(2) and the requests to the kernel.
    pub fn start(options: Layer2Options) -> io::Result<Self> {
        let Layer2Options { lifetime, repeat, on_conflict, adopt } = options;
        // The kernel counts in whole seconds.
        let lifetime = Duration::from_secs(lifetime.as_secs().max(2));
        let now = Instant::now();
        let mut layer2 = Self {
            manner: Manner { lifetime, repeat, on_conflict },
            requests: Requests::open()?,
            notifications: Notifications::open()?,
            packets: Packets::open()?,
            kernel_answers: KernelAnswers::new(now),
            kernel_answers_itself: false,
            trusted_until: None,
            links: Links::new(lifetime),
            subnets: Vec::new(),
            subnets_changed: true,
            announcements: BTreeMap::new(),
            adopted: BTreeSet::new(),
            adopted_renewed: now,
            agenda: Agenda::new(now),
            events: VecDeque::new(),
            precedence: Precedence::Own,
            checked: BTreeSet::new(),
            oldest: None,
            watch_due: None,
            backlog: false,
        };
        // After the notifications were asked for, so that nothing is missed between.
        layer2.dump()?;
        layer2.subnets = layer2.links.subnets();
        layer2.adopted = layer2.links.ours().collect();
        if adopt {
            layer2.refresh();
        } else {
            layer2.release_adopted();
        }
        // After that, so that it does not answer for what is left.
        layer2.kernel_answers.restore();
        Ok(layer2)
    }

    /// Announces an address: on the interfaces with the longest prefix that contains it, of these names if there are any; a name
    /// without an interface counts only if there is no other. With `probe`, only when nobody else has it. An address that is
    /// announced already stays so.
    ///
    /// # Errors
    /// The address is not announced then, and is not tried again. `Layer2Event::InterfaceBack` reports a reason to.
    pub fn announce(
        &mut self,
        ip: IpAddr,
        interfaces: &[Arc<str>],
        probe: bool,
    ) -> Result<Announced, AnnounceError> {
        let now = Instant::now();
        // Had the process been stopped, what changed meanwhile must not put its old addresses on again.
        self.lapse(now);
        self.follow_notifications()?;
        if let Some(present) = self.announcements.get_mut(&ip) {
            present.interfaces = interfaces.to_vec();
            self.place(ip);
            return Ok(self.announced(ip));
        }
        if let Some(link) = self.links.holder(ip) {
            return Err(AnnounceError::NotOurs { ip, interface: self.links.name(link) });
        }
        let links: Vec<u32> =
            containing(&self.subnets, ip, interfaces).iter().map(|subnet| subnet.link).collect();
        if links.is_empty() {
            return Err(self.no_subnet(ip, interfaces));
        }
        let adopted = self.claim_adopted(ip, &links);
        let announcement = if probe && !adopted {
            Announcement::probed(now, interfaces.to_vec(), links)
        } else {
            self.put_on(ip, &links)?;
            Announcement::taken_over(now, interfaces.to_vec(), links, &self.manner)
        };
        self.announcements.insert(ip, announcement);
        self.oldest.get_or_insert(now);
        self.agenda.set_first(ip);
        self.watch_due = Some(now);
        // Whoever announces many leaves no time for it between them.
        self.work_off(Instant::now());
        Ok(self.announced(ip))
    }

    /// Withdraws an address: this machine answers for it no more when this returns.
    pub fn withdraw(&mut self, ip: IpAddr) {
        self.withdraw_these(&[ip]);
    }

    /// Withdraws all addresses, those of a process before this one included.
    pub fn withdraw_all(&mut self) {
        let all: Vec<IpAddr> = self.announcements.keys().copied().collect();
        self.withdraw_these(&all);
        self.release_adopted();
    }

    /// Removes what a process before this one handed over and nobody has announced since.
    pub fn release_adopted(&mut self) {
        let adopted = std::mem::take(&mut self.adopted);
        self.take_off(&adopted.into_iter().collect::<Vec<_>>());
    }

    /// The addresses of a process before this one that nobody has announced since.
    pub fn adopted(&self) -> impl Iterator<Item = IpAddr> {
        self.adopted.iter().map(|(ip, _)| *ip)
    }

    /// The interfaces on which the address is now; none while it is probed or another has it.
    pub fn interfaces(&self, ip: IpAddr) -> Vec<Arc<str>> {
        let present = self.announcements.get(&ip).filter(|announcement| announcement.is_on());
        present.map_or_else(Vec::new, |announcement| self.names(&announcement.links))
    }

    /// The networks of interfaces that can announce. Those of one link alone (RFC 4291, section 2.5.6) are on each.
    pub fn networks(&self) -> impl Iterator<Item = (Network, &Arc<str>)> {
        let of_a_link = |network: Network| match network.address() {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        let networks = self.subnets.iter().map(|subnet| (subnet.network, &subnet.interface));
        networks.filter(move |(network, _)| !of_a_link(*network))
    }

    /// Whether `networks` may be others than at the last call of this.
    pub fn take_networks_changed(&mut self) -> bool {
        std::mem::take(&mut self.subnets_changed)
    }

    /// Sets which gateway keeps an address that another one announces as well. A host that is no gateway does not announce what it has, so `on_conflict` is
    /// about it all the same.
    pub fn set_precedence(&mut self, precedence: Precedence) {
        let former = std::mem::replace(&mut self.precedence, precedence);
        if former == precedence || precedence != Precedence::Own {
            return;
        }
        // The other part of the network is about to give way.
        let now = Instant::now();
        for (ip, announcement) in self.announcements.iter_mut().filter(|(_, one)| one.is_yielded()) {
            announcement.probe_again(now);
            self.agenda.set_first(*ip);
        }
    }

    /// Announces all addresses that are on their interfaces as if they had just been put there.
    pub fn announce_again(&mut self) {
        let now = Instant::now();
        let all: Vec<IpAddr> = self.announcements.keys().copied().collect();
        all.into_iter().for_each(|ip| self.announce_anew(ip, now));
    }

    /// Says until when the addresses are surely this machine's, for whoever learns from others whose they are. Once it has been
    /// called, nothing is answered later than that until it is called again: a process that stood still would speak of what it had.
    pub fn trust_until(&mut self, until: Instant) {
        self.trusted_until = Some(until);
    }

    /// Leaves the addresses to a successor on this machine, with the whole of their lifetime. The kernel answers for them until the
    /// successor does. To be dropped then.
    pub fn detach(&mut self) {
        self.refresh();
        self.kernel_answers.restore();
    }

    fn announced(&self, ip: IpAddr) -> Announced {
        match self.announcements.get(&ip) {
            Some(present) if present.is_on() => Announced::Now(self.names(&present.links)),
            present => Announced::AfterProbe(present.map_or_else(Vec::new, |p| self.names(&p.links))),
        }
    }

    fn no_subnet(&self, ip: IpAddr, interfaces: &[Arc<str>]) -> AnnounceError {
        let family = self.subnets.iter().filter(|subnet| subnet.network.address().is_ipv4() == ip.is_ipv4());
        let subnets = family.map(Subnet::to_string).collect::<BTreeSet<_>>().into_iter().collect();
        AnnounceError::NoSubnet { ip, subnets, missing: self.links.unknown(interfaces) }
    }

    fn names(&self, links: &[u32]) -> Vec<Arc<str>> {
        links.iter().map(|&link| self.links.name(link)).collect()
    }
}
