//! Escaping of log lines, so that foreign names and messages can neither control a terminal nor forge lines: invisible characters are
//! written as escapes. tracing-subscriber only escapes the start of terminal sequences, not line breaks or direction marks.

use std::borrow::Cow;
use std::io::{self, Write};

use sheave_console::views::escape::visible;

/// Makes the text of one event safe to print.
pub(super) type Escape = fn(&str) -> Cow<'_, str>;

/// Writer of events. Each write is one whole event with its line break.
#[derive(Clone, Debug)]
pub(super) struct EscapingWriter<W> {
    out: W,
    escape: Escape,
}

impl<W> EscapingWriter<W> {
    pub(super) fn new(out: W, escape: Escape) -> Self {
        Self { out, escape }
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (body, end) = text.strip_suffix('\n').map_or((text.as_ref(), ""), |body| (body, "\n"));
        let mut line = (self.escape)(body).into_owned();
        line.push_str(end);
        self.out.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Text in which only color sequences are kept, which are ours: tracing-subscriber has escaped all others.
pub(super) fn visible_with_colors(text: &str) -> Cow<'_, str> {
    let mut escaped = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        escaped += &visible(&rest[..at]);
        let length = color_length(&rest[at..]);
        if length == 0 {
            escaped += &visible("\x1b");
        }
        escaped += &rest[at..at + length];
        rest = &rest[at + length.max(1)..];
    }
    Cow::Owned(escaped + &visible(rest))
}

/// Length of the color or style sequence at the beginning (ECMA-48, 8.3.117); 0 if there is none.
fn color_length(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\x1b[") else { return 0 };
    let end = parameters.find(|char: char| !char.is_ascii_digit() && char != ';');
    end.filter(|end| parameters[*end..].starts_with('m')).map_or(0, |end| "\x1b[".len() + end + "m".len())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use sheave_console::views::escape::visible_json;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{Registry, fmt};

    use super::*;

    const HOSTILE: &str = "web\n2026-01-01T00:00:00Z ERROR forged\r\u{202e}\u{1b}[2J\u{9b}31m\u{200b}";

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn is_unseen(char: char) -> bool {
        char.is_control() || "\u{202e}\u{200b}".contains(char)
    }

    fn log() {
        tracing::warn!(service = %HOSTILE, debug = ?HOSTILE, "of {HOSTILE}");
        tracing::info!("next");
    }

    #[test]
    fn a_name_forges_no_line_of_text() {
        let sink = Sink::default();
        let out = sink.clone();
        let layer =
            fmt::layer().with_ansi(false).with_writer(move || EscapingWriter::new(out.clone(), visible));
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        let text = sink.text();
        assert!(text.ends_with("next\n") && text.lines().count() == 2, "{text}");
        assert!(!text.replace('\n', "").contains(is_unseen), "{text:?}");
        assert!(text.contains(r"web\u{a}2026"), "{text}");
    }

    #[test]
    fn colors_are_ours_alone() {
        let sink = Sink::default();
        let out = sink.clone();
        let writer = move || EscapingWriter::new(out.clone(), visible_with_colors);
        let layer = fmt::layer().with_ansi(true).with_writer(writer);
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        let text = sink.text();
        assert!(text.lines().count() == 2 && text.contains("\u{1b}[33m"), "{text:?}");
        let mut plain = text.replace('\n', "");
        while let Some(at) = plain.find('\x1b') {
            let length = color_length(&plain[at..]);
            assert!(length > 0, "{plain:?}");
            plain.replace_range(at..at + length, "");
        }
        assert!(!plain.contains(is_unseen) && !plain.contains("[2J\u{9b}"), "{plain:?}");
        assert_eq!(visible_with_colors("\u{1b}[1;31mred\u{1b}[2J\u{1b}"), "\u{1b}[1;31mred\\u{1b}[2J\\u{1b}");
    }

    #[test]
    fn json_has_the_same_text_with_nothing_unseen_in_it() {
        let sink = Sink::default();
        let out = sink.clone();
        let writer = move || EscapingWriter::new(out.clone(), visible_json);
        let layer = fmt::layer().json().flatten_event(true).with_writer(writer);
        tracing::subscriber::with_default(Registry::default().with(layer), log);
        let text = sink.text();
        assert!(text.lines().count() == 2 && !text.replace('\n', "").contains(is_unseen), "{text:?}");
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["service"], HOSTILE);
    }
}
