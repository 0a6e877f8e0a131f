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
use sheave_dataplane::select::ActiveTable;
use sheave_dataplane::select::affinity::AffinityTable;
use sheave_model::FrontendAddr;

pub(crate) use self::question::{
    Client, Port, Question, QuestionQuery, parse_address, parse_client, parse_port, parse_protocol,
    parse_service,
};
pub(crate) use self::short::{keep_endpoints, shorten};
pub(crate) use self::text::outcome;
use crate::views::View;
use crate::views::problem::ProblemView;

impl View for ExplainView {}

/// Input of an explanation.
#[derive(Clone, Copy)]
pub(crate) struct Basis<'a> {
    /// Projector with the state of the last projection.
    pub(crate) projector: &'a Projector,
    /// Objects of the last projection.
    pub(crate) objects: &'a Objects,
    /// The table in force.
    pub(crate) active: &'a ActiveTable,
    /// Session affinity of a running gateway; `None` if only manifests were read.
    pub(crate) affinity: Option<&'a AffinityTable>,
    /// All known Problems.
    pub(crate) problems: &'a [ProblemView],
    /// Frontends of the table that accept nothing on this gateway, with the reason.
    pub(crate) closed: &'a BTreeMap<FrontendAddr, String>,
    /// Reason why the gateway does not forward by its table, or has none.
    pub(crate) obstacle: Option<&'static str>,
    /// Reason why endpoints cannot see client addresses, if they cannot.
    pub(crate) no_client_addresses: Option<&'a str>,
    /// State of announcements, if gateways announce addresses.
    pub(crate) announcements: Option<&'a Status>,
    /// Current time, for the timeout of session affinity.
    pub(crate) now: Instant,
}

/// An explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Answer {
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

pub(crate) fn explain(question: &Question, basis: Basis<'_>) -> Answer {
    answer::answer(question, basis)
}
