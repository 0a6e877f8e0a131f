//! Escaping of foreign text for terminals: characters that are invisible, or change how others are displayed, become escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;

/// Whether a character is invisible: control characters, line and paragraph separators, direction marks, zero-width characters, variation
/// selectors and tags. The status page escapes the same ones (`page/format.js`).
fn is_unseen(char: char) -> bool {
    matches!(u32::from(char),
        0x00..=0x1f | 0x7f..=0x9f | 0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f
        | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0
        | 0xfff0..=0xfffb | 0xe0000..=0xe0fff)
}

/// Replaces each invisible character with `\u{…}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|char| match is_unseen(char) {
        true => Cow::Owned(format!("\\u{{{:x}}}", u32::from(char))),
        false => Cow::Owned(char.to_string()),
    });
    Cow::Owned(escaped.collect())
}

/// Replaces invisible characters in a line of JSON with equivalent escapes. They occur only in its strings.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_unseen) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for char in json.chars() {
        if is_unseen(char) {
            let units = char
                .encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect::<String>();
            escaped.push_str(&units);
        } else {
            escaped.push(char);
        }
    }
    Cow::Owned(escaped)
}

/// Indented JSON with equivalent escapes for invisible characters. Its line breaks are between strings, which have none.
pub(crate) fn json_lines(json: &str) -> Cow<'_, str> {
    by_line(json, visible_json)
}

/// A value as YAML without invisible characters. The block form of YAML has no escapes outside of quotes, and quotes are for few strings; so
/// a value with such characters gets the flow form, in which every string has them.
pub fn visible_yaml(value: &impl Serialize) -> String {
    let block = serde_saphyr::to_string(value).unwrap_or_default();
    if !has_unseen(&block) {
        return block;
    }
    let flow = serde_json::to_string_pretty(value).map(|json| json + "\n").unwrap_or_default();
    let mut escaped = String::with_capacity(flow.len() + 16);
    for char in flow.chars() {
        match char {
            char if char == '\n' || !is_unseen(char) => escaped.push(char),
            // YAML has no pairs of surrogates.
            char => write!(escaped, "\\U{:08x}", u32::from(char)).unwrap_or_default(),
        }
    }
    escaped
}

/// Formats a line. Line breaks in `text` are escaped.
pub fn line(text: &str) -> String {
    visible(text).into_owned() + "\n"
}

/// Escapes invisible characters in lines of text, except line breaks. Renderers build their lines with [`line()`], so that foreign text cannot
/// add any.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    by_line(text, visible)
}

fn by_line(text: &str, escape: impl Fn(&str) -> Cow<'_, str>) -> Cow<'_, str> {
    if !has_unseen(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(escape).collect::<Vec<_>>().join("\n"))
}

/// Whether lines of text have an invisible character, apart from the breaks between them.
fn has_unseen(text: &str) -> bool {
    text.contains(|char| char != '\n' && is_unseen(char))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::View;

    #[test]
    fn json_means_the_same() {
        let text = "a\n\u{202e}b\u{1b}\u{9b}\u{e0041}\"\\";
        let json = serde_json::to_string(text).unwrap();
        let shown = visible_json(&json);
        assert!(
            !shown.contains(is_unseen) && shown.contains("\\u202eb\\u001b\\u009b\\udb40\\udc41"),
            "{shown}"
        );
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }

    /// C1 control characters, direction marks and tags, which JSON and YAML need not escape.
    const HOSTILE: &str = "n1\u{9b}2J\u{202e}gro.live\u{200b}\u{e0041}\u{7f}";

    #[derive(Serialize)]
    struct Named {
        name: &'static str,
        zones: Vec<&'static str>,
    }

    impl View for Named {}

    #[test]
    fn views_mean_the_same_and_hide_nothing() {
        for zone in [HOSTILE, "a\nb\n\u{1b}[2J", "z\u{202e}"] {
            let view = Named { name: HOSTILE, zones: vec![zone, "größe"] };
            let same = serde_json::to_value(&view).unwrap();
            let (json, yaml) = (view.to_json(), view.to_yaml());
            assert!(!has_unseen(&json) && !has_unseen(&yaml), "{json}{yaml}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), same);
            assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap(), same);
            assert!(json.contains("\n  \"name\": ") && json.contains("größe"), "{json}");
        }
        let view = Named { name: "web", zones: vec!["a\nb"] };
        assert_eq!(view.to_yaml(), serde_saphyr::to_string(&view).unwrap());
    }

    #[test]
    fn lines_stay_and_a_line_stays_one() {
        assert_eq!(lines("a\n\u{1b}[2Jb\n\n"), "a\n\\u{1b}[2Jb\n\n");
        assert_eq!(lines("a\nb\n"), "a\nb\n");
        assert_eq!(line("a\r\nb"), "a\\u{d}\\u{a}b\n");
    }

    #[test]
    fn what_cannot_be_seen_is_escaped_and_all_else_is_left() {
        assert_eq!(visible("shop/web"), "shop/web");
        assert_eq!(visible("n1\u{202e}gro.live\u{1b}[31m\u{200b}"), r"n1\u{202e}gro.live\u{1b}[31m\u{200b}");
        assert_eq!(visible("a\nb\u{9b}c\u{e0041}"), r"a\u{a}b\u{9b}c\u{e0041}");
        assert_eq!(visible("<b>größe</b> 東京"), "<b>größe</b> 東京");
    }
}
