//! The controller. Of all replicas the elected leader allocates addresses, publishes status, conditions and Events, and cleans up
//! what Services no longer need. Gateways forward traffic without it.
//!
//! With a Karmada control plane it does the same for MultiClusterServices there. Both get their addresses from the same pools,
//! so a new leader allocates none before it has read both API servers: an address might be in use already. What is
//! published stays and is kept up to date. After that, either API server may be away without affecting the other's objects.
//!
//! A term of leadership (`term`) starts from the state of the API server alone, so that nothing this process remembers undoes the
//! work of another leader. Candidates watch nothing and cost nothing.

pub mod all_gateways;
mod api_writer;
pub mod conditions;
pub mod desired_status;
pub mod election;
pub mod events;
mod gateway_reports;
pub mod gateway_request;
pub mod ownership;
pub mod pool_status;
pub mod port_errors;
pub mod service_exports;
pub mod service_object;
pub mod status_writer;
mod term;
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
use self::election::{Election, Timing};
use self::ownership::Ownership;
pub use self::pool_status::PoolCounts;
#[cfg(fuzzing)]
pub use self::term::conditions_by_reports;
use self::term::{Broken, LeaderTerm};
use crate::api::gateway_report::GatewayReport;
use crate::api::problem::Problem;
use crate::api::store::ServiceKey;
use crate::projection;
use crate::sources::api_server::KindStatus;
use crate::sources::connection::Connection;
use crate::sources::mass_deletion_guard::Held;

/// What the configuration says about the controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// With [`projection::Role::Controller`].
    pub projection: projection::Options,
    /// The API server of the Karmada control plane, if MultiClusterServices are to be served.
    pub karmada: Option<Connection>,
    /// The headless Service over the gateways' Pods.
    pub gateways: ServiceKey,
    /// The file with the bearer token for gateways, if they want one.
    pub gateway_token: Option<PathBuf>,
    /// A gateway in the same process, which needs no Service.
    pub own_gateway: Option<watch::Receiver<GatewayReport>>,
    /// The Lease that leaders hold.
    pub lease: ServiceKey,
    /// How soon another replica takes over.
    pub timing: Timing,
    /// This process among the candidates; see [`election::identity`].
    pub identity: String,
    /// How Services are marked as ours.
    pub ownership: Ownership,
    /// How long to hold back a list that lacks nearly everything.
    pub mass_deletion_hold: Duration,
}

/// The state of the controller.
#[derive(Clone, Debug, Default)]
pub struct ControllerStatus {
    /// Whether this process leads.
    pub leading: bool,
    /// Whether, as leader, it has read every kind once. Until then it gives no addresses.
    pub synced: bool,
    /// Who leads, as last seen.
    pub leader: Option<String>,
    /// Gateways that are ready.
    pub gateways: usize,
    /// LoadBalancer Services and MultiClusterServices that are ours.
    pub services: usize,
    /// Objects whose writes the API server keeps refusing.
    pub write_failures: usize,
    /// Events dropped since it leads: refused by the API server, or over the rate limit.
    pub events_dropped: u64,
    /// The kinds it watches; none while it does not lead.
    pub kinds: Vec<KindStatus>,
    /// The same for the Karmada control plane.
    pub karmada_kinds: Vec<KindStatus>,
    /// Lists that are held back.
    pub held: Vec<Held>,
    /// How many Problems of objects there are.
    pub problems: usize,
    /// The first [`FIRST_PROBLEMS`] of them, sorted.
    pub first_problems: Vec<Arc<Problem>>,
    /// How many of them there are by reason.
    pub problems_by_reason: BTreeMap<&'static str, usize>,
    /// The pools, as their status was last written.
    pub pools: Vec<PoolCounts>,
    /// The EndpointSlices of the gateways; `None` as long as it does not follow them.
    pub gateway_slices: Option<Vec<Arc<EndpointSlice>>>,
}

/// How many Problems a status names: the others mostly have the same causes.
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
    /// Becomes a candidate. Must be called inside a Tokio runtime.
    pub fn start(connection: Connection, options: ControllerOptions) -> Self {
        let (publish, status) = watch::channel(ControllerStatus::default());
        let (stop, stopped) = oneshot::channel();
        let (options, current) = watch::channel(options);
        let task = tokio::spawn(serve(connection.clone(), current, publish, stopped));
        Self { connection, status, options, stop, task }
    }

    /// Goes by other options from now on, if `change` returns true: a leader begins another term by them. The Lease, the timing and
    /// the identity stay what they are.
    pub fn reconfigure(&self, change: impl FnOnce(&mut ControllerOptions) -> bool) {
        self.options.send_if_modified(change);
    }

    /// Its state, now and later.
    pub fn status(&self) -> watch::Receiver<ControllerStatus> {
        self.status.clone()
    }

    /// Asks the gateways, whether this controller leads or not.
    pub fn gateway_client(&self) -> GatewayClient {
        GatewayClient::new(self.connection.clone(), self.options.subscribe(), self.status())
    }

    /// Whether it is running. It ends by itself only if one of its tasks did.
    pub fn runs(&self) -> bool {
        !self.task.is_finished()
    }

    /// Stops writing and releases the Lease, which takes some seconds at most.
    pub async fn stop(self) {
        // Fails if it has ended already.
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
    let mut failures: u32 = 0;
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
            ended = lead(&connection, &options, &mut election, &publish, &mut stop) => ended,
            Ok(()) = current.changed() => Ended::Reconfigured,
        };
        let what = match ended {
            Ended::Stopped => break,
            // The election has logged why.
            Ended::Lost => continue,
            Ended::Reconfigured => {
                tracing::info!("the configuration has changed: leading by it from a new list of all objects");
                continue;
            }
            Ended::Broken(Broken(what)) => what,
        };
        failures = if began.elapsed() < LONGEST_PAUSE { failures.saturating_add(1) } else { 1 };
        let pause = pause(failures);
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

/// One term. What is in flight at its end may still be answered; nothing new is written.
async fn lead(
    connection: &Connection,
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
    let mut term = LeaderTerm::start(connection, options, &election.leadership(), &installation);
    tokio::select! {
        broken = term.run(publish) => Ended::Broken(broken),
        lost = election.lost() => if lost.is_ok() { Ended::Lost } else { Ended::Stopped },
        _ = stop => Ended::Stopped,
    }
}

/// The name that every process of this installation has, and no other: the local Lease says which one leads.
fn installation(options: &ControllerOptions, election: &Election) -> String {
    let lease = election.lease_uid().unwrap_or_else(|| options.identity.clone());
    format!("{}/{lease}", options.projection.cluster)
}

/// How often a candidate updates who leads: only `/api/status` shows it.
const LOOK: Duration = Duration::from_secs(2);

/// How a term of leadership ended.
enum Ended {
    Stopped,
    Lost,
    Reconfigured,
    Broken(Broken),
}

/// The longest pause before the next term; a term that lasted as long was no failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// How long to wait after this many terms in a row that broke: each begins with a list of everything.
fn pause(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.min(6)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
