//! The controller: of all that run, the elected one gives addresses, publishes status, conditions and Events, and takes back
//! what Services no longer need. Gateways forward without it.
//!
//! A term of leadership (`session`) starts from nothing but what the API server says then, so that no other leader's work is
//! undone by what this process remembers; candidates watch nothing and cost nothing.

pub mod conditions;
pub mod election;
pub mod events;
pub mod names;
pub mod pool_status;
pub mod publication;
pub mod publisher;
mod reports;
mod session;
pub mod uninstall;

use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use self::election::Election;
use self::publication::PublishOptions;
use self::session::Session;
use crate::connection::Connection;
use crate::gateway_report::GatewayReport;
use crate::guard::Held;
use crate::problem::Problem;
use crate::projection;
use crate::source::api::KindStatus;
use crate::store::ServiceKey;

/// What the configuration says about the controller.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// With [`projection::Placement::Managed`].
    pub projection: projection::Options,
    /// The headless Service over the gateways' Pods.
    pub gateways: ServiceKey,
    /// A gateway in the same process, which needs no Service.
    pub own_gateway: Option<watch::Receiver<GatewayReport>>,
    /// The Lease that leaders hold.
    pub lease: ServiceKey,
    /// This process among the candidates; see [`election::identity`].
    pub identity: String,
    /// How Services are marked as ours.
    pub publish: PublishOptions,
    /// How long to doubt a list that lacks nearly everything.
    pub mass_deletion_hold: Duration,
}

/// How the controller is doing.
#[derive(Clone, Debug, Default)]
pub struct ControllerStatus {
    /// Whether this process leads.
    pub leading: bool,
    /// Whether, as leader, it has read every kind once.
    pub synced: bool,
    /// Who leads, as last seen.
    pub leader: Option<String>,
    /// Gateways that are ready.
    pub gateways: usize,
    /// LoadBalancer Services that are ours.
    pub services: usize,
    /// The kinds it watches; none while it does not lead.
    pub kinds: Vec<KindStatus>,
    /// Lists that are doubted.
    pub held: Vec<Held>,
    /// What is wrong with the objects, sorted.
    pub problems: Vec<Problem>,
}

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

    /// Whether it goes on; it never ends by itself.
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
    let mut election = Election::start(&connection, &options.lease, options.identity.clone());
    loop {
        tell.send_replace(ControllerStatus { leader: election.leader(), ..ControllerStatus::default() });
        tokio::select! {
            () = election.won() => {}
            () = tokio::time::sleep(LOOK) => continue,
            _ = &mut stop => break,
        }
        tracing::info!(
            identity = options.identity,
            "leading: this controller gives addresses and writes status"
        );
        let mut session = Session::start(&connection, &options, election.leadership());
        let stopped = tokio::select! {
            () = session.run(&tell) => false,
            () = election.lost() => false,
            _ = &mut stop => true,
        };
        // What is under way may still be answered; nothing new is written.
        drop(session);
        if stopped {
            break;
        }
        tracing::warn!(
            identity = options.identity,
            "leading no more: another controller has the lease, or it could not be renewed"
        );
    }
    election.resign().await;
}

/// How often a candidate looks who leads: only `/api/status` asks.
const LOOK: Duration = Duration::from_secs(2);
