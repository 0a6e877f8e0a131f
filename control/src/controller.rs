//! The controller: of all that run, the elected one gives addresses, publishes status, conditions and Events, and takes back
//! what Services no longer need. Gateways forward without it.
//!
//! With a Karmada control plane it does the same for MultiClusterServices there. Both get their addresses from the same pools,
//! so a new leader gives none before it has heard from both API servers: it might be one that is in use already. What is
//! published stays, and is kept up to date. Later either may be away without stopping what concerns the other.
//!
//! A term of leadership (`session`) starts from nothing but what the API server says then, so that no other leader's work is
//! undone by what this process remembers; candidates watch nothing and cost nothing.

mod api_writer;
pub mod conditions;
pub mod desired_status;
pub mod election;
pub mod events;
mod gateway_reports;
pub mod karmada_export;
pub mod ownership;
pub mod pool_status;
pub mod port_errors;
pub mod service_object;
pub mod status_writer;
mod term;
pub mod uninstall;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use self::election::{Election, Timing};
use self::ownership::Ownership;
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
    /// A gateway in the same process, which needs no Service.
    pub own_gateway: Option<watch::Receiver<GatewayReport>>,
    /// The Lease that leaders hold.
    pub lease: ServiceKey,
    /// How soon another one takes over.
    pub timing: Timing,
    /// This process among the candidates; see [`election::identity`].
    pub identity: String,
    /// How Services are marked as ours.
    pub ownership: Ownership,
    /// How long to doubt a list that lacks nearly everything.
    pub mass_deletion_hold: Duration,
}

/// How the controller is doing.
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
    /// Objects to which it has to write what the API server keeps refusing.
    pub write_failures: usize,
    /// Events that were left out since it leads: refused by the API server, or beyond the limits.
    pub events_dropped: u64,
    /// The kinds it watches; none while it does not lead.
    pub kinds: Vec<KindStatus>,
    /// The same of the Karmada control plane.
    pub karmada_kinds: Vec<KindStatus>,
    /// Lists that are doubted.
    pub held: Vec<Held>,
    /// How many Problems of objects there are.
    pub problems: usize,
    /// The first [`FIRST_PROBLEMS`] of them, sorted.
    pub first_problems: Vec<Arc<Problem>>,
}

/// How many Problems a status has: the others have the same causes more often than not.
pub const FIRST_PROBLEMS: usize = 20;

/// A running candidate.
#[derive(Debug)]
pub struct Controller {
    status: watch::Receiver<ControllerStatus>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Controller {
    /// Becomes a candidate. Must be called inside a Tokio runtime.
    pub fn start(connection: Connection, options: ControllerOptions) -> Self {
        let (tell, status) = watch::channel(ControllerStatus::default());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(connection, options, tell, stopped));
        Self { status, stop, task }
    }

    /// How it is doing, now and later.
    pub fn status(&self) -> watch::Receiver<ControllerStatus> {
        self.status.clone()
    }

    /// Whether it goes on; it ends by itself only if one of its tasks did.
    pub fn runs(&self) -> bool {
        !self.task.is_finished()
    }

    /// Writes nothing any more, and gives the lease up. Takes some seconds at most.
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
    options: ControllerOptions,
    tell: watch::Sender<ControllerStatus>,
    mut stop: oneshot::Receiver<()>,
) {
    let (identity, timing) = (options.identity.clone(), options.timing.clone());
    let mut election = Election::start(&connection, &options.lease, identity, timing);
    let mut failures = 0;
    loop {
        tell.send_replace(ControllerStatus { leader: election.leader(), ..ControllerStatus::default() });
        tokio::select! {
            won = election.won() => if let Err(error) = won {
                tracing::error!(%error, bug = true, "this controller can never lead: it ends");
                break;
            },
            () = tokio::time::sleep(LOOK) => continue,
            _ = &mut stop => break,
        }
        tracing::info!(
            identity = options.identity,
            "leading: this controller gives addresses and writes status"
        );
        let began = Instant::now();
        let mut session = LeaderTerm::start(
            &connection,
            &options,
            &election.leadership(),
            &installation(&options, &election),
        );
        let ended = tokio::select! {
            broken = session.run(&tell) => Ended::Broken(broken),
            lost = election.lost() => if lost.is_ok() { Ended::Lost } else { Ended::Stopped },
            _ = &mut stop => Ended::Stopped,
        };
        // What is under way may still be answered; nothing new is written.
        drop(session);
        match ended {
            Ended::Stopped => break,
            // The election has said why.
            Ended::Lost => {}
            Ended::Broken(Broken(what)) => {
                failures = if began.elapsed() < LONGEST_PAUSE { u32::saturating_add(failures, 1) } else { 1 };
                let pause = pause(failures);
                tracing::error!(
                    bug = true,
                    "{what}, which must not happen: nothing is given or published for {} s, then this controller begins anew \
                     (gateways go on)",
                    pause.as_secs()
                );
                tell.send_replace(ControllerStatus {
                    leader: election.leader(),
                    ..ControllerStatus::default()
                });
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = &mut stop => break,
                }
            }
        }
    }
    election.resign().await;
}

/// The name that every process of this installation has, and no other: the local Lease says which one leads.
fn installation(options: &ControllerOptions, election: &Election) -> String {
    let lease = election.lease_uid().unwrap_or_else(|| options.identity.clone());
    format!("{}/{lease}", options.projection.cluster)
}

/// How often a candidate looks who leads: only `/api/status` asks.
const LOOK: Duration = Duration::from_secs(2);

/// How a term of leadership ended.
enum Ended {
    Stopped,
    Lost,
    Broken(Broken),
}

/// The most that passes before a term is tried again; one that lasted as long was no failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// How long to wait after so many terms in a row that broke: each begins with a list of everything.
fn pause(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.min(6)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
