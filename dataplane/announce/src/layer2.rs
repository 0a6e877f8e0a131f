//! Layer 2: makes the network send packets for an address to this machine.
//!
//! An announced address is on the interfaces whose subnets contain it, for a few seconds from each `refresh`. This module tells
//! neighbours where it is, in place of the kernel, and watches for others that use it. `README.md` of this crate describes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::LinkAddr;
use tracing::{debug, warn};

use crate::membership::Precedence;
use crate::network::Network;

mod agenda;
mod announcement;
mod changes;
mod event;
pub mod frame;
pub(crate) mod kernel_address;
mod kernel_answers;
mod kernel_changes;
pub(crate) mod links;
pub(crate) mod netlink;
mod nftables;
pub(crate) mod pace;
pub(crate) mod packets;
mod renewals;
pub(crate) mod settings;
mod survey;

use agenda::Agenda;
pub use announcement::OnConflict;
use announcement::{Announcement, Lifetime, Manner, Step, Verdict, Why};
pub use event::{AnnounceError, Announced, ConflictAnswer, Layer2Event};
pub use frame::MacAddress;
use frame::{Asker, Statement, announcements, answer, probe};
use kernel_answers::KernelAnswers;
use kernel_changes::KernelChanges;
use links::{Links, Subnet, containing};
use netlink::{Notifications, Requests};
use nftables::Nftables;
use pace::{LONGEST, Pace};
use packets::{Packets, Received, Watched, family};
use renewals::Renewals;
pub use settings::SettingWarning;
use survey::Survey;

/// After all addresses were announced because of another gateway, or others were asked, they have this time to answer.
const RIVAL_PAUSE: Duration = Duration::from_millis(200);

/// How addresses are announced.
#[derive(Clone, Copy, Debug)]
pub struct Layer2Options {
    /// How long the kernel keeps an address that is not refreshed, in whole seconds. It may take a second longer. Where changes of addresses take long,
    /// that is longer, up to 30 s: three times as long as all of them take.
    pub lifetime: Duration,
    /// How often an address is announced again, after the first seconds; `None` = never.
    pub repeat: Option<Duration>,
    /// Answer to another machine that uses an announced address.
    pub on_conflict: OnConflict,
}

impl Default for Layer2Options {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(3),
            repeat: Some(Duration::from_secs(60)),
            on_conflict: OnConflict::default(),
        }
    }
}

/// The addresses that this machine announces.
///
/// Dropping it leaves them to their lifetime.
pub struct Layer2 {
    manner: Manner,
    kernel_changes: KernelChanges,
    renewals: Renewals,
    notifications: Notifications,
    survey: Survey,
    packets: Packets,
    kernel_answers: KernelAnswers,
    /// Until then the addresses are surely this machine's; unknown where nobody says.
    trusted_until: Option<Instant>,
    links: Links,
    subnets: Vec<Subnet>,
    /// Since somebody asked.
    subnets_changed: bool,
    announcements: BTreeMap<IpAddr, Announcement>,
    /// Addresses of a process before this one, with their links.
    adopted: BTreeMap<(IpAddr, u32), Lifetime>,
    /// Until then the kernel may put addresses on late that the process before this one has asked for.
    strays_until: Option<Instant>,
    agenda: Agenda,
    events: VecDeque<Layer2Event>,
    precedence: Precedence,
    /// Another gateway may announce what this one has.
    rivals: bool,
    /// When one did, and all addresses were announced.
    met_rival: Option<Instant>,
    /// When what is left to other machines was last probed at once.
    asked_again: Option<Instant>,
    /// The address that was announced last, of those that are in turn.
    in_turn: Option<IpAddr>,
    /// The links whose settings were checked.
    checked: BTreeSet<u32>,
    /// How long changes take lately.
    pace: Pace,
    /// Changes in a round of renewals.
    round: usize,
    /// No address ends before that.
    first_end: Option<Instant>,
    /// nftables does not keep the kernel from answering.
    kernel_speaks: bool,
    /// When the filters for packets, and what the kernel does not answer, are to be made anew.
    watch_due: Option<Instant>,
    /// More packets wait than were received.
    backlog: bool,
}

impl Layer2 {
    /// Whether the sockets can be opened.
    ///
    /// # Errors
    /// Errors of socket(2).
    pub fn check() -> io::Result<()> {
        Requests::open()?;
        Packets::open()?;
        Ok(())
    }

    /// Opens the sockets, and learns of the links and addresses of the machine. Changes nothing before [`begin`](Self::begin), so that a process
    /// before this one may still announce. Needs CAP_NET_ADMIN and CAP_NET_RAW, and a tokio runtime.
    ///
    /// # Errors
    /// Errors of socket(2) and of requests to the kernel.
    pub async fn open(options: Layer2Options) -> io::Result<Self> {
        let Layer2Options { lifetime, repeat, on_conflict } = options;
        // The kernel counts in whole seconds.
        let lifetime = Duration::from_secs(lifetime.as_secs().max(2));
        let longest = lifetime.max(LONGEST);
        let now = Instant::now();
        let renewals = Renewals::start()?;
        let mut layer2 = Self {
            manner: Manner { lifetime, repeat, on_conflict },
            kernel_changes: KernelChanges::start(renewals.forgetting())?,
            renewals,
            notifications: Notifications::open()?,
            survey: Survey::new(longest),
            packets: Packets::open()?,
            kernel_answers: KernelAnswers::start(Nftables::open)?,
            trusted_until: None,
            links: Links::new(longest),
            subnets: Vec::new(),
            subnets_changed: true,
            announcements: BTreeMap::new(),
            adopted: BTreeMap::new(),
            strays_until: None,
            agenda: Agenda::new(now),
            events: VecDeque::new(),
            precedence: Precedence::Own,
            rivals: false,
            met_rival: None,
            asked_again: None,
            in_turn: None,
            checked: BTreeSet::new(),
            pace: Pace::new(now),
            round: 0,
            first_end: None,
            kernel_speaks: false,
            watch_due: None,
            backlog: false,
        };
        layer2.kernel_changes.set_lifetime(lifetime);
        // After the notifications were asked for, so that nothing is missed between.
        layer2.survey.ask();
        layer2.survey.changed().await;
        layer2.follow_notifications()?;
        layer2.events.clear();
        Ok(layer2)
    }

    /// Begins, where no other process on this machine announces any more. What one before this one has left is removed; with `adopt`, because it
    /// was handed over, it stays until it is announced or [`release_adopted`](Self::release_adopted) is called.
    pub fn begin(&mut self, adopt: bool) {
        let now = Instant::now();
        self.follow_notifications_or_warn();
        // Where changes take long, the process before this one has given them longer.
        let left = |ends: Instant| ends.saturating_duration_since(now).max(self.manner.lifetime);
        let lifetime = |ends| Lifetime { asked: now, time: left(ends) };
        self.adopted = self.links.ours().map(|one| ((one.ip, one.link), lifetime(one.ends))).collect();
        // Without that the first renewals would give too little, and the second round comes too late.
        if let Some(longest) = self.adopted.values().map(|lifetime| lifetime.time).max()
            && longest > self.manner.lifetime
        {
            self.pace.note_lifetime(self.adopted.len(), longest, now);
        }
        if adopt {
            self.strays_until = Some(now + self.manner.lifetime.max(LONGEST));
            self.refresh();
        } else {
            self.release_adopted();
        }
        // After that, so that the kernel does not answer for what was left: what it has not taken off yet may be another gateway's by now.
        self.watch_at_once(now);
    }

    /// Follows what others change on the machine, until this is dropped. Cancel safe.
    pub(crate) async fn watch_machine(&mut self) {
        loop {
            self.follow_notifications_or_warn();
            self.events.clear();
            let ready = tokio::select! {
                ready = self.notifications.ready() => ready,
                () = self.survey.changed() => Ok(()),
            };
            if ready.is_err() {
                // The runtime is shutting down.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Announces an address: on the interfaces with the longest prefix that contains it, of these names if there are any; a name
    /// without an interface counts only if there is no other. With `probe`, only when nobody else has it. An address that is
    /// announced already stays so. The kernel is waited for for a moment at most.
    ///
    /// # Errors
    /// The address is not announced then, and is not tried again. `Layer2Event::InterfaceBack` reports a reason to.
    pub fn announce(
        &mut self,
        ip: IpAddr,
        interfaces: &[Arc<str>],
        probe: bool,
    ) -> Result<Announced, AnnounceError> {
        let (now, told) = (Instant::now(), self.events.len());
        // Had the process been stopped, what changed meanwhile must not put its old addresses on again.
        self.lapse(now);
        let still_on = self.kernel_changes.still_on();
        self.follow_notifications()?;
        if let Some(present) = self.announcements.get_mut(&ip) {
            present.interfaces = interfaces.to_vec();
            self.place(ip);
            return self.settled(ip, told);
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
        let mut announcement = if probe && adopted.is_none() {
            Announcement::probed(now, interfaces.to_vec(), links, &self.manner)
        } else {
            let there = |link: &u32| {
                adopted.is_some() && self.links.ours_on(ip, *link) && !still_on.contains(&(ip, *link))
            };
            let (there, missing): (Vec<u32>, Vec<u32>) = links.into_iter().partition(there);
            let mut announcement = Announcement::taken_over(now, interfaces.to_vec(), there, &self.manner);
            announcement.lifetime = adopted.unwrap_or(announcement.lifetime);
            // Nobody else has it on this machine.
            let _none = self.put_on(ip, &mut announcement, &missing, Why::Begins);
            announcement
        };
        announcement.asked_again = self.asked_again;
        self.note_end(announcement.lifetime);
        self.announcements.insert(ip, announcement);
        self.agenda.set_first(ip);
        self.watch_due = Some(now);
        let announced = self.settled(ip, told);
        // Whoever announces many leaves no time for it between them.
        self.work_off(Instant::now());
        announced
    }

    /// Waits for the kernel for a moment, and returns what became of an address by then in place of events about it from the place `told` on.
    fn settled(&mut self, ip: IpAddr, told: usize) -> Result<Announced, AnnounceError> {
        self.kernel_changes.settle();
        self.take_in_changes();
        let mut failed = None;
        for event in self.events.split_off(told) {
            match event {
                Layer2Event::Failed(error) if error.ip() == Some(ip) => failed = Some(error),
                Layer2Event::Announced { ip: announced } if announced == ip => {}
                event => self.events.push_back(event),
            }
        }
        failed.map_or_else(|| Ok(self.announced(ip)), Err)
    }

    /// Withdraws an address: this process answers for it no more when this returns, and keeps the kernel from it until the address is off, which is
    /// waited for for a moment at most.
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
        self.take_off(&adopted.into_keys().collect::<Vec<_>>());
    }

    /// The addresses of a process before this one that nobody has announced since.
    pub fn adopted(&self) -> impl Iterator<Item = IpAddr> {
        self.adopted.keys().map(|(ip, _)| *ip)
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

    /// Sets which gateway keeps an address that another one announces as well, and whether one may do so. A host that is no gateway does not announce what
    /// it has, so `on_conflict` is about it all the same.
    pub fn set_precedence(&mut self, precedence: Precedence, rivals: bool) {
        self.rivals = rivals;
        let former = std::mem::replace(&mut self.precedence, precedence);
        if former == precedence || precedence != Precedence::Own {
            return;
        }
        // The other part of the network is about to give way.
        self.probe_again();
    }

    /// Probes at once what is left to another machine: a gateway that may have had it has given it up.
    pub fn probe_again(&mut self) {
        let now = Instant::now();
        self.asked_again = Some(now);
        for (ip, announcement) in &mut self.announcements {
            if announcement.probe_again(now) {
                self.agenda.set_first(*ip);
            }
        }
    }

    /// Announces all addresses that are on their interfaces as if they had just been put there.
    pub fn announce_again(&mut self) {
        let now = Instant::now();
        let all: Vec<IpAddr> = self.announcements.keys().copied().collect();
        all.into_iter().for_each(|ip| self.announce_anew(ip, now));
    }

    /// Announces the next one of the addresses that are on their interfaces, each in its turn.
    pub fn announce_one(&mut self) {
        let after = self.in_turn.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.announcements.range((after, Bound::Unbounded)).chain(&self.announcements);
        self.in_turn = later.filter(|(_, one)| one.is_on()).map(|(ip, _)| *ip).next();
        if let Some(ip) = self.in_turn {
            self.send_each(ip, |mac| announcements(mac, ip));
        }
    }

    /// Another machine announces what this one has. A gateway may have other addresses as well: all are announced, so that it need not be found for
    /// each. Where none is expected, this gateway may be the one that others went on without.
    fn meet_rival(&mut self, now: Instant) {
        if self.met_rival.is_some_and(|met| now < met + RIVAL_PAUSE) {
            return;
        }
        self.met_rival = Some(now);
        if !self.rivals {
            self.events.push_back(Layer2Event::Challenged);
            return;
        }
        for (ip, announcement) in self.announcements.iter_mut().filter(|(_, one)| one.is_on()) {
            announcement.announce_by(now);
            self.agenda.set_first(*ip);
        }
    }

    /// Says until when the addresses are surely this machine's, for whoever learns from others whose they are. Once it has been
    /// called, nothing is answered or put on later than that until it is called again: a process that stood still would speak of what it had.
    pub fn trust_until(&mut self, until: Instant) {
        self.trusted_until = Some(until);
        self.kernel_changes.trust_until(until);
    }

    /// Begins no change and no renewal any more: a successor on this machine may put addresses on and take them off. It has to take off what was to
    /// be, and to undo what the kernel does late of what has begun.
    pub fn stop_changing(&mut self) {
        self.kernel_changes.abandon();
        self.renewals.stop();
    }

    /// Leaves the addresses to a successor on this machine, which may have them already: what is left of their lifetime is not touched. The
    /// kernel answers for them until the successor does. To be dropped then.
    pub fn detach(&mut self) {
        self.stop_changing();
        self.kernel_answers.restore();
    }

    /// The link on which this machine has the address `source`, in a subnet with `target`: where its frames are sent to, and its MAC address.
    pub(crate) fn way_to_neighbour(
        &self,
        source: Ipv4Addr,
        target: Ipv4Addr,
    ) -> Option<(LinkAddr, MacAddress)> {
        let (link, mac) = self.links.neighbour(source.into(), target.into())?;
        Some((self.packets.destination(link)?, mac))
    }

    fn announced(&self, ip: IpAddr) -> Announced {
        match self.announcements.get(&ip) {
            Some(present) if present.is_on() && present.links.is_empty() && !present.pending.is_empty() => {
                Announced::Soon(self.names(&present.pending.keys().copied().collect::<Vec<_>>()))
            }
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

    /// The next event. Announcements, probes and defences are made while this is waited for. It can be dropped at any time, and loses nothing.
    pub async fn next_event(&mut self) -> Layer2Event {
        loop {
            self.poll(Instant::now());
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            if let Err(error) = self.wait().await {
                // The runtime is shutting down: nothing will ever be ready.
                warn!(%error, "announced addresses can no longer be watched");
                std::future::pending::<()>().await;
            }
        }
    }

    /// Does what is due.
    fn poll(&mut self, now: Instant) {
        self.lapse(now);
        self.follow_notifications_or_warn();
        self.kernel_changes.settle();
        self.take_in_changes();
        if let Some(error) = self.kernel_answers.take_outcome() {
            self.kernel_speaks = error.is_some();
            self.events.push_back(Layer2Event::KernelAnswers(error));
        }
        if self.may_listen(now) {
            self.listen(now);
            self.work_off(now);
        }
        self.watch(now);
    }

    /// Has the addresses whose time has come do what they have to.
    fn work_off(&mut self, now: Instant) {
        for ip in self.agenda.take(now) {
            self.act(ip, now);
        }
    }

    async fn wait(&self) -> io::Result<()> {
        let trusted = self.may_listen(Instant::now());
        let backlog = self.backlog && trusted;
        // It would wake for what it may not do.
        let agenda = self.agenda.due().filter(|_| trusted);
        let due = [agenda, self.lapse_due(), self.watch_due, backlog.then(Instant::now)];
        let due = due.into_iter().flatten().min();
        let sleep = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep => Ok(()),
            ready = self.notifications.ready() => ready,
            () = self.survey.changed() => Ok(()),
            ready = self.packets.ready(), if trusted => ready,
            () = self.kernel_answers.changed() => Ok(()),
            () = self.kernel_changes.changed() => Ok(()),
            () = self.renewals.changed() => Ok(()),
        }
    }

    fn may_listen(&self, now: Instant) -> bool {
        self.trusted_until.is_none_or(|until| now < until)
    }

    /// Does what an address has to do.
    fn act(&mut self, ip: IpAddr, now: Instant) {
        while let Some(step) = self.announcements.get_mut(&ip).and_then(|one| one.step(now, &self.manner)) {
            match step {
                Step::Probe => self.send_each(ip, |mac| vec![probe(mac, ip)]),
                Step::Announce => self.send_each(ip, |mac| announcements(mac, ip)),
                Step::ConflictOver => self.events.push_back(Layer2Event::ConflictOver { ip }),
                Step::PutOn { after_conflict } => self.put_on_after_probe(ip, after_conflict),
            }
        }
        self.schedule(ip);
    }

    fn schedule(&mut self, ip: IpAddr) {
        self.agenda.set(ip, self.announcements.get(&ip).and_then(|one| one.due(&self.manner)));
    }

    fn put_on_after_probe(&mut self, ip: IpAddr, after_conflict: bool) {
        let Some(mut announcement) = self.announcements.remove(&ip) else { return };
        let links = announcement.take_links();
        let error = self.put_on(ip, &mut announcement, &links, Why::Probed { after_conflict });
        self.keep(ip, announcement, error);
    }

    /// Sends the frames of an address out of each of its links.
    fn send_each(&mut self, ip: IpAddr, frames: impl Fn(MacAddress) -> Vec<Vec<u8>>) {
        let links = self.announcements.get(&ip).map(|announcement| announcement.links.clone());
        links.into_iter().flatten().for_each(|link| self.send(ip, link, &frames));
    }

    /// Sends frames about an address out of a link.
    fn send(&mut self, ip: IpAddr, link: u32, frames: impl Fn(MacAddress) -> Vec<Vec<u8>>) {
        let Some(subnet) = self.subnets.iter().find(|subnet| subnet.link == link) else { return };
        for frame in frames(subnet.mac) {
            if let Err(error) = self.packets.send(link, &frame) {
                debug!(%ip, interface = %subnet.interface, %error, "a frame was not sent");
            }
        }
    }

    /// Takes in what others say, and answers their questions.
    fn listen(&mut self, now: Instant) {
        let mut received = Vec::new();
        let mut rival = false;
        self.backlog = !self.packets.receive(&mut received);
        for Received { link, statement } in received {
            let (ip, mac) = match statement {
                Statement::Has(ip, mac) | Statement::Announces(ip, mac) => (ip, mac),
                Statement::Probes(ip, mac) => (ip, Some(mac)),
                Statement::Asks(ip, asker) => (ip, asker.mac),
            };
            if mac.is_some_and(|mac| self.links.has_mac(mac)) {
                continue;
            }
            let policy = self.manner.on_conflict;
            let Some(announcement) = self.announcements.get_mut(&ip) else { continue };
            if !announcement.links.contains(&link) {
                continue;
            }
            let is_on = announcement.is_on();
            rival |= is_on && matches!(statement, Statement::Announces(..));
            let (verdict, asker) = match statement {
                Statement::Announces(_, mac) => {
                    let lower = is_lower(mac, &self.subnets, announcement);
                    (announcement.on_announcement(self.precedence, lower, policy, now), None)
                }
                Statement::Has(..) => (announcement.on_claim(now, policy), None),
                Statement::Probes(..) => {
                    let asker = Asker { ip: Ipv4Addr::UNSPECIFIED.into(), mac };
                    (announcement.on_probe(now), Some(asker))
                }
                Statement::Asks(_, asker) => {
                    announcement.on_question(now);
                    (Verdict::Known, Some(asker))
                }
            };
            if let Some(asker) = asker.filter(|_| is_on) {
                self.send(ip, link, |mac| answer(mac, ip, asker).into_iter().collect());
            }
            self.follow_verdict(ip, mac, link, verdict);
        }
        if rival {
            self.meet_rival(now);
        }
    }

    fn follow_verdict(&mut self, ip: IpAddr, mac: Option<MacAddress>, link: u32, verdict: Verdict) {
        self.schedule(ip);
        let answer = match verdict {
            Verdict::Known => return,
            Verdict::Defend => ConflictAnswer::Defended,
            Verdict::NotAnnounced => ConflictAnswer::NotAnnounced,
            Verdict::Withdraw | Verdict::GiveWay => {
                if let Some(announcement) = self.announcements.get_mut(&ip) {
                    let links = announcement.take_links();
                    announcement.links.clone_from(&links);
                    self.take_off(&links.into_iter().map(|link| (ip, link)).collect::<Vec<_>>());
                }
                self.watch_due = Some(Instant::now());
                if verdict == Verdict::GiveWay {
                    ConflictAnswer::LeftToGateway
                } else {
                    ConflictAnswer::Withdrawn
                }
            }
        };
        let interface = self.links.name(link);
        self.events.push_back(Layer2Event::Conflict { ip, mac, interface, answer });
    }

    /// Does [`watch_at_once`](Self::watch_at_once) when what matters has changed.
    fn watch(&mut self, now: Instant) {
        if self.watch_due.is_some_and(|due| due <= now) {
            self.watch_at_once(now);
        }
    }

    /// Makes the filters anew, and then keeps the kernel from answering.
    fn watch_at_once(&mut self, now: Instant) {
        let mut watched = [Watched::default(); 2];
        let mut answered = [BTreeSet::new(), BTreeSet::new()];
        // This process answers for them no more, and the kernel is not to either.
        for (ip, link) in self.kernel_changes.still_on() {
            answered[family(ip)].insert((ip, link));
        }
        for (ip, announcement) in &self.announcements {
            watched[family(*ip)].add(*ip);
            if announcement.is_on() {
                answered[family(*ip)].extend(announcement.links.iter().map(|&link| (*ip, link)));
            }
        }
        if let Err(error) = self.packets.watch(watched) {
            warn!(%error, "others that use announced addresses cannot be watched for");
            // Nobody would answer.
            answered = [BTreeSet::new(), BTreeSet::new()];
        }
        self.kernel_answers.suppress(answered, now);
        self.watch_due = self.kernel_answers.due();
    }
}

impl Drop for Layer2 {
    fn drop(&mut self) {
        self.kernel_changes.end();
        if self.kernel_changes.take_removed() {
            self.watch_at_once(Instant::now());
        }
    }
}

/// Whether a machine has a lower MAC address than this one. Which of its own counts is the same for all links of the address, or each of two
/// gateways would give way to the other on one of two links.
fn is_lower(other: Option<MacAddress>, subnets: &[Subnet], announcement: &Announcement) -> bool {
    let own = subnets.iter().filter(|subnet| announcement.links.contains(&subnet.link));
    let lowest = own.map(|subnet| subnet.mac).min();
    other.zip(lowest).is_some_and(|(other, lowest)| other < lowest)
}
