//! Announcing of a gateway: passes the gateways, the addresses of the table and the end of this process on to the announcer, and
//! follows the announcer's state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_announce::{
    AddressStatus, Announcer, AnnouncerEvent, Claim, ConflictAnswer, Continuation, Disagreement, Here,
    Knowledge, Member, MemberStatus, Standing, Start, Status,
};
use sheave_console::retry;
use sheave_control::api::gateway_members::{ListedGateway, gateway_members};
use sheave_control::api::problem::reason;
use sheave_control::api::store::ServiceKey;
use sheave_control::pipeline::Pipeline;
use sheave_control::projection::announce_claims::{AddressClaims, ClaimContext};
use sheave_control::projection::{AnnouncePolicies, Projection, SharedAddresses};
use sheave_control::sources::Sources;
use sheave_dataplane::Dataplane;
use sheave_model::RoutingTable;
use tokio::task::JoinHandle;

use crate::gateway::bgp_devices::BgpDevices;
use crate::gateway::dataplane_failures::Unannounced;
use crate::gateway::options::AnnounceOptions;
use crate::takeover::message::HandedAnnouncing;

/// How long the API server may be unreachable before addresses should move to gateways that reach it.
const STALE: Duration = Duration::from_secs(30);
/// How long the kernel may take for what the announcer needs before a takeover.
const PREPARATION: Duration = Duration::from_secs(10);
/// How long workers may take to open the listeners of an address before it is announced.
const OPENING: Duration = Duration::from_secs(2);

/// The announcer of a gateway, if it has one.
#[derive(Debug, Default)]
pub(super) struct Announcing {
    options: Option<AnnounceOptions>,
    announcer: Option<Announcer>,
    claims: AddressClaims,
    /// Inputs of the claims that the announcer has.
    inputs: Option<ClaimInputs>,
    /// Reason for a missing announcer.
    failure: Option<String>,
    /// Whether this process is about to end.
    leaving: bool,
    /// Time since the API server has been unreachable.
    cut_off: Option<Instant>,
    /// Whether no other process on this node announces addresses.
    begun: bool,
    /// Announcer that waits until this process announces in place of another one.
    prepared: Option<Announcer>,
    /// State from another process on this node, and when it was received.
    handed: Option<(HandedAnnouncing, Instant)>,
    /// Interfaces from which a routing daemon announces addresses.
    devices: Option<BgpDevices>,
    /// Task that passes on claims as soon as their listeners are open.
    opening: Option<JoinHandle<()>>,
    /// Reason why other listeners of the machine answer at announced addresses, if they do.
    unguarded: Option<String>,
}

/// Inputs of the announcer's members and claims.
#[derive(Debug)]
struct ClaimInputs {
    table: Arc<RoutingTable>,
    node_addresses: Arc<BTreeSet<IpAddr>>,
    policies: Arc<AnnouncePolicies>,
    shared: Arc<SharedAddresses>,
    members: Vec<Member>,
}

impl PartialEq for ClaimInputs {
    fn eq(&self, other: &Self) -> bool {
        // An unchanged table is the same allocation.
        Arc::ptr_eq(&self.table, &other.table)
            && self.policies == other.policies
            && self.shared == other.shared
            && self.node_addresses == other.node_addresses
            && self.members == other.members
    }
}

impl Announcing {
    /// Without options, nothing is announced. Unless `alone`, nothing is announced before [`Self::begin`], since another process on
    /// this node announces.
    pub(super) fn new(options: Option<AnnounceOptions>, alone: bool) -> Self {
        // If it cannot be prepared, it will say why when it starts.
        let prepared = match &options {
            Some(AnnounceOptions::Layer2(options)) if !alone => Announcer::prepare(options.clone()).ok(),
            _ => None,
        };
        Self { options, begun: alone, prepared, ..Self::default() }
    }

    /// Starts to announce.
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    /// Waits for a change of the announcer's status. Cancel safe.
    pub(super) async fn changed(&mut self) {
        let Some(announcer) = &mut self.announcer else { return std::future::pending().await };
        let change = announcer.changed().await;
        let failure = announcer.status().failure.clone();
        match (change, failure) {
            (AnnouncerEvent::StatusChanged, None) => self.failure = None,
            (AnnouncerEvent::StatusChanged, Some(failure)) => self.fail(failure),
            (AnnouncerEvent::Ended, failure) => {
                self.announcer = None;
                if !self.leaving {
                    // Create new interfaces, in case these are the cause.
                    self.devices = None;
                    self.fail(failure.unwrap_or_else(|| "the announcer has ended".to_owned()));
                }
            }
        }
    }

    fn fail(&mut self, failure: String) {
        if self.failure.as_ref() != Some(&failure) {
            tracing::error!(
                error = failure,
                "addresses are not announced; retrying every {} s",
                retry::EVERY.as_secs()
            );
        }
        self.failure = Some(failure);
    }

    /// Status of the announcer, if there is one.
    pub(super) fn status(&self) -> Option<Arc<Status>> {
        let mut status = self.announcer.as_ref()?.status();
        if let Some(why) = &self.unguarded {
            let warning = format!(
                "listeners of this node for all addresses, as sshd or the kubelet may be, answer at announced addresses too: {why}"
            );
            Arc::make_mut(&mut status).warnings.push(warning);
        }
        Some(status)
    }

    /// Addresses that this gateway announces, sorted; `None` if gateways announce nothing themselves.
    pub(super) fn announced(&self) -> Option<Vec<IpAddr>> {
        let status = self.announcer.as_ref()?.status();
        let here = |(ip, address): (&IpAddr, &AddressStatus)| match &address.here {
            Here::Announced { .. } | Here::Conflict { answer: ConflictAnswer::Defended, .. } => Some(*ip),
            Here::Nothing | Here::Waiting { .. } | Here::Failed { .. } | Here::Conflict { .. } => None,
        };
        Some(status.addresses.iter().filter_map(here).collect())
    }

    /// Whether several gateways may announce the same address at the same time.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.options, Some(AnnounceOptions::Bgp(..)))
    }

    /// Addresses that this gateway should announce but cannot, with the reason for each.
    pub(super) fn failed(&self) -> BTreeMap<IpAddr, Unannounced> {
        if let Some(failure) = &self.failure {
            let message = format!("it is not announced by this gateway: {failure}");
            let unannounced = Unannounced { reason: reason::ANNOUNCE_FAILED, message };
            return self.claims.all.keys().map(|ip| (*ip, unannounced.clone())).collect();
        }
        let Some(status) = self.announcer.as_ref().map(Announcer::status) else { return BTreeMap::new() };
        let left_out = self.claims.left_out.iter().map(|(ip, why)| {
            let message = format!("it is announced by no gateway: {why}");
            (*ip, Unannounced { reason: reason::ANNOUNCE_FAILED, message })
        });
        let failed = status.addresses.iter().filter_map(|(ip, address)| {
            let (reason, message) = match &address.here {
                Here::Failed { error } => (reason::ANNOUNCE_FAILED, format!("it is not announced: {error}")),
                Here::Conflict { mac, interface, answer } => {
                    let done = match answer {
                        ConflictAnswer::Defended => "this gateway announces it as well",
                        ConflictAnswer::Withdrawn => "this gateway has given it up",
                        ConflictAnswer::LeftToGateway => "this gateway has left it to that one",
                        ConflictAnswer::NotAnnounced => "this gateway does not announce it",
                    };
                    (
                        reason::ADDRESS_CONFLICT,
                        format!("the machine with the hardware address {mac} on {interface} uses it; {done}"),
                    )
                }
                Here::Nothing | Here::Waiting { .. } | Here::Announced { .. } => return None,
            };
            Some((*ip, Unannounced { reason, message }))
        });
        failed.chain(left_out).collect()
    }

    /// The gateways that have long announced by something else than this one.
    pub(super) fn disagreements(&self) -> BTreeMap<Arc<str>, Disagreement> {
        let status = self.announcer.as_ref().map(Announcer::status);
        status
            .iter()
            .flat_map(|status| status.disagreements())
            .map(|(node, about)| (Arc::clone(node), about))
            .collect()
    }

    /// Moves all addresses to other gateways that can take them. Addresses that only this gateway can announce are served until it
    /// drains.
    pub(super) fn leave(&mut self) {
        let Some(announcer) = &self.announcer else { return };
        let status = announcer.status();
        let takes =
            |member: &MemberStatus| member.node != status.node && member.standing == Standing::Candidate;
        // Routers that know no other gateway keep using this one.
        if status.shared || status.members.iter().any(takes) && status.others_can_take_over() {
            self.leaving = true;
            announcer.leave();
        }
    }

    /// Waits until the addresses have moved, with a time limit.
    pub(super) async fn left(&mut self) {
        self.leaving = true;
        if let (Some(announcer), Some(options)) = (&mut self.announcer, &self.options) {
            announcer.end();
            let time = options.leaving();
            if tokio::time::timeout(time, announcer.ended()).await.is_err() {
                tracing::warn!("not all addresses were handed over to other gateways in time");
            }
            self.announcer = None;
        }
        self.devices = None;
    }

    /// State that another process on this node continues with.
    pub(super) async fn hand_over(&self) -> Option<HandedAnnouncing> {
        let Continuation { eligible, lease_left, hold_down, fail_after, longest_fail_after } =
            self.announcer.as_ref()?.continuation().await?;
        let microseconds = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Some(HandedAnnouncing {
            eligible,
            lease_microseconds: microseconds(lease_left),
            hold_down_microseconds: microseconds(hold_down),
            fail_after_microseconds: microseconds(longest_fail_after),
            promised_microseconds: Some(microseconds(fail_after)),
        })
    }

    /// Interfaces that another process on this node continues with.
    pub(super) fn hand_over_interfaces(&self) -> Vec<(String, OwnedFd)> {
        self.devices.as_ref().map(BgpDevices::hand_over).unwrap_or_default()
    }

    /// Waits until the announcer has opened what it needs, while another process on this node still announces: the kernel may take longer for it than
    /// other gateways wait for a heartbeat.
    pub(super) async fn prepared(&mut self) {
        let Some(announcer) = &self.prepared else { return };
        let ready = tokio::time::timeout(PREPARATION, announcer.ready()).await;
        // One that has failed would take what the other process hands over to its end.
        if ready.is_err() || announcer.status().failure.is_some() {
            self.prepared = None;
        }
    }

    /// Takes over from the announcer of another process on this node, which ends now.
    pub(super) fn go_on_with(
        &mut self,
        handed: Option<HandedAnnouncing>,
        interfaces: Vec<(String, OwnedFd)>,
    ) {
        self.handed = handed.map(|handed| (handed, Instant::now()));
        self.devices = match &self.options {
            Some(AnnounceOptions::Bgp(_, name)) => BgpDevices::handed(name, interfaces),
            Some(AnnounceOptions::Layer2(_)) | None => None,
        };
    }

    /// Opens the heartbeat port before any frontend, which could otherwise take it.
    pub(super) fn claim_heartbeat_port(&mut self) {
        let begins = self.begun && !self.leaving && self.announcer.is_none();
        if let Some(options @ AnnounceOptions::Layer2(_)) = self.options.clone().filter(|_| begins) {
            self.start_announcer(&options);
        }
    }

    /// Passes the current state to the announcer. Starts the announcer with the first table, and again after a failure.
    pub(super) fn follow(
        &mut self,
        projection: &Projection,
        pipeline: &Pipeline,
        gateways: &ServiceKey,
        dataplane: &Dataplane,
        is_ready: bool,
    ) {
        if !self.begun || self.leaving {
            return;
        }
        let Some(options) = self.options.clone() else { return };
        let new = self.announcer.is_none() || self.inputs.is_none();
        if self.announcer.is_none() {
            if matches!(options, AnnounceOptions::Bgp(..)) && !is_ready {
                // Routers would send connections at once, before this gateway is ready.
                return;
            }
            self.start_announcer(&options);
        }
        let inputs = ClaimInputs {
            table: Arc::clone(&projection.table),
            node_addresses: Arc::clone(&projection.all_node_addresses),
            policies: Arc::clone(&projection.announce_policies),
            shared: Arc::clone(&projection.shared_addresses),
            members: gateway_members(pipeline.objects(), gateways).into_iter().map(member).collect(),
        };
        self.follow_staleness(&pipeline.sources);
        if new || self.inputs.as_ref() != Some(&inputs) {
            self.update(inputs, pipeline.projector.cluster(), new, dataplane.answers(OPENING));
        }
    }

    /// Whether the announcer has yet to be started, or again after a failure.
    pub(super) fn has_stopped(&self) -> bool {
        self.announcer.is_none()
    }

    /// Makes the data plane refuse ports without a frontend at the addresses that this gateway announces. The kernel has added or
    /// removed these by now; addresses that others have put on the machine are not included.
    pub(super) fn dedicate(&mut self, dataplane: &mut Dataplane) {
        let announced = self.announced().unwrap_or_default();
        dataplane.dedicate(announced.into_iter().collect());
        self.unguarded = dataplane.dedicated_obstacle().map(str::to_owned);
    }

    /// Tells the announcer what this gateway knows of the cluster: others may know more.
    pub(super) fn follow_staleness(&mut self, sources: &Sources) {
        if self.options.is_none() {
            return;
        }
        self.cut_off = sources.is_cut_off().then(|| self.cut_off.unwrap_or_else(Instant::now));
        if let Some(announcer) = &self.announcer {
            let is_old = self.cut_off.is_some_and(|since| since.elapsed() >= STALE);
            announcer.set_knowledge(match (sources.is_loaded(), is_old) {
                (false, _) => Knowledge::Incomplete,
                (true, true) => Knowledge::Old,
                (true, false) => Knowledge::Current,
            });
        }
    }

    fn start_announcer(&mut self, options: &AnnounceOptions) {
        if let Err(error) = self.try_to_start(options) {
            self.fail(error);
        }
    }

    fn try_to_start(&mut self, options: &AnnounceOptions) -> Result<(), String> {
        let started = match options {
            AnnounceOptions::Layer2(options) => match self.prepared.take() {
                Some(prepared) => {
                    prepared.begin(self.start());
                    Ok(prepared)
                }
                None => Announcer::start(options.clone(), self.start()),
            },
            AnnounceOptions::Bgp(options, name) => {
                if self.devices.is_none() {
                    self.devices = Some(BgpDevices::open(name).map_err(|error| error.to_string())?);
                }
                let Some(devices) = &self.devices else { return Ok(()) };
                Announcer::start_bgp(options.clone(), devices.interfaces())
            }
        };
        // A restarted announcer begins without that state.
        self.handed = None;
        self.announcer = Some(started.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn start(&self) -> Start {
        let Some((handed, since)) = self.handed else { return Start::Fresh(None) };
        let lease = Duration::from_micros(handed.lease_microseconds);
        let longest = handed.fail_after_microseconds;
        Start::Continued(Continuation {
            eligible: handed.eligible,
            lease_left: lease.saturating_sub(since.elapsed()),
            hold_down: Duration::from_micros(handed.hold_down_microseconds),
            fail_after: Duration::from_micros(handed.promised_microseconds.unwrap_or(longest)),
            longest_fail_after: Duration::from_micros(longest),
        })
    }

    /// Computes the claims, and passes the changes to the announcer, or everything to a new announcer.
    fn update(
        &mut self,
        inputs: ClaimInputs,
        cluster: &str,
        new: bool,
        opened: impl Future<Output = bool> + Send + 'static,
    ) {
        let nodes = inputs.members.iter().map(|member| Arc::clone(&member.node)).collect();
        let context = ClaimContext {
            table: &inputs.table,
            node_addresses: &inputs.node_addresses,
            cluster,
            gateways: &nodes,
            policies: &inputs.policies,
            shared: &inputs.shared,
        };
        let claims = context.claims();
        if let Some(announcer) = &self.announcer {
            if new || self.inputs.as_ref().is_none_or(|former| former.members != inputs.members) {
                announcer.set_members(inputs.members.clone());
            }
            if new || claims.all != self.claims.all {
                let claims = claims.all.clone();
                if self.is_shared() {
                    self.opening =
                        Some(set_claims_once(opened, self.opening.take(), announcer.clone(), claims));
                } else {
                    announcer.set_claims(claims);
                }
            }
        }
        (self.claims, self.inputs) = (claims, Some(inputs));
    }

    /// Ends without touching the addresses, which another process on this node goes on to announce.
    pub(super) fn detach(&mut self) {
        self.leaving = true;
        if let Some(announcer) = self.announcer.take() {
            announcer.detach();
        }
        self.devices = None;
    }
}

fn member(ListedGateway { node, addresses, ready }: ListedGateway) -> Member {
    Member { node, addresses, ready }
}

/// Sets the claims once their listeners are open, and after earlier claims: routers send connections within milliseconds.
fn set_claims_once(
    opened: impl Future<Output = bool> + Send + 'static,
    before: Option<JoinHandle<()>>,
    announcer: Announcer,
    claims: BTreeMap<IpAddr, Claim>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Some(before) = before {
            before.await.ok();
        }
        if !opened.await {
            tracing::warn!("addresses are announced although a worker does not answer");
        }
        announcer.set_claims(claims);
    })
}
