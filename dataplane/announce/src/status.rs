//! Status of an announcer, for people and programs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::Claim;
use crate::ability::InterfaceId;
use crate::disagreement::Disagreement;
use crate::layer2::ConflictAnswer;
use crate::membership::{Candidate, Standing};
use crate::ownership::{NoOwner, Ranked, explain};

/// The state of one gateway's announcer, and what it knows of the others.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// This gateway's node.
    pub node: Arc<str>,
    /// Whether each gateway announces what it can serve, by BGP: no address has an owner then, and no gateway knows of the others.
    pub shared: bool,
    /// Whether it may own addresses.
    pub state: GatewayState,
    /// How many gateways hear this one, itself included.
    pub heard_by: usize,
    /// Out of how many.
    pub counted: usize,
    /// Address that decides a tie, and whether it answers; none where no tie is possible or there is no such address.
    pub tie_breaker: Option<(IpAddr, bool)>,
    /// Exactly half of the gateways may be left, and nothing decides then who goes on.
    pub tie_undecided: bool,
    /// The nodes of gateways that the API server calls ready, and that nobody has heard for a while.
    pub absent: Vec<Arc<str>>,
    /// The silence after which a gateway counts as dead here: what is configured, and room for long round trips.
    pub fail_after: Duration,
    /// All gateways, this one included, sorted by node.
    pub members: Vec<MemberStatus>,
    /// All addresses that are to be announced.
    pub addresses: Arc<BTreeMap<IpAddr, AddressStatus>>,
    /// Settings of the machine that keep announcements from working.
    pub warnings: Vec<String>,
    /// Why it has ended, if it could not go on.
    pub failure: Option<String>,
    /// Since the start.
    pub counts: Counts,
    pub(crate) standings: BTreeMap<Arc<str>, Standing>,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) claims: Arc<BTreeMap<IpAddr, Claim>>,
}

impl Status {
    /// Status of a gateway that has just started.
    pub(crate) fn new(node: Arc<str>) -> Self {
        Self { node, ..Self::default() }
    }

    /// Status of a gateway that cannot announce anything.
    pub(crate) fn failed(node: Arc<str>, failure: String) -> Self {
        Self { node, failure: Some(failure), ..Self::default() }
    }

    /// The gateways in the order in which an address prefers them, each with why it owns the address or does not. Takes as long as to
    /// assign all addresses.
    pub fn ranking(&self, address: IpAddr) -> Vec<Ranked> {
        explain(address, &self.standings, &self.candidates, &self.claims).unwrap_or_default()
    }

    /// Whether other gateways can take all that this one owns.
    pub fn others_can_take_over(&self) -> bool {
        let own = self.addresses.iter().filter(|(_, address)| address.owner.as_ref() == Ok(&self.node));
        let mut owned = own.filter_map(|(ip, _)| Some((*ip, self.claims.get(ip)?)));
        owned.all(|(ip, claim)| {
            let interfaces = InterfaceId::all(&claim.interfaces);
            let can = |candidate: &Candidate| {
                candidate.node != self.node
                    && claim.nodes.contains(&candidate.node)
                    && candidate.ability.reach.contains(ip, &interfaces)
            };
            self.candidates.iter().any(can)
        })
    }

    /// The gateways that have disagreed with this one for longer than any change takes.
    pub fn disagreements(&self) -> impl Iterator<Item = (&Arc<str>, Disagreement)> {
        self.members.iter().filter_map(|member| Some((&member.node, member.disagreement?)))
    }

    /// Publishes it. Only what programs have to follow wakes those who wait for it.
    pub(crate) fn publish(self, to: &watch::Sender<Arc<Self>>) {
        to.send_if_modified(|published| {
            let differs = self.differs(published);
            *published = Arc::new(self);
            differs
        });
    }

    fn differs(&self, other: &Self) -> bool {
        (self.state, &self.warnings) != (other.state, &other.warnings)
            || self.addresses != other.addresses
            || self.disagreements().ne(other.disagreements())
    }
}

/// Whether a gateway may own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GatewayState {
    /// May own addresses.
    Eligible,
    /// Owns addresses although half of the gateways or fewer hear it, because the tie-breaker answers.
    Minority,
    /// Too few others hear it: they may have taken over what it had.
    #[default]
    Fenced,
    /// Heard again, and waits before it owns addresses.
    HoldDown,
    /// Gives its addresses away, and ends.
    Leaving,
}

/// Status of a gateway, as this one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its node.
    pub node: Arc<str>,
    /// Where heartbeats are sent; none for this one.
    pub address: Option<IpAddr>,
    /// Whether it may own addresses, and why not.
    pub standing: Standing,
    /// Whether its heartbeats arrive here.
    pub heard: bool,
    /// A gateway that hears it, where this one does not.
    pub heard_via: Option<Arc<str>>,
    /// Since its last heartbeat.
    pub silent_for: Option<Duration>,
    /// How long a heartbeat and its echo took lately.
    pub round_trip: Option<Duration>,
    /// Whether it agrees with this gateway about who owns what.
    pub agrees: bool,
    /// About what it has disagreed for longer than any change takes.
    pub disagreement: Option<Disagreement>,
    /// Whether the API server calls it ready.
    pub ready: bool,
}

/// Owner of an address, and its state here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressStatus {
    /// The node of the owner, as this gateway computes it, or why nobody is.
    pub owner: Result<Arc<str>, NoOwner>,
    /// State on this gateway.
    pub here: Here,
}

/// State of an address on a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Here {
    /// Nothing: it is another's, or nobody's.
    #[default]
    Nothing,
    /// Owned by this gateway, as soon as those that may still have it have let go.
    Waiting {
        /// The nodes of those.
        nodes: Vec<Arc<str>>,
    },
    /// Announced, or about to be.
    Announced {
        /// On these interfaces.
        interfaces: Vec<Arc<str>>,
    },
    /// Cannot be announced.
    Failed {
        /// For people.
        error: String,
    },
    /// Another machine uses it.
    Conflict {
        /// The other's hardware address.
        mac: String,
        /// Where it was seen.
        interface: Arc<str>,
        /// Answer to it.
        answer: ConflictAnswer,
    },
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Heartbeats sent, each to one gateway.
    pub heartbeats_sent: u64,
    /// Heartbeats that were believed.
    pub heartbeats_received: u64,
    /// Heartbeats that were not: signed by no key of ours, replayed, malformed.
    pub heartbeats_refused: u64,
    /// Addresses that this gateway began to announce.
    pub gained: u64,
    /// Addresses that it ceased to announce.
    pub lost: u64,
    /// How often it was fenced.
    pub fenced: u64,
    /// Conflicts with other machines.
    pub conflicts: u64,
}
