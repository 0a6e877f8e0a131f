//! How clients reach the frontends of a gateway: part of `/api/status` and `/api/routes`. JSON keys may be added, but are never
//! renamed.

use serde::{Deserialize, Serialize};
use sheave_dataplane::{SteeringMode, SteeringReport};

use crate::views::escape::line;

/// Words of the configuration.
pub const MODES: [(&str, SteeringMode); 3] =
    [("auto", SteeringMode::Auto), ("always", SteeringMode::Always), ("never", SteeringMode::Never)];

/// Number of frontends by how they are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SteeringView {
    /// `auto`, `always` or `never`, as configured.
    pub mode: String,
    /// Frontends with sockets of their own.
    pub sockets: usize,
    /// Frontends that are steered to shared sockets.
    pub steered: usize,
    /// Frontends that the kernel carries, without the proxy.
    #[serde(default)]
    pub kernel: usize,
    /// Reason why frontends cannot be steered, with a remedy; null if they can, or if steering was never needed.
    pub unavailable: Option<String>,
}

/// Word for a mode in the configuration.
pub fn mode_name(mode: SteeringMode) -> &'static str {
    MODES.iter().find(|(_, it)| *it == mode).map(|(word, _)| *word).unwrap_or_default()
}

impl From<SteeringReport<'_>> for SteeringView {
    fn from(report: SteeringReport<'_>) -> Self {
        Self {
            mode: mode_name(report.mode).to_owned(),
            sockets: report.sockets,
            steered: report.steered,
            kernel: report.kernel,
            unavailable: report.obstacle.map(str::to_owned),
        }
    }
}

impl SteeringView {
    /// Text for people: one line, and another one if steering is unavailable.
    pub(crate) fn to_text(&self) -> String {
        let Self { mode, sockets, steered, kernel, unavailable } = self;
        let kernel = if *kernel > 0 { format!(", {kernel} by the kernel path") } else { String::new() };
        let mut text = line(&format!(
            "Reached: {sockets} by sockets of their own, {steered} by steering (mode {mode}){kernel}."
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
        let report = SteeringReport {
            mode: SteeringMode::Always,
            sockets: 2,
            steered: 0,
            kernel: 0,
            obstacle: Some("no right"),
        };
        let view = SteeringView::from(report);
        assert_eq!(
            view.to_text(),
            "Reached: 2 by sockets of their own, 0 by steering (mode always).\n\
             Steering is not available: no right.\n"
        );
        let view = SteeringView { unavailable: None, ..view };
        assert_eq!(view.to_text().lines().count(), 1);
        let text = SteeringView { kernel: 3, ..view }.to_text();
        assert!(text.ends_with("(mode always), 3 by the kernel path.\n"), "{text}");
    }
}
