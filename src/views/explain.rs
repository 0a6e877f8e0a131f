//! `sheave explain` and `/api/explain`: joins the projection's reasons with what the table in force would choose.

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

/// What an explanation is made from.
#[derive(Clone, Copy)]
pub(crate) struct Basis<'a> {
    /// As of the last projection.
    pub(crate) projector: &'a Projector,
    /// What was projected last.
    pub(crate) objects: &'a Objects,
    /// The table in force.
    pub(crate) active: &'a ActiveTable,
    /// Of a running gateway; `None` if only manifests were read.
    pub(crate) affinity: Option<&'a AffinityTable>,
    /// Everything that is known to be wrong.
    pub(crate) problems: &'a [ProblemView],
    /// Frontends of the table that accept nothing on this gateway, and why.
    pub(crate) closed: &'a BTreeMap<FrontendAddr, String>,
    /// Why the gateway does not forward by its table, or has none.
    pub(crate) obstacle: Option<&'static str>,
    /// Why endpoints cannot see clients' own addresses, where they cannot.
    pub(crate) no_client_addresses: Option<&'a str>,
    /// Who has which address, where gateways announce them.
    pub(crate) announcements: Option<&'a Status>,
    /// The present moment, for affinity's timeout.
    pub(crate) now: Instant,
}

/// An explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Answer {
    /// What becomes of the client.
    Explained(ExplainView),
    /// There is no such Service, or it has no such port.
    NotFound(ExplainView),
}

impl Answer {
    /// The explanation itself.
    pub(crate) fn view(&self) -> &ExplainView {
        match self {
            Self::Explained(view) | Self::NotFound(view) => view,
        }
    }

    /// The explanation for people, with a newline at the end.
    pub(crate) fn to_text(&self) -> String {
        text::render(self.view())
    }
}

/// The decision in two lines: where, and what becomes of the client.
pub(crate) fn headline(view: &ExplainView) -> String {
    text::headline(view)
}

/// Answers a question.
pub(crate) fn explain(question: &Question, basis: Basis<'_>) -> Answer {
    answer::answer(question, basis)
}
