//! Decoding of a watch event.

use serde::Deserialize;
use serde_json::Value;

use super::item::Item;
use super::request::Failure;

/// Annotation of the bookmark after which a streamed list is complete (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Event {
    /// An object was added or changed.
    Put(Item),
    /// An object was deleted; holds the version of its deletion.
    Gone(Item),
    /// All changes up to this version were sent.
    Bookmark {
        version: String,
        /// Whether the streamed list is complete.
        ends_list: bool,
    },
}

#[derive(Deserialize)]
struct WatchLine {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Event {
    /// Parses a line of a watch.
    ///
    /// # Errors
    /// If the line reports a failure of the watch, or is malformed.
    pub(super) fn read(line: &[u8]) -> Result<Self, Failure> {
        let garbled = |message: String| Failure::Garbled(format!("in a watch: {message}"));
        let line: WatchLine = serde_json::from_slice(line).map_err(|error| garbled(error.to_string()))?;
        match line.kind.as_str() {
            "BOOKMARK" => {
                let metadata = &line.object["metadata"];
                let version = metadata["resourceVersion"].as_str().unwrap_or_default().to_owned();
                let ends_list = metadata["annotations"][INITIAL_EVENTS_END] == "true";
                Ok(Self::Bookmark { version, ends_list })
            }
            "ERROR" => Err(Failure::of_event(&line.object)),
            kind @ ("ADDED" | "MODIFIED" | "DELETED") => {
                let item =
                    Item::new(line.object).ok_or_else(|| garbled("an object without a name".to_owned()))?;
                Ok(if kind == "DELETED" { Self::Gone(item) } else { Self::Put(item) })
            }
            other => Err(garbled(format!("an event of type {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_streamed_list_is_a_bookmark_with_a_mark() {
        let line = br#"{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":
            {"resourceVersion":"268","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{}}}"#;
        let Ok(Event::Bookmark { version, ends_list: true }) = Event::read(line) else { panic!() };
        assert_eq!(version, "268");
        let line = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"268"},"spec":{}}}"#;
        assert!(matches!(Event::read(line), Ok(Event::Bookmark { ends_list: false, .. })));
    }

    #[test]
    fn an_error_is_what_its_status_says() {
        let line = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},
            "status":"Failure","message":"too old resource version: 1 (600)","reason":"Expired","code":410}}"#;
        assert!(matches!(Event::read(line), Err(Failure::Expired(_))));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for line in [&b"{"[..], br#"{"type":"MOVED","object":{}}"#, br#"{"type":"ADDED","object":{}}"#] {
            assert!(matches!(Event::read(line), Err(Failure::Garbled(_))));
        }
    }
}
