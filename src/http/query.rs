//! Questions to the gateway's event loop, which also prove that the loop runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sheave_announce::Status;
use sheave_control::projection::AnnouncePolicies;
use sheave_model::FrontendAddr;
use tokio::sync::{mpsc, oneshot};

use crate::http::metrics::LoopFacts;
use crate::views::explain::{Answer, Question};
use crate::views::problem::ProblemView;
use crate::views::status::ProcessView;

/// How long a question may wait before the gateway counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question to the gateway, with where to send the answer.
#[derive(Debug)]
pub(crate) enum Query {
    /// Can the process go on? If not: why it must be started anew.
    Live(oneshot::Sender<ProbeResult>),
    /// Is there a table, and do the workers answer? If not: what is missing.
    Ready(oneshot::Sender<ProbeResult>),
    /// What a scrape shows besides what can be read off the data plane.
    Metrics(oneshot::Sender<LoopFacts>),
    /// The routing table as JSON.
    Routes(oneshot::Sender<String>),
    /// The gateways, and who announces which address, as JSON.
    Gateways(oneshot::Sender<String>),
    /// How the process is, as JSON.
    Status(oneshot::Sender<String>),
    /// What open status pages show besides what can be read off the data plane. Its objects only if their revision is not this one.
    Overview(Option<u64>, oneshot::Sender<Overview>),
    /// Why a client goes where it goes.
    Explain(Question, oneshot::Sender<Answer>),
}

/// All is well, or what is not.
pub(crate) type ProbeResult = Result<(), &'static str>;

/// Where queries are put.
pub(crate) type QuerySender = mpsc::Sender<Query>;

/// What only the control loop knows of a gateway, for its status pages.
#[derive(Debug)]
pub(crate) struct Overview {
    pub(crate) status: ProcessView,
    /// None where nothing is announced.
    pub(crate) announcements: Option<Arc<Status>>,
    /// Grows whenever what is known of the objects may have changed.
    pub(crate) revision: u64,
    /// As of the revision; none if who asks has it.
    pub(crate) objects: Option<ObjectFacts>,
}

/// What the control loop knows of the objects.
#[derive(Debug, Default)]
pub(crate) struct ObjectFacts {
    pub(crate) problems: Vec<ProblemView>,
    pub(crate) not_served: Vec<ProblemView>,
    /// Frontends that accept nothing on this gateway, and why.
    pub(crate) closed: BTreeMap<FrontendAddr, String>,
    /// What pools say of the announcement of their addresses.
    pub(crate) policies: AnnouncePolicies,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The loop is too busy.
    Late,
    /// The loop has ended, or another process has its place.
    Gone,
}

/// Asks the loop.
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
