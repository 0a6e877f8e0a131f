//! Documents of a manifest file as plain values, with their numbers. Supports YAML and JSON, and is independent of Kubernetes
//! kinds.

use serde_json::Value;
use serde_saphyr::MessageFormatter as _;

use super::origin::Lines;

/// A document of a file, parsed or not.
#[derive(Debug)]
pub(super) struct Document<'a> {
    /// Number of the document from 1, as `kubectl` counts.
    pub(super) number: u32,
    /// Line of the file, from 1, on which the document starts.
    pub(super) first_line: u32,
    /// Text of the document.
    pub(super) text: &'a str,
    /// Its value, or why it cannot be parsed.
    pub(super) value: Result<Value, SyntaxError>,
}

/// Reason why a document is neither YAML nor JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct SyntaxError {
    /// Message of the parser.
    pub(super) message: String,
    /// Line of the file, from 1.
    pub(super) line: u32,
}

/// Largest number of parser events in a document: a 64 MiB list of objects has about ten million. The parser's own default, a
/// quarter of a million nodes, would be a list of about 5,000 Services.
const MAX_EVENTS: usize = 50_000_000;

/// Byte order mark. Some editors put it at the start of a file, and concatenation leaves it in the middle.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Parses every document of a file; `json` is whether its name claims JSON. The text decides if the name is misleading.
pub(super) fn parse(text: &str, json: bool) -> Vec<Document<'_>> {
    let looks_like_json =
        text.trim_start_matches([BYTE_ORDER_MARK, ' ', '\t', '\r', '\n']).starts_with(['{', '[']);
    if json && (looks_like_json || text.trim().is_empty()) {
        return parse_json(text);
    }
    let documents = parse_yaml(text);
    if looks_like_json && documents.iter().any(|document| document.value.is_err()) {
        let values = parse_json(text);
        if values.iter().all(|document| document.value.is_ok()) {
            return values;
        }
    }
    documents
}

/// First line and text of each document, in order.
pub(super) fn texts(text: &str, json: bool) -> Vec<(u32, String)> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    parse(text, json).into_iter().map(|document| (document.first_line, document.text.to_owned())).collect()
}

/// Parses JSON documents: one value after another.
fn parse_json(text: &str) -> Vec<Document<'_>> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut documents = Vec::new();
    let mut lines = Lines::of(text);
    let mut start = 0;
    for number in 1.. {
        let (first_line, rest) = (lines.at(start), &text[start..]);
        let value = match stream.next() {
            None => break,
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                // The stream counts lines from the start of the file.
                let line = u32::try_from(error.line()).unwrap_or(u32::MAX);
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default().to_owned();
                Err(SyntaxError { message, line })
            }
        };
        let failed = value.is_err();
        let end = if failed { text.len() } else { stream.byte_offset() };
        let text = rest.get(..end - start).unwrap_or(rest);
        documents.push(Document { number, first_line, text, value });
        if failed {
            break;
        }
        start = end;
    }
    documents
}

/// Parses YAML documents, each on its own, so that a mistake in one does not affect the others.
fn parse_yaml(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let mut lines = Lines::of(text);
    for (index, (start, text_of_one)) in split(text).into_iter().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let first_line = lines.at(start);
        let value = parse_one(text_of_one, first_line);
        documents.push(Document { number, first_line, text: text_of_one, value });
    }
    documents
}

/// Splits a text into documents, with their byte offsets. A line that starts with `---` ends the previous document anywhere, even
/// inside a block scalar (YAML 1.2, 9.1.2 "forbidden" content), so no parser is needed to find it. So does a line that starts
/// with `...`, which is the last line of its own document.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut offset) = (0, 0);
    for line in text.split_inclusive('\n') {
        let marked = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if is_marker(marked, "---") {
            documents.push((start, &text[start..offset]));
            start = offset + line.len() - marked.len();
        }
        offset += line.len();
        if is_marker(line, "...") {
            documents.push((start, &text[start..offset]));
            start = offset;
        }
    }
    documents.push((start, &text[start..]));
    // Comments and directives before a separator belong to the document after it.
    documents.retain(|(_, text)| !is_blank(text));
    documents
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Whether the text contains no document. A separator makes a document, even alone.
fn is_blank(text: &str) -> bool {
    let nothing = |line: &str| line.is_empty() || line.starts_with(['#', '%']) || is_marker(line, "...");
    !is_marker(text, "---")
        && text.lines().all(|line| nothing(line.trim_start_matches(BYTE_ORDER_MARK).trim()))
}

fn parse_one(text: &str, first_line: u32) -> Result<Value, SyntaxError> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let within = error.location().map_or(1, |location| location.line());
        let line = first_line + u32::try_from(within).unwrap_or(u32::MAX).saturating_sub(1);
        SyntaxError { message: plain_message(&error), line }
    })
}

/// Parser options of manifests, also used to find lines in them.
pub(super) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: MAX_EVENTS,
            max_nodes: MAX_EVENTS,
            max_total_scalar_bytes: usize::MAX,
        },
    }
}

fn plain_message(error: &serde_saphyr::Error) -> String {
    let text = serde_saphyr::UserMessageFormatter.format_message(error);
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(documents: &[Document<'_>]) -> Vec<(u32, u32)> {
        documents.iter().map(|document| (document.number, document.first_line)).collect()
    }

    fn yaml(text: &str) -> Value {
        parse_yaml(text).remove(0).value.unwrap()
    }

    #[test]
    fn comments_before_the_first_separator_belong_to_the_document_after_it() {
        let documents = parse_yaml("# licence\n%YAML 1.2\n---\na: 1\n---\nb: 2\n");
        assert_eq!(places(&documents), [(1, 3), (2, 5)]);
        assert_eq!(*documents[0].value.as_ref().unwrap(), serde_json::json!({"a": 1}));
    }

    #[test]
    fn empty_text_holds_no_document_and_empty_documents_count() {
        assert!(parse_yaml("").is_empty());
        assert!(parse_yaml("\n# nothing\n").is_empty());
        let documents = parse_yaml("a: 1\n---\n---\nb: 1\n");
        assert_eq!(places(&documents), [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(documents[1].value, Ok(Value::Null));
        assert!(parse_json(" \n").is_empty());
    }

    #[test]
    fn a_mistake_in_one_document_leaves_the_others_readable_and_names_its_line() {
        let documents = parse_yaml("a: 1\n---\nb: 1\nc: d: e\n---\nf: 1\n");
        assert_eq!(documents[1].value.as_ref().unwrap_err().line, 4);
        assert!(documents[0].value.is_ok() && documents[2].value.is_ok());
    }

    #[test]
    fn messages_leave_the_line_to_the_caller() {
        let error = parse_yaml("a: 1\na: 2\n").remove(0).value.unwrap_err();
        assert_eq!((error.message.as_str(), error.line), ("duplicate mapping key: a not allowed here", 2));
        let error = parse_json("{\n\"a\": }").remove(0).value.unwrap_err();
        assert_eq!((error.message.as_str(), error.line), ("expected value", 2));
    }

    #[test]
    fn an_end_marker_ends_a_document_with_or_without_a_separator_after_it() {
        let documents = parse_yaml("a: 1\n...\nb: 1\n...\n# next\n---\nc: 1\n...\n");
        assert_eq!(places(&documents), [(1, 1), (2, 3), (3, 6)]);
        assert!(documents.iter().all(|document| document.value.as_ref().is_ok_and(Value::is_object)));
    }

    #[test]
    fn a_byte_order_mark_may_stand_before_any_document() {
        let documents = parse_yaml("a: 1\n\u{feff}---\nb: 1\n");
        assert_eq!(places(&documents), [(1, 1), (2, 2)]);
        assert_eq!(documents[1].value, Ok(serde_json::json!({"b": 1})));
    }

    #[test]
    fn the_text_decides_where_the_name_misleads() {
        let values = |text, json| parse(text, json).into_iter().map(|it| it.value.ok()).collect::<Vec<_>>();
        let both = [Some(serde_json::json!({"a": 1})), Some(serde_json::json!({"b": 1}))];
        assert_eq!(values("{\"a\": 1}\n{\"b\": 1}\n", false), both);
        assert_eq!(values("a: 1\n---\nb: 1\n", true), both);
        assert_eq!(values("{a: 1}\n---\nb: 1\n", false), both);
        assert_eq!(values("{\"a\": ", true), [None]);
        assert_eq!(values(" \n", true), []);
    }

    #[test]
    fn a_separator_inside_a_block_scalar_ends_the_document_as_yaml_has_it() {
        let documents = parse_yaml("a: |\n  text\n  --- not at the start\n---\nb: 1\n");
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].value.as_ref().unwrap()["a"], "text\n--- not at the start\n");
    }

    #[test]
    fn json_values_follow_each_other() {
        let documents = parse_json("{\"a\": 1}\n{\"b\":\n 2}\n{\"c\"");
        assert_eq!(documents.iter().map(|document| document.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(documents[1].text.trim(), "{\"b\":\n 2}");
        assert!(documents[2].value.is_err());
    }

    #[test]
    fn anchors_merge_keys_and_yaml_1_1_booleans_are_understood() {
        assert_eq!(yaml("a: &x {b: 1}\nc: {<<: *x, d: 2}\n")["c"], serde_json::json!({"b": 1, "d": 2}));
        assert_eq!(yaml("a: yes\nb: off\n"), serde_json::json!({"a": true, "b": false}));
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = level - 1;
            text += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{before}"); 10].join(", "));
        }
        assert!(parse_yaml(&text).remove(0).value.is_err());
    }
}
