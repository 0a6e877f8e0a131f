//! Timeline of a gateway for `sheave events` and `/api/events`. JSON keys may be added, but are never renamed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::View;
use super::change::Change;
use super::escape;

/// What has changed on a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventsView {
    /// Node of the gateway.
    pub(crate) node: String,
    /// Service that was asked for; null for all.
    pub(crate) service: Option<String>,
    /// Events, oldest first.
    pub(crate) events: Vec<EventView>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventView {
    /// When the gateway noticed it.
    pub(crate) time: Timestamp,
    /// `namespace/name` of the object; null if it concerns the gateway.
    #[serde(default)]
    pub(crate) service: Option<String>,
    /// Kind of the object.
    #[serde(default)]
    pub(crate) source: Option<String>,
    #[serde(flatten)]
    pub(crate) change: Change,
    /// The change as text for people.
    pub(crate) message: String,
}

impl View for EventsView {}

impl EventsView {
    /// Text for people: a line for each event.
    pub(crate) fn to_text(&self) -> String {
        if self.events.is_empty() {
            let of = self.service.as_ref().map(|service| format!(" of {service}")).unwrap_or_default();
            return escape::line(&format!("Nothing{of} has changed on gateway {}.", self.node));
        }
        self.events.iter().map(EventView::to_line).collect()
    }
}

impl EventView {
    fn to_line(&self) -> String {
        let time = self.time.strftime("%Y-%m-%dT%H:%M:%SZ");
        let object = match (&self.source, &self.service) {
            (Some(source), Some(service)) => format!("{source} {service}"),
            _ => "gateway".to_owned(),
        };
        escape::line(&format!("{time} {object}: {}", self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::change::ChangeKind;

    #[test]
    fn a_line_says_when_and_of_what() {
        let change = Change::new(ChangeKind::Endpoint, Some("Ready".to_owned()), None).of("10.0.0.1:80");
        let message = change.to_text();
        let (service, source) = (Some("shop/web".to_owned()), Some("Service".to_owned()));
        let event = EventView { time: Timestamp::UNIX_EPOCH, service, source, change, message };
        let gateway = EventView { service: None, source: None, message: "a\nb".to_owned(), ..event.clone() };
        let mut view = EventsView { node: "gw-1".to_owned(), service: None, events: vec![event, gateway] };
        let text = "1970-01-01T00:00:00Z Service shop/web: endpoint 10.0.0.1:80 removed\n1970-01-01T00:00:00Z gateway: a\\u{a}b\n";
        assert_eq!(view.to_text(), text);
        assert_eq!(serde_json::from_str::<EventsView>(&view.to_json()).unwrap(), view);
        (view.events, view.service) = (Vec::new(), Some("shop/web".to_owned()));
        assert_eq!(view.to_text(), "Nothing of shop/web has changed on gateway gw-1.\n");
    }
}
