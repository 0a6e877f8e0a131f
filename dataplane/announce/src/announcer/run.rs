//! The announcer's thread: waits for heartbeats, commands, neighbours and deadlines, and does what follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hold_down_file::HoldDownFile;
use super::holding::Holdings;
use super::socket::HeartbeatSocket;
use super::{Command, Inbox, Options, Publish, RENEWAL, RETRY, StartError};
use crate::Claim;
use crate::disagreement::Disagreements;
use crate::heartbeat::Applied;
use crate::keys::Keys;
use crate::layer2::{Layer2, Layer2Options};
use crate::membership::{Actions, Listing, Membership, Presence, ReceiveOutcome, Start};
use crate::ownership::{Assignment, Handover, HandoverSteps, assign};
use crate::tie_breaker::Pinger;

/// How long the kernel keeps addresses of a process that does not renew them: it counts in seconds, and a busy machine may stand still
/// for one.
const LIFETIME: Duration = Duration::from_secs(3);
/// Time after the first gateways could own addresses in which earlier owners do not count: all gateways began together.
const BEGINNING: Duration = Duration::from_secs(1);
/// How many heartbeats tell the others that this gateway announces nothing any more.
const FAREWELLS: u8 = 3;
/// How many addresses are announced between two looks at everything else.
const AT_ONCE: usize = 256;

/// Runs until a command ends it, or it cannot go on. Without a socket it opens one; without a start it waits for [`Command::Begin`].
pub(super) fn run(
    options: Options,
    keys: Keys,
    socket: Option<HeartbeatSocket>,
    start: Option<Start>,
    mut inbox: Inbox,
    publish: Publish,
) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(StartError::system("cannot start a runtime"))?.block_on(async {
        let layer2 = Layer2::open(Layer2Options {
            lifetime: LIFETIME,
            repeat: options.repeat,
            on_conflict: options.on_conflict,
        });
        let mut layer2 = layer2.await.map_err(StartError::no_rights())?;
        let start = match start {
            Some(start) => start,
            None => match until_begun(&mut inbox, &mut layer2).await {
                Some(start) => start,
                None => return Ok(()),
            },
        };
        Announcing::start(options, keys, socket, start, layer2, inbox, publish).await?.run().await;
        Ok(())
    })
}

/// Follows the machine until this process is to announce; `None` if it never is.
async fn until_begun(inbox: &mut Inbox, layer2: &mut Layer2) -> Option<Start> {
    loop {
        tokio::select! {
            command = inbox.recv() => match command? {
                Command::Begin(start) => return Some(start),
                Command::Ready(reply) => drop(reply.send(())),
                // Whoever ends it before it has begun has nothing to hand over.
                _ => return None,
            },
            () = layer2.watch_machine() => {}
        }
    }
}

/// Everything that the thread has.
pub(super) struct Announcing {
    inbox: Inbox,
    pub(super) publish: Publish,
    pub(super) keys: Keys,
    socket: HeartbeatSocket,
    pub(super) membership: Membership,
    pub(super) handover: Handover,
    pub(super) holdings: Holdings,
    hold_down: HoldDownFile,
    pub(super) pinger: Pinger,
    pub(super) claims: Arc<BTreeMap<IpAddr, Claim>>,
    /// Listing of this gateway at the API server.
    pub(super) listing: Listing,
    /// The claims or the view are others than those of the assignment that is followed.
    outdated: bool,
    /// Addresses that a process before this one has left are still to be adopted or released.
    adopts: bool,
    /// A process after this one goes on with the addresses.
    detaches: bool,
    /// Heartbeats still to be sent that report the end, once nothing is announced any more.
    farewells: Option<u8>,
    /// The addresses that nobody had before they became this gateway's.
    unowned: BTreeSet<IpAddr>,
    /// Since when this process knows of gateways that may own addresses.
    began: Option<Instant>,
    /// Heartbeats that none of the keys has signed: all until the last look, and whether there were some since the one before.
    pub(super) unsigned: (u64, bool),
    pub(super) disagreements: Disagreements,
    /// Warning about addresses that only other gateways can announce.
    pub(super) out_of_reach: Option<String>,
    /// Since when the tie-breaker may be needed.
    pub(super) tie_since: Option<Instant>,
    pinged: Instant,
    renewal_due: Instant,
    retry_due: Instant,
    status_due: Instant,
}

impl Announcing {
    async fn start(
        options: Options,
        keys: Keys,
        socket: Option<HeartbeatSocket>,
        start: Start,
        mut layer2: Layer2,
        inbox: Inbox,
        publish: Publish,
    ) -> Result<Self, StartError> {
        let began = Instant::now();
        let socket = match socket {
            Some(socket) => socket,
            None => HeartbeatSocket::open_patiently(options.membership.port).await?,
        };
        let node = Arc::clone(&options.membership.node);
        let hold_down = HoldDownFile::new(&options.state, Arc::clone(&node));
        let (start, adopt) = match start {
            Start::Fresh(lost) => (Start::Fresh(lost.or_else(|| hold_down.read(&options.membership))), false),
            Start::Continued(mut continuation) => {
                continuation.lease_left = continuation.lease_left.saturating_sub(began.elapsed());
                (Start::Continued(continuation), true)
            }
        };
        layer2.begin(adopt);
        let now = Instant::now();
        let membership = Membership::new(options.membership, keys.ring.clone(), start, random(), now)?;
        let holdings = Holdings::new(layer2, options.interfaces);
        Ok(Self {
            inbox,
            publish,
            keys,
            socket,
            handover: Handover::new(node, holdings.layer2.adopted().collect()),
            membership,
            holdings,
            hold_down,
            pinger: Pinger::new(options.tie_breaker),
            claims: Arc::default(),
            listing: Listing::Never,
            outdated: true,
            adopts: adopt,
            detaches: false,
            farewells: None,
            unowned: BTreeSet::new(),
            began: None,
            unsigned: (0, false),
            disagreements: Disagreements::default(),
            out_of_reach: None,
            tie_since: None,
            pinged: now - RENEWAL,
            renewal_due: now,
            retry_due: now + RETRY,
            status_due: now,
        })
    }

    async fn run(mut self) {
        self.follow_commands_and_others().await;
        if self.detaches {
            self.holdings.layer2.stop_changing();
            // The successor waits for the port, and the others for its heartbeats. What follows may wait for the kernel or another program.
            drop(self.socket);
            self.holdings.layer2.detach();
        } else if self.membership.presence() == Presence::Left {
            self.hold_down.remove().await;
        }
    }

    async fn follow_commands_and_others(&mut self) {
        // Before it knows of the others, a gateway would take itself for the only one.
        loop {
            let Some(command) = self.inbox.recv().await else { return };
            let known = matches!(command, Command::Members(_));
            if self.obey(command).is_break() {
                return;
            }
            if known {
                break;
            }
        }
        while self.step().is_continue() && self.wait().await.is_continue() {}
    }

    /// Waits until there are conclusions to draw; heartbeats from which none follow are read meanwhile.
    async fn wait(&mut self) -> ControlFlow<()> {
        let due = self.next_due();
        let each = self.handover.waits();
        tokio::select! {
            () = self.socket.read_until_due(&mut self.membership, each) => {}
            command = self.inbox.recv() => return match command {
                Some(command) => self.obey(command),
                // Without anybody to tell it anything it ends as if it were killed.
                None => ControlFlow::Break(()),
            },
            () = self.holdings.event() => {}
            answer = self.pinger.answered() => {
                self.pinger.note(answer);
                self.membership.set_tie_breaker(answer.asked);
            }
            () = tokio::time::sleep_until(due.into()) => {}
        }
        ControlFlow::Continue(())
    }

    /// Draws the conclusions that are due.
    fn step(&mut self) -> ControlFlow<()> {
        // Before it is concluded that somebody is silent.
        self.socket.read(&mut self.membership);
        let now = Instant::now();
        if let Some(reach) = self.holdings.changed_reach() {
            self.membership.set_reach(reach, now);
        }
        if std::mem::take(&mut self.holdings.challenged) {
            self.membership.challenge();
        }
        let Actions { fenced, unfenced: _, view_changed, announce_again, probe_again, announce_one, send } =
            self.membership.poll(now);
        if fenced {
            let announced = self.handover.fence();
            if !announced.is_empty() {
                let addresses = announced.len();
                tracing::warn!(addresses, "too few gateways hear this one: it gives up its addresses");
            }
            self.holdings.withdraw(announced);
            if std::mem::take(&mut self.adopts) {
                self.holdings.layer2.release_adopted();
            }
            self.membership.set_applied(Applied::default(), now);
        }
        send.iter().for_each(|datagram| self.socket.send(datagram));
        self.holdings.layer2.set_precedence(self.membership.precedence(), self.membership.may_have_rivals());
        if announce_again {
            self.holdings.layer2.announce_again();
        }
        if announce_one {
            self.holdings.layer2.announce_one();
        }
        if probe_again {
            self.holdings.layer2.probe_again();
        }
        if let Some(farewells) = &mut self.farewells {
            *farewells = farewells.saturating_sub(u8::from(send.is_some()));
            if *farewells == 0 || self.membership.alive().next().is_none() {
                self.publish(now, true);
                self.holdings.tell_log();
                return ControlFlow::Break(());
            }
        }
        // A process that stood still for longer has to conclude first whether they are still its own.
        self.holdings.layer2.trust_until(now + self.membership.options().fail_after / 2);
        let follows_another = view_changed || self.outdated;
        self.outdated |= view_changed || fenced;
        self.follow(now);
        self.renew(now);
        self.holdings.announce_some(AT_ONCE, &self.claims);
        let addresses_changed = std::mem::take(&mut self.holdings.changed) || follows_another;
        if addresses_changed {
            self.membership.set_contested(&self.holdings.contested());
        }
        self.tell(addresses_changed, now);
        ControlFlow::Continue(())
    }

    /// Publishes what is new, and everything once in a while.
    fn tell(&mut self, addresses_changed: bool, now: Instant) {
        // A process that is killed now must have left it.
        self.hold_down.update(self.membership.hold_down());
        let due = now >= self.status_due;
        if due {
            let unsigned = self.membership.counters().of(ReceiveOutcome::Unsigned);
            self.unsigned = (unsigned, unsigned > self.unsigned.0);
            self.status_due = now + RENEWAL;
        }
        if due || addresses_changed {
            self.publish(now, addresses_changed);
            self.holdings.tell_log();
        }
    }

    /// Does what the present view asks for.
    fn follow(&mut self, now: Instant) {
        let view = self.membership.view();
        if view.fenced {
            // No address is announced.
            self.leave_at_once_if_leaving();
            return;
        }
        if view.listening {
            return;
        }
        let former = Arc::clone(self.handover.assignment());
        let HandoverSteps { withdraw, applied, announce, awaiting, left } = if self.outdated {
            let assignment = Arc::new(assign(&view.candidates, &self.claims));
            self.outdated = false;
            if !view.candidates.is_empty() {
                self.began.get_or_insert(now);
            }
            self.unowned = self.newly_owned(&former, &assignment, now);
            self.handover.update(assignment, &self.membership, now)
        } else {
            self.handover.poll(&self.membership, now)
        };
        self.holdings.withdraw(withdraw);
        applied.into_iter().for_each(|applied| self.membership.set_applied(applied, now));
        // What some gateway had before is nobody else's, unless that one or another has left it to somebody.
        let (unowned, membership) = (&mut self.unowned, &self.membership);
        self.holdings.announce(announce, |ip| unowned.remove(&ip) || membership.is_contested(ip, now));
        self.membership.set_awaiting(awaiting);
        if std::mem::take(&mut self.adopts) {
            self.holdings.take_adopted(self.handover.announced(), &self.claims);
        }
        if left {
            self.membership.set_presence(Presence::Left);
            self.farewells.get_or_insert(FAREWELLS);
        }
    }

    /// The addresses of this gateway that nobody had before, those that have waited since then included.
    fn newly_owned(&self, former: &Assignment, assignment: &Assignment, now: Instant) -> BTreeSet<IpAddr> {
        let own = &self.membership.options().node;
        let begins = self.began.is_some_and(|began| now < began + BEGINNING);
        let is_new = |ip: &IpAddr| match former.owner(ip) {
            _ if begins => true,
            None => true,
            Some(node) => node == own && self.unowned.contains(ip),
        };
        let owned = assignment.owners.iter().filter(|(_, owner)| owner.as_ref() == Ok(own));
        owned.map(|(ip, _)| *ip).filter(is_new).collect()
    }

    /// Goes one step further towards the end, never back.
    fn depart(&mut self, presence: Presence) {
        if self.membership.presence() < presence {
            self.membership.set_presence(presence);
            self.outdated = true;
        }
    }

    fn leave_at_once_if_leaving(&mut self) {
        if self.membership.presence() != Presence::Staying {
            self.membership.set_presence(Presence::Left);
            self.farewells.get_or_insert(FAREWELLS);
        }
    }

    /// Keeps up what would end by itself.
    fn renew(&mut self, now: Instant) {
        if now >= self.renewal_due {
            self.holdings.layer2.refresh();
            self.renewal_due = now + RENEWAL;
        }
        if now >= self.retry_due {
            self.holdings.retry();
            self.retry_due = now + RETRY;
        }
        let alone = self.membership.view().quorum.members < 2;
        if alone {
            self.tie_since = None;
        }
        if self.ping_due().is_some_and(|due| now >= due) {
            if !alone {
                self.tie_since.get_or_insert(now);
            }
            self.pinger.ping(now, |source, target| self.holdings.layer2.way_to_neighbour(source, target));
            self.pinged = now;
        }
        if now >= self.keys.next_look()
            && let Some(ring) = self.keys.changed(now)
        {
            self.membership.set_keys(ring.clone());
        }
    }

    /// When the tie-breaker is asked next: all the time where its answer may be needed, otherwise to notice that it does not answer. Not at all where no other
    /// member counts or comes.
    fn ping_due(&self) -> Option<Instant> {
        match () {
            () if self.membership.needs_tie_breaker() => {
                Some(self.pinged + self.membership.options().interval)
            }
            () => (self.membership.view().quorum.members > 1).then(|| self.pinged + RENEWAL),
        }
    }

    fn next_due(&self) -> Instant {
        if !self.holdings.queue.is_empty() {
            return Instant::now();
        }
        let times = [self.renewal_due, self.retry_due, self.status_due, self.keys.next_look()];
        let times = times.into_iter().chain(self.ping_due()).chain(self.handover.next_due());
        times.fold(self.membership.next_due(), Instant::min)
    }

    fn obey(&mut self, command: Command) -> ControlFlow<()> {
        let now = Instant::now();
        match command {
            Command::Members(members) => {
                let own = &self.membership.options().node;
                self.listing = match members.iter().find(|member| member.node == *own) {
                    Some(member) if member.ready => Listing::Ready,
                    Some(_) => Listing::NotReady,
                    None => Listing::Never,
                };
                self.membership.set_members(members, now);
            }
            Command::Claims(claims) => {
                self.holdings.follow_interfaces(&self.claims, &claims);
                self.claims = Arc::new(claims);
                self.outdated = true;
            }
            Command::Knowledge(knowledge) => self.membership.set_knowledge(knowledge),
            Command::Continuation(reply) => drop(reply.send(self.membership.hand_over(now))),
            Command::Leave => self.depart(Presence::Leaving),
            Command::End => self.depart(Presence::Ending),
            Command::Detach => {
                self.detaches = true;
                return ControlFlow::Break(());
            }
            // It has begun.
            Command::Begin(_) => {}
            Command::Ready(reply) => drop(reply.send(())),
        }
        ControlFlow::Continue(())
    }
}

/// Tells this process from the ones before it.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
