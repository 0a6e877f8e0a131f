//! What goes on while addresses are announced: announcements whose time has come, and what others say.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use tracing::{debug, warn};

use super::announcement::{Announcement, Step, Verdict};
use super::filter::Watched;
use super::frame::{Asker, MacAddress, Statement, announcements, answer, probe};
use super::links::Subnet;
use super::packets::{Received, family};
use super::{ConflictAnswer, Layer2, Layer2Event};
use crate::precedence::Precedence;

impl Layer2 {
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
        if self.may_listen(now) {
            self.listen(now);
            self.work_off(now);
        }
        self.watch(now);
    }

    /// Has the addresses whose time has come do what they have to.
    pub(super) fn work_off(&mut self, now: Instant) {
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
            ready = self.packets.ready(), if trusted => ready,
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
                Step::PutOn { after_conflict } => self.put_on_after_probe(ip, now, after_conflict),
            }
        }
        self.schedule(ip);
    }

    fn schedule(&mut self, ip: IpAddr) {
        self.agenda.set(ip, self.announcements.get(&ip).and_then(|one| one.due(&self.manner)));
    }

    fn put_on_after_probe(&mut self, ip: IpAddr, now: Instant, after_conflict: bool) {
        let Some(announcement) = self.announcements.get(&ip) else { return };
        let links = announcement.links.clone();
        let event = match self.put_on(ip, &links) {
            Ok(()) if after_conflict => Layer2Event::ConflictOver { ip },
            Ok(()) => Layer2Event::Announced { ip },
            Err(error) => {
                self.announcements.remove(&ip);
                Layer2Event::Failed(error)
            }
        };
        self.events.push_back(event);
        self.watch_due = Some(now);
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
            let (verdict, asker) = match statement {
                Statement::Announces(_, mac)
                    if is_on && gives_way(self.precedence, &self.subnets, announcement, mac) =>
                {
                    (announcement.give_way(now), None)
                }
                Statement::Has(..) | Statement::Announces(..) => (announcement.on_claim(now, policy), None),
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
    }

    fn follow_verdict(&mut self, ip: IpAddr, mac: Option<MacAddress>, link: u32, verdict: Verdict) {
        self.schedule(ip);
        let answer = match verdict {
            Verdict::Known => return,
            Verdict::Defend => ConflictAnswer::Defended,
            Verdict::NotAnnounced => ConflictAnswer::NotAnnounced,
            Verdict::Withdraw | Verdict::GiveWay => {
                let links = self.announcements.get(&ip).map_or_else(Vec::new, |one| one.links.clone());
                self.take_off(&links.into_iter().map(|link| (ip, link)).collect::<Vec<_>>());
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

    /// Makes the filters anew when what matters has changed, and then keeps the kernel from answering.
    pub(super) fn watch(&mut self, now: Instant) {
        if self.watch_due.is_none_or(|due| now < due) {
            return;
        }
        let mut watched = [Watched::default(); 2];
        let mut answered = [BTreeSet::new(), BTreeSet::new()];
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
        let error = self.kernel_answers.suppress(answered, now).err();
        self.watch_due = self.kernel_answers.due();
        if self.kernel_answers_itself != error.is_some() {
            self.kernel_answers_itself = error.is_some();
            self.events.push_back(Layer2Event::KernelAnswers(error));
        }
    }
}

/// Whether the machine with this MAC address keeps an address that it announces as well.
fn gives_way(
    precedence: Precedence,
    subnets: &[Subnet],
    announcement: &Announcement,
    other: Option<MacAddress>,
) -> bool {
    match precedence {
        Precedence::Own => false,
        Precedence::Other => true,
        // One number for each gateway, or each would give way to the other on one of two links.
        Precedence::LowerMac => {
            let own = subnets.iter().filter(|subnet| announcement.links.contains(&subnet.link));
            let lowest = own.map(|subnet| subnet.mac).min();
            other.zip(lowest).is_some_and(|(other, lowest)| other < lowest)
        }
    }
}
