//! Texts for users: truncation to a limit in bytes at character boundaries, lists of the first few items, and "did you mean".

use std::fmt::Write as _;

/// Largest length in bytes of a Problem's and a condition's message, and of an Event's note, which API servers limit to this.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// Truncates a text in its middle and marks the gap. The end is kept, because it states what happens instead.
pub(crate) fn cut_middle(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    const MARK: &str = " … ";
    let head = text.floor_char_boundary(longest * 3 / 4 - MARK.len());
    let tail = text.ceil_char_boundary(text.len() - longest / 4);
    format!("{}{MARK}{}", &text[..head], &text[tail..])
}

/// Truncates a text and appends dots.
pub(crate) fn cut_end(text: &mut String, longest: usize) {
    const MARK: &str = "...";
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest - MARK.len()));
        text.push_str(MARK);
    }
}

/// Reduces a text to one line within the limit. Control characters and direction marks, which affect the text around them, become
/// blanks: the text comes from others and ends up in terminals.
pub fn one_line(text: &mut String, longest: usize) {
    let harmful = |char: char| {
        char.is_control()
            || matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(harmful) {
        *text = text.replace(harmful, " ");
    }
    cut_end(text, longest);
}

/// The first `most` items, and the number of the others.
pub fn first_few(items: impl IntoIterator<Item = impl AsRef<str>>, separator: &str, most: usize) -> String {
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

/// The candidate that `word` was most likely meant to be, if any is close enough.
///
/// The limit is one edit for three letters, so that `prot` finds `port` while `type` does not find `name`.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
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

    #[test]
    fn swapped_letters_wrong_case_and_small_slips_are_found() {
        let known = ["port", "protocol", "targetPort", "loadBalancerSourceRanges"];
        assert_eq!(closest("prot", known), Some("port"));
        assert_eq!(closest("targetport", known), Some("targetPort"));
        assert_eq!(closest("loadBalancerSourceRange", known), Some("loadBalancerSourceRanges"));
    }

    #[test]
    fn what_is_far_from_everything_gets_no_suggestion() {
        assert_eq!(closest("type", ["port", "name"]), None);
        assert_eq!(closest("x", []), None);
    }
}
