//! Queries to the gateway's event loop, which also prove that the loop runs.

use std::sync::Arc;
use std::time::Duration;

use sheave_announce::Status;
use sheave_control::projection::AnnouncePolicies;
use tokio::sync::{mpsc, oneshot};

use crate::http::metrics::LoopFacts;
use crate::views::explain::{Answer, Question};
use crate::views::problem::ProblemView;
use crate::views::services::ServingObstacles;
use crate::views::status::ProcessView;

/// How long a query may wait before the gateway counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Query to the gateway, with a channel for the answer.
#[derive(Debug)]
pub enum Query {
    /// Whether the process can continue. The error is why it must be restarted.
    Live(oneshot::Sender<ProbeResult>),
    /// Whether there is a table and the workers answer. The error is what is missing.
    Ready(oneshot::Sender<ProbeResult>),
    /// Facts for a scrape that cannot be read from the data plane.
    Metrics(oneshot::Sender<LoopFacts>),
    /// The routing table as JSON.
    Routes(oneshot::Sender<String>),
    /// Gateways and the owners of addresses, as JSON.
    Gateways(oneshot::Sender<String>),
    /// Status of the process, as JSON.
    Status(oneshot::Sender<String>),
    /// Facts for open status pages that cannot be read from the data plane. Includes the objects only if their revision differs
    /// from this one.
    Overview(Option<u64>, oneshot::Sender<Overview>),
    /// Explains where a client goes.
    Explain(Question, oneshot::Sender<Answer>),
}

/// Result of a probe; the error is the reason of the failure.
pub type ProbeResult = Result<(), &'static str>;

/// Sends queries to the loop.
pub type QuerySender = mpsc::Sender<Query>;

/// Facts for status pages that only the control loop knows.
#[derive(Debug)]
pub struct Overview {
    /// Status of the process.
    pub status: ProcessView,
    /// `None` if addresses are not announced.
    pub announcements: Option<Arc<Status>>,
    /// Increases whenever the known objects may have changed.
    pub revision: u64,
    /// Objects of this revision; `None` if the caller already has them.
    pub objects: Option<ObjectFacts>,
}

/// Facts about objects that only the control loop knows.
#[derive(Debug, Default)]
pub struct ObjectFacts {
    /// Problems of the objects.
    pub problems: Vec<ProblemView>,
    /// Load balancers that are not served, with the reason.
    pub not_served: Vec<ProblemView>,
    /// What keeps this gateway from serving as its table says.
    pub obstacles: ServingObstacles,
    /// Announcement policies of the pools.
    pub policies: AnnouncePolicies,
}

/// Reason for a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The loop is too busy.
    Late,
    /// The loop has ended, or another process has taken over.
    Gone,
}

/// Queries the loop.
///
/// # Errors
/// If there is no answer in time.
pub(crate) async fn ask<T>(
    queries: &QuerySender,
    query: impl FnOnce(oneshot::Sender<T>) -> Query,
) -> Result<T, Unanswered> {
    let (answer, answered) = oneshot::channel();
    let asking = async {
        queries.send(query(answer)).await.map_err(|_| Unanswered::Gone)?;
        answered.await.map_err(|_| Unanswered::Gone)
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or(Err(Unanswered::Late))
}
