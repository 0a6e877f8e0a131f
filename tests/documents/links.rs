//! Tests that links and names in documents exist.

use crate::document::{DOCUMENTS, read, root};
use crate::sources::regex;

#[test]
fn links_lead_somewhere() {
    let link = regex(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)");
    let mut broken = Vec::new();
    for path in DOCUMENTS {
        let folder = root().join(path).parent().unwrap().to_owned();
        for found in link.captures_iter(&read(path)).filter(|found| !found[1].contains("://")) {
            let target = if found[1].is_empty() { root().join(path) } else { folder.join(&found[1]) };
            let is_there = match found.get(2) {
                None => target.exists(),
                Some(anchor) => {
                    std::fs::read_to_string(target).is_ok_and(|text| has_heading(&text, anchor.as_str()))
                }
            };
            if !is_there {
                broken.push(format!("{path}: {}", &found[0]));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn paths_in_the_text_exist() {
    let path = regex(r"[\s`(=]((?:benches|control|dataplane|deploy|src|tests)/[\w./-]*\w)");
    let mut missing = Vec::new();
    for document in DOCUMENTS {
        let folder = root().join(document).parent().unwrap().to_owned();
        for found in path.captures_iter(&read(document)) {
            if !root().join(&found[1]).exists() && !folder.join(&found[1]).exists() {
                missing.push(format!("{document}: {}", &found[1]));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether the text has a heading with this anchor, by GitHub's rules.
fn has_heading(text: &str, anchor: &str) -> bool {
    text.lines().filter(|line| line.starts_with('#')).any(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept =
            title.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).eq(anchor.chars())
    })
}
