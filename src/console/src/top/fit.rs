//! Text in a given width: names are shortened in the middle, sentences at the end, and numbers are shown whole or not at all.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::table::Cell;

/// Width of a text on a terminal.
pub(super) fn wide(text: &str) -> usize {
    Span::raw(text).width()
}

/// Pads or shortens a cell to exactly this width.
pub(super) fn cell(text: &str, width: u16, cell: Cell) -> String {
    let width = usize::from(width);
    let text = if cell == Cell::Why { shortened(text, width) } else { without_middle(text, width) };
    let padding = " ".repeat(width.saturating_sub(wide(&text)));
    if cell.is_number() { padding + &text } else { text + &padding }
}

/// Shortens a name in the middle, since the ends of names differ.
pub(super) fn without_middle(text: &str, width: usize) -> String {
    if wide(text) <= width {
        return text.to_owned();
    }
    let (mut head, mut tail) = (String::new(), String::new());
    let (mut front, mut back) = (text.chars(), text.chars().rev());
    let room = width.saturating_sub(1);
    loop {
        let next = if head.chars().count() <= tail.chars().count() { front.next() } else { back.next() };
        let Some(char) = next else { break };
        if wide(&head) + wide(&tail) + wide(&char.to_string()) > room {
            break;
        }
        if head.chars().count() <= tail.chars().count() { head.push(char) } else { tail.insert(0, char) }
    }
    if width == 0 { String::new() } else { format!("{head}…{tail}") }
}

/// Shortens a sentence at its end.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if wide(text) <= width {
        return text.to_owned();
    }
    let (mut short, room) = (String::new(), width.saturating_sub(1));
    let mut taken = 0;
    for char in text.chars() {
        taken += wide(char.encode_utf8(&mut [0; 4]));
        if taken > room {
            break;
        }
        short.push(char);
    }
    if width == 0 { String::new() } else { short.trim_end().to_owned() + "…" }
}

/// Parts of a line, each of which is shown whole or not at all.
#[derive(Debug)]
pub(super) struct Parts {
    spans: Vec<Span<'static>>,
    width: usize,
    left: usize,
}

impl Parts {
    pub(super) fn new(width: u16) -> Self {
        Self { spans: Vec::new(), width: width.into(), left: width.into() }
    }

    /// Adds a part after two blanks, if there is room. Once a part did not fit, nothing follows.
    pub(super) fn add(&mut self, text: impl Into<String>, style: Style) -> &mut Self {
        self.join("  ", text.into(), style)
    }

    /// Adds a part after another separator.
    pub(super) fn join(&mut self, separator: &'static str, text: String, style: Style) -> &mut Self {
        if text.is_empty() {
            return self;
        }
        let separator = if self.spans.is_empty() { "" } else { separator };
        let taken = wide(separator) + wide(&text);
        self.left = if taken <= self.left {
            self.spans.extend([Span::raw(separator), Span::styled(text, style)]);
            self.left - taken
        } else {
            0
        };
        self
    }

    /// Adds a sentence, shortened to the room that is left. A fragment that says nothing is left out.
    pub(super) fn sentence(&mut self, text: &str, style: Style) -> &mut Self {
        const LEAST: usize = 12;
        let room = if self.spans.is_empty() { self.width } else { self.left.saturating_sub(2) };
        if room >= LEAST || self.spans.is_empty() {
            self.add(shortened(text, room), style);
        }
        self
    }

    pub(super) fn line(&mut self) -> Line<'static> {
        Line::from(std::mem::take(&mut self.spans))
    }
}

/// Breaks a line between words; what follows the first part is indented further. Longer words are broken. The last cells of a row go to the
/// next line as they are.
pub(super) fn wrapped(line: &str, width: usize, into: &mut Vec<String>) {
    if wide(line) <= width {
        into.push(line.to_owned());
        return;
    }
    let blanks = line.len() - line.trim_start().len();
    let indent = " ".repeat((blanks + 2).min(width / 2));
    // A word that stands alone before a long text is no row.
    let long = width.div_ceil(2).max(1)..=width;
    let near = line.char_indices().nth(width + 2).map_or(line.len(), |(at, _)| at);
    let mut cells = line[..near].rmatch_indices("  ").map(|(at, _)| line.split_at(at));
    match cells.find(|(head, _)| long.contains(&wide(head.trim_end()))) {
        Some((head, rest)) if !head.trim().is_empty() => {
            into.push(head.trim_end().to_owned());
            break_words(&(indent.clone() + rest.trim_start()), width, &indent, into);
        }
        _ => break_words(line, width, &indent, into),
    }
}

fn break_words(line: &str, width: usize, indent: &str, into: &mut Vec<String>) {
    let mut part = String::new();
    for word in line.split_inclusive(' ') {
        if wide(&part) + wide(word.trim_end()) > width && !part.trim().is_empty() {
            into.push(part.trim_end().to_owned());
            indent.clone_into(&mut part);
        }
        if word == " " && part == indent {
            continue;
        }
        for char in word.chars() {
            if char != ' '
                && wide(&part) + wide(char.encode_utf8(&mut [0; 4])) > width
                && part.len() > indent.len()
            {
                into.push(std::mem::replace(&mut part, indent.to_owned()));
            }
            part.push(char);
        }
    }
    into.push(part.trim_end().to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_loses_its_middle_and_a_sentence_its_end() {
        assert_eq!(without_middle("shop/web-frontend", 9), "shop…tend");
        assert_eq!(without_middle("shop/web", 8), "shop/web");
        assert_eq!(shortened("no endpoint is ready", 12), "no endpoint…");
        assert_eq!(shortened("東京東京", 4), "東…");
        assert_eq!([without_middle("ab", 0), shortened("ab", 0), shortened("ab", 1)], ["", "", "…"]);
    }

    #[test]
    fn a_part_is_whole_or_missing() {
        let line = |width: u16| {
            let mut parts = Parts::new(width);
            let plain = Style::new();
            parts.add("open 9", plain).add("new 12,345/s", plain).add("in", plain);
            parts.sentence("it is draining", plain);
            parts.line().to_string()
        };
        assert_eq!(line(60), "open 9  new 12,345/s  in  it is draining");
        assert_eq!(line(38), "open 9  new 12,345/s  in  it is drain…");
        assert_eq!(line(37), "open 9  new 12,345/s  in");
        assert_eq!(line(19), "open 9", "what follows may not stand beside another part");
        assert_eq!(Parts::new(5).sentence("it is draining", Style::new()).line().to_string(), "it i…");
    }

    #[test]
    fn lines_break_between_words() {
        let wrap = |line: &str, width: usize| {
            let mut lines = Vec::new();
            wrapped(line, width, &mut lines);
            lines
        };
        assert_eq!(wrap("  - no endpoint is ready", 15), ["  - no endpoint", "    is ready"]);
        let row = "  10.0.0.1:80   Ready   no    it is unhealthy, and others are not";
        let broken = ["  10.0.0.1:80   Ready   no", "    it is unhealthy, and others", "    are not"];
        assert_eq!(wrap(row, 32), broken);
        assert_eq!(wrap("  ok        path: the proxy", 20), ["  ok        path:", "    the proxy"]);
        assert_eq!(wrap("abcdefghij", 6), ["abcdef", "  ghij"]);
        assert_eq!(wrap("東京東京 x", 5), ["東京", "  東", "  京", "  x"]);
        assert_eq!(wrap("", 3), [""]);
        for width in 0..4 {
            assert!(wrap("  - abc d", width).len() >= 3, "{width}");
        }
    }
}
