//! Texts within a limit in bytes, cut at whole characters and with a sign that something is missing. It must not know what they
//! say.

use std::fmt::Write as _;

/// Bytes of a message, at most: of a Problem, of a condition, and of an Event, whose note API servers limit to as much.
pub(crate) const LONGEST_MESSAGE: usize = 1024;

/// The text, or as much of it as fits, with a sign that it goes on. The end is kept: it says what happens instead.
pub(crate) fn cut_middle(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    const MARK: &str = " … ";
    let head = text.floor_char_boundary(longest * 3 / 4 - MARK.len());
    let tail = text.ceil_char_boundary(text.len() - longest / 4);
    format!("{}{MARK}{}", &text[..head], &text[tail..])
}

/// The text, or its beginning with dots at the end.
pub(crate) fn cut_end(text: &mut String, longest: usize) {
    const MARK: &str = "...";
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest - MARK.len()));
        text.push_str(MARK);
    }
}

/// The first `most` of the items, and how many more there are.
pub(crate) fn first_few(
    items: impl IntoIterator<Item = impl AsRef<str>>,
    separator: &str,
    most: usize,
) -> String {
    let mut items = items.into_iter();
    let first: Vec<_> = items.by_ref().take(most).collect();
    let mut text = first.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(separator);
    let more = items.count();
    if more > 0 {
        // Writing to a String cannot fail.
        let _written = write!(text, " and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_in_the_middle_at_whole_characters() {
        let text = format!("\"{}\" is no address; it is ignored", "ä".repeat(100_000));
        let cut = cut_middle(text, 1024);
        assert!(cut.len() <= 1024 && cut.ends_with("is no address; it is ignored"), "{cut}");
        assert_eq!(cut_middle("short".to_owned(), 1024), "short");
    }

    #[test]
    fn the_first_few_are_named_and_the_others_counted() {
        assert_eq!(first_few(["a", "b", "c"], ", ", 3), "a, b, c");
        assert_eq!(first_few(["a", "b", "c", "d"], "; ", 2), "a; b and 2 more");
        assert_eq!(first_few([""; 0], ", ", 2), "");
    }
}
