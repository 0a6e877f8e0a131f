//! `sheave explain` and `/api/explain`: combines the projection's reasons with the choice of the table in force.

mod answer;
mod choice;
mod client;
mod place;
mod question;
mod short;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Instant;

use sheave_announce::Status;
use sheave_control::api::store::Objects;
use sheave_control::projection::Projector;
use sheave_control::projection::explain::ExplainView;
use sheave_dataplane::KernelPathErrors;
use sheave_dataplane::select::ActiveTable;
use sheave_dataplane::select::affinity::AffinityTable;
use sheave_model::FrontendAddr;

pub use self::question::{Client, GatewayApiObject, Port, Question};
pub(crate) use self::question::{
    QuestionQuery, parse_address, parse_client, parse_listener, parse_port, parse_protocol, parse_service,
    parse_sni,
};
pub(crate) use self::short::{keep_endpoints, shorten};
pub(crate) use self::text::outcome;
use crate::views::View;
use crate::views::problem::ProblemView;

impl View for ExplainView {}

/// Input of an explanation.
#[derive(Clone, Copy)]
pub struct Basis<'a> {
    /// Projector with the state of the last projection.
    pub projector: &'a Projector,
    /// Objects of the last projection.
    pub objects: &'a Objects,
    /// The table in force.
    pub active: &'a ActiveTable,
    /// Session affinity of a running gateway; `None` if only manifests were read.
    pub affinity: Option<&'a AffinityTable>,
    /// All known Problems.
    pub problems: &'a [ProblemView],
    /// Frontends of the table that accept nothing on this gateway, with the reason.
    pub closed: &'a BTreeMap<FrontendAddr, String>,
    /// Reason why the gateway does not forward by its table, or has none.
    pub obstacle: Option<&'static str>,
    /// Reason why endpoints cannot see client addresses, if they cannot.
    pub no_client_addresses: Option<&'a str>,
    /// Reasons why the kernel carries nothing, if it does not.
    pub no_kernel_path: &'a KernelPathErrors,
    /// State of announcements, if gateways announce addresses.
    pub announcements: Option<&'a Status>,
    /// Current time, for the timeout of session affinity.
    pub now: Instant,
}

/// An explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Outcome for the client.
    Explained(ExplainView),
    /// The Service or its port does not exist.
    NotFound(ExplainView),
}

impl Answer {
    /// The view, in either case.
    pub(crate) fn view(&self) -> &ExplainView {
        match self {
            Self::Explained(view) | Self::NotFound(view) => view,
        }
    }

    /// Text for people, with a newline at the end.
    pub(crate) fn to_text(&self) -> String {
        text::render(self.view())
    }
}

/// Decision in two lines: the frontend, and what happens to the client.
pub(crate) fn headline(view: &ExplainView) -> String {
    text::headline(view)
}

/// Answers a question from the state of a gateway or of manifests.
pub fn explain(question: &Question, basis: Basis<'_>) -> Answer {
    answer::answer(question, basis)
}
