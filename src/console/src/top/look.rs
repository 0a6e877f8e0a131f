//! How the screen of `sheave top` marks what is not well.

use ratatui::style::{Color, Modifier, Style};

use super::table::Severity;

/// Style of the screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Without color, bold and reverse video are used.
    pub(super) color: bool,
}

impl Look {
    pub(super) fn of(self, severity: Severity) -> Style {
        match severity {
            Severity::Fine => Style::new(),
            Severity::Warning if self.color => Style::new().fg(Color::Yellow),
            Severity::Bad if self.color => Style::new().fg(Color::Red),
            Severity::Warning | Severity::Bad => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    /// Style for the sign that all is well.
    pub(super) fn well(self) -> Style {
        if self.color { Style::new().fg(Color::Green) } else { Style::new() }
    }
}

pub(super) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}
