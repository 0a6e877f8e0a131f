//! Events of the last days, in a fixed amount of memory.

use std::collections::VecDeque;

use super::event::Event;

/// Limit of all events in bytes, which is some ten thousand.
const MEMORY: usize = 2 << 20;

/// The latest events, oldest first.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    events: VecDeque<Event>,
    bytes: usize,
}

impl Timeline {
    /// Adds an event, and drops the oldest ones beyond the limit.
    pub(super) fn push(&mut self, event: Event) {
        self.bytes += event.size();
        self.events.push_back(event);
        while self.bytes > MEMORY
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.size();
        }
    }

    /// All events, oldest first.
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::views::change::{Change, ChangeKind};

    #[test]
    fn the_oldest_events_leave_first() {
        let mut timeline = Timeline::default();
        let text = |number: usize| format!("{number} {}", "x".repeat(300));
        for number in 0..10_000 {
            let change = Change::new(ChangeKind::Gateway, None, Some(text(number)));
            timeline.push(Event::new(Timestamp::UNIX_EPOCH, (None, change)));
        }
        let bytes: usize = timeline.events().map(Event::size).sum();
        assert!(bytes == timeline.bytes && bytes <= MEMORY && bytes > MEMORY / 2, "{bytes}");
        assert_eq!(timeline.events().next_back().unwrap().change.to, Some(text(9_999)));
    }
}
