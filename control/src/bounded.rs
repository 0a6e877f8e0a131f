//! Texts within a limit in bytes, cut at whole characters and with a sign that something is missing. It must not know what they
//! say.

/// The text, or as much of it as fits, with a sign that it goes on. The end is kept: it says what happens instead.
pub(crate) fn cut_middle(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    let head = text.floor_char_boundary(longest * 3 / 4);
    let tail = text.ceil_char_boundary(text.len() - longest / 4);
    format!("{} … {}", &text[..head], &text[tail..])
}

/// The text, or its beginning with dots at the end.
pub(crate) fn cut_end(text: &mut String, longest: usize) {
    const MARK: &str = "...";
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest - MARK.len()));
        text.push_str(MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_in_the_middle_at_whole_characters() {
        let text = format!("\"{}\" is no address; it is ignored", "ä".repeat(100_000));
        let cut = cut_middle(text, 1024);
        assert!(cut.len() <= 1024 + 5 && cut.ends_with("is no address; it is ignored"), "{cut}");
        assert_eq!(cut_middle("short".to_owned(), 1024), "short");
    }
}
