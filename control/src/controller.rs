//! The controller. The elected leader of its replicas allocates addresses, publishes status, conditions and Events, and cleans up
//! after Services. Gateways forward traffic without it.
//!
//! With a Karmada control plane it does the same for MultiClusterServices there. Both get their addresses from the same pools, so
//! a new leader allocates none before it has read both API servers: an address or port could be in use already. What is published
//! stays and is kept up to date. After that, either API server can be unavailable without affecting the other's objects.
//!
//! A term of leadership (`term`) starts only from the state of the API server, so that no memory of this process undoes the work
//! of another leader. Candidates watch no objects.

pub mod all_gateways;
mod api_writer;
pub mod conditions;
pub mod desired_status;
pub mod election;
pub mod events;
mod gateway_reports;
pub mod gateway_request;
pub mod gateway_status;
pub mod ownership;
pub mod pool_status;
pub mod port_errors;
pub mod service_exports;
pub mod service_object;
pub mod status_writer;
pub(crate) mod term;
mod token_file;
pub mod uninstall;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use self::all_gateways::GatewayClient;
use self::election::{Election, LeaseTiming};
use self::ownership::Ownership;
pub use self::pool_status::PoolCounts;
use self::status_writer::SentStatuses;
#[cfg(fuzzing)]
pub use self::term::conditions_by_reports;
use self::term::{Broken, LeaderTerm};
use crate::api::gateway_report::GatewayReport;
use crate::api::problem::Problem;
use crate::api::store::ServiceKey;
use crate::backoff::Backoff;
use crate::projection;
use crate::sources::api_server::{GatewayApiMode, KindHints, KindStatus};
use crate::sources::connection::Connection;
use crate::sources::mass_deletion_guard::HeldKind;

/// Configuration of the controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Options of the projection, with [`projection::Role::Controller`].
    pub projection: projection::Options,
    /// API server of the Karmada control plane, if MultiClusterServices are served.
    pub karmada: Option<Connection>,
    /// The headless Service that selects the gateways' Pods.
    pub gateways: ServiceKey,
    /// File with the bearer token for the gateways, if they require one.
    pub gateway_token: Option<PathBuf>,
    /// Reports of a gateway in the same process, which needs no Service.
    pub own_gateway: Option<watch::Receiver<GatewayReport>>,
    /// Where to tell that gateway which kinds the controller reads.
    pub own_hints: Option<KindHints>,
    /// The Lease of the leader.
    pub lease: ServiceKey,
    /// Lease timing: how soon another replica takes over.
    pub timing: LeaseTiming,
    /// Identity of this process in the election; see [`election::identity`].
    pub identity: String,
    /// How Services are marked as managed by this installation.
    pub ownership: Ownership,
    /// Whether the kinds of the Gateway API are watched.
    pub gateway_api: GatewayApiMode,
    /// How long to hold back a list that lacks nearly all objects.
    pub mass_deletion_hold: Duration,
}

/// The state of the controller.
#[derive(Clone, Debug, Default)]
pub struct ControllerStatus {
    /// Whether this process is the leader.
    pub leading: bool,
    /// Whether, as leader, it has read every kind once. Until then it allocates no addresses.
    pub synced: bool,
    /// Identity of the leader, as last seen.
    pub leader: Option<String>,
    /// Number of ready gateways.
    pub gateways: usize,
    /// Number of LoadBalancer Services and MultiClusterServices that this installation manages.
    pub services: usize,
    /// Number of objects whose writes the API server keeps rejecting.
    pub write_failures: usize,
    /// Events dropped in this term: rejected by the API server, or over the rate limit.
    pub events_dropped: u64,
    /// Watched kinds; empty while it does not lead.
    pub kinds: Vec<KindStatus>,
    /// Watched kinds of the Karmada control plane.
    pub karmada_kinds: Vec<KindStatus>,
    /// Lists that the mass deletion guard holds back.
    pub held: Vec<HeldKind>,
    /// Number of Problems of objects.
    pub problems: usize,
    /// The first [`FIRST_PROBLEMS`] Problems, sorted.
    pub first_problems: Vec<Arc<Problem>>,
    /// Number of Problems by reason.
    pub problems_by_reason: BTreeMap<&'static str, usize>,
    /// Usage of the pools, as last written to their status.
    pub pools: Vec<PoolCounts>,
    /// EndpointSlices of the gateways; `None` while it does not watch them.
    pub gateway_slices: Option<Vec<Arc<EndpointSlice>>>,
}

/// How many Problems a status lists. The others mostly have the same causes.
pub const FIRST_PROBLEMS: usize = 20;

/// A running candidate.
#[derive(Debug)]
pub struct Controller {
    connection: Connection,
    status: watch::Receiver<ControllerStatus>,
    options: watch::Sender<ControllerOptions>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Controller {
    /// Becomes a candidate. Must be called within a Tokio runtime.
    pub fn start(connection: Connection, options: ControllerOptions) -> Self {
        let (publish, status) = watch::channel(ControllerStatus::default());
        let (stop, stopped) = oneshot::channel();
        let (options, current) = watch::channel(options);
        let task = tokio::spawn(serve(connection.clone(), current, publish, stopped));
        Self { connection, status, options, stop, task }
    }

    /// Changes the options. If `change` returns true, a leader begins another term with them. The Lease, the timing and the
    /// identity stay unchanged.
    pub fn reconfigure(&self, change: impl FnOnce(&mut ControllerOptions) -> bool) {
        self.options.send_if_modified(change);
    }

    /// A receiver of its state.
    pub fn status(&self) -> watch::Receiver<ControllerStatus> {
        self.status.clone()
    }

    /// A client that queries the gateways, whether this controller leads or not.
    pub fn gateway_client(&self) -> GatewayClient {
        GatewayClient::new(self.connection.clone(), self.options.subscribe(), self.status())
    }

    /// Whether it is running. Without [`Self::stop`] it ends only if one of its tasks does.
    pub fn runs(&self) -> bool {
        !self.task.is_finished()
    }

    /// Stops writing and releases the Lease, which takes a few seconds at most.
    pub async fn stop(self) {
        // Fails if it has already ended.
        self.stop.send(()).unwrap_or_default();
        if let Err(error) = self.task.await {
            tracing::error!(%error, bug = true, "the controller ended by itself");
        }
    }
}

async fn serve(
    connection: Connection,
    mut current: watch::Receiver<ControllerOptions>,
    publish: watch::Sender<ControllerStatus>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut election = {
        let ControllerOptions { lease, identity, timing, .. } = &*current.borrow();
        Election::start(&connection, lease, identity.clone(), timing.clone())
    };
    let mut broken_terms = broken_terms();
    let sent = SentStatuses::default();
    loop {
        publish.send_replace(ControllerStatus { leader: election.leader(), ..ControllerStatus::default() });
        tokio::select! {
            won = election.won() => if let Err(error) = won {
                tracing::error!(%error, bug = true, "this controller can never lead: it ends");
                break;
            },
            () = tokio::time::sleep(LOOK) => continue,
            _ = &mut stop => break,
        }
        let began = Instant::now();
        let options = current.borrow_and_update().clone();
        let ended = tokio::select! {
            ended = lead((&connection, &sent), &options, &mut election, &publish, &mut stop) => ended,
            Ok(()) = current.changed() => Ended::Reconfigured,
        };
        let what = match ended {
            Ended::Stopped => break,
            // The election has logged the reason.
            Ended::Lost => continue,
            Ended::Reconfigured => {
                tracing::info!("the configuration has changed: leading by it from a new list of all objects");
                continue;
            }
            Ended::Broken(Broken(what)) => what,
        };
        if began.elapsed() >= LONGEST_PAUSE {
            broken_terms.reset();
        }
        let pause = broken_terms.pause(None);
        tracing::error!(
            bug = true,
            "{what}, which must not happen: nothing is allocated or published for {} s, then this controller starts over \
             (gateways are not affected)",
            pause.as_secs()
        );
        publish.send_replace(ControllerStatus { leader: election.leader(), ..ControllerStatus::default() });
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = &mut stop => break,
        }
    }
    election.resign().await;
}

/// Runs one term. Requests in flight at its end may still take effect, which `sent` records for the next one; no new writes start.
async fn lead(
    (connection, sent): (&Connection, &SentStatuses),
    options: &ControllerOptions,
    election: &mut Election,
    publish: &watch::Sender<ControllerStatus>,
    stop: &mut oneshot::Receiver<()>,
) -> Ended {
    tracing::info!(
        identity = options.identity,
        "leading: this controller allocates addresses and writes status"
    );
    let installation = installation(options, election);
    let leadership = election.leadership();
    let mut term = LeaderTerm::start(connection, options, &leadership, &installation, sent.clone());
    tokio::select! {
        broken = term.run(publish) => Ended::Broken(broken),
        lost = election.lost() => if lost.is_ok() { Ended::Lost } else { Ended::Stopped },
        _ = stop => Ended::Stopped,
    }
}

/// The name shared by all processes of this installation and by no other: the local Lease decides which of them leads.
fn installation(options: &ControllerOptions, election: &Election) -> String {
    let lease = election.lease_uid().unwrap_or_else(|| options.identity.clone());
    format!("{}/{lease}", options.projection.cluster)
}

/// How often a candidate updates the identity of the leader, which only `/api/status` shows.
const LOOK: Duration = Duration::from_secs(2);

/// Reason for the end of a term.
enum Ended {
    Stopped,
    Lost,
    Reconfigured,
    Broken(Broken),
}

/// Longest pause before the next term. A term that lasted this long does not count as a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Pauses after broken terms, each of which begins with a list of all objects.
fn broken_terms() -> Backoff {
    Backoff::new(Duration::from_secs(2), LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
