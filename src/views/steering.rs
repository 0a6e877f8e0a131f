//! How clients reach the frontends of a gateway: part of `/api/status` and `/api/routes`. The JSON is a contract: keys are added, never
//! renamed.

use serde::{Deserialize, Serialize};
use sheave_dataplane::{SteeringMode, SteeringReport};

use crate::views::visible::line;

/// The words of the configuration.
pub(crate) const MODES: [(&str, SteeringMode); 3] =
    [("auto", SteeringMode::Auto), ("always", SteeringMode::Always), ("never", SteeringMode::Never)];

/// How many frontends are reached by what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SteeringView {
    /// `auto`, `always` or `never`, as configured.
    pub(crate) mode: String,
    /// Frontends with sockets of their own.
    pub(crate) sockets: usize,
    /// Frontends that are steered to sockets that they share.
    pub(crate) steered: usize,
    /// Why frontends cannot be steered, and what to do about it; null if they can, or if none had to be yet.
    pub(crate) unavailable: Option<String>,
}

/// How users name a mode.
pub(crate) fn mode_name(mode: SteeringMode) -> &'static str {
    MODES.iter().find(|(_, it)| *it == mode).map(|(word, _)| *word).unwrap_or_default()
}

impl From<SteeringReport<'_>> for SteeringView {
    fn from(report: SteeringReport<'_>) -> Self {
        Self {
            mode: mode_name(report.mode).to_owned(),
            sockets: report.sockets,
            steered: report.steered,
            unavailable: report.obstacle.map(str::to_owned),
        }
    }
}

impl SteeringView {
    /// For people: one line, and another if there is an obstacle.
    pub(crate) fn to_text(&self) -> String {
        let Self { mode, sockets, steered, unavailable } = self;
        let mut text = line(&format!(
            "Reached: {sockets} by sockets of their own, {steered} by steering (mode {mode})."
        ));
        if let Some(why) = unavailable {
            text += &line(&format!("Steering is not available: {why}."));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_is_missing_only_where_something_is() {
        let report =
            SteeringReport { mode: SteeringMode::Always, sockets: 2, steered: 0, obstacle: Some("no right") };
        let view = SteeringView::from(report);
        assert_eq!(
            view.to_text(),
            "Reached: 2 by sockets of their own, 0 by steering (mode always).\n\
             Steering is not available: no right.\n"
        );
        let view = SteeringView { unavailable: None, ..view };
        assert_eq!(view.to_text().lines().count(), 1);
    }
}
