//! Line of a field, found by parsing the document's text again. Used only to give a Problem its location.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::document;
use crate::api::decode::field_path::{FieldPath, Step};

/// Number of Problems in a document whose line is looked up, each time by parsing the document again. Others get the first line
/// of the document.
pub(super) const MAX_LINE_LOOKUPS: usize = 20;

/// The line of `text`, from 1, of the last existing step of `path`.
pub(super) fn line_of(text: &str, path: &FieldPath) -> Option<u32> {
    let mut found = None;
    let seed = LineOf { path: &path.0, element: true, found: &mut found };
    // The search ends with an error, and its position is the result.
    let search = serde_saphyr::with_deserializer_from_str_with_options(text, document::options(), |yaml| {
        seed.deserialize(yaml)
    });
    drop(search);
    found.and_then(|line| u32::try_from(line).ok())
}

struct LineOf<'p> {
    path: &'p [Step],
    /// Whether the value has no key of its own (the root, an element), so that its first key stands for it.
    element: bool,
    found: &'p mut Option<u64>,
}

/// Ends the search.
fn over<E: Error>() -> E {
    E::custom("found")
}

impl<'de> DeserializeSeed<'de> for LineOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() { Err(over()) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for LineOf<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping or a sequence")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted), path)) = self.path.split_first() else { return Err(over()) };
        let mut stands_for_value = self.element;
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if std::mem::take(&mut stands_for_value) {
                *self.found = Some(key.referenced.line());
            }
            if key.value == *wanted {
                *self.found = Some(key.referenced.line());
                return map.next_value_seed(LineOf { path, element: false, found: self.found });
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((Step::Index(wanted), path)) = self.path.split_first() else { return Err(over()) };
        for _ in 0..*wanted {
            seq.next_element::<IgnoredAny>()?;
        }
        if path.is_empty() {
            *self.found = seq.next_element::<Spanned<IgnoredAny>>()?.map(|element| element.referenced.line());
        } else {
            seq.next_element_seed(LineOf { path, element: true, found: self.found })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, keys: &[&str]) -> Option<u32> {
        let step = |key: &&str| key.parse().map_or_else(|_| Step::Key((*key).to_owned()), Step::Index);
        line_of(text, &FieldPath(keys.iter().map(step).collect()))
    }

    const TEXT: &str = "---\nspec:\n  ports:\n  - name: http\n    port: 80\n  - port: x\n    prot: y\n";

    #[test]
    fn keys_and_elements_are_found() {
        assert_eq!(line(TEXT, &["spec"]), Some(2));
        assert_eq!(line(TEXT, &["spec", "ports", "0", "port"]), Some(5));
        assert_eq!(line(TEXT, &["spec", "ports", "1", "prot"]), Some(7));
        assert_eq!(line(TEXT, &["spec", "ports", "1"]), Some(6));
        assert_eq!(line("{\"a\": [\n{\"b\": 1},\n{\"b\": 2}]}", &["a", "1", "b"]), Some(3));
    }

    #[test]
    fn what_is_missing_is_placed_at_its_nearest_parent() {
        assert_eq!(line(TEXT, &["spec", "ports", "7", "port"]), Some(3));
        assert_eq!(line(TEXT, &["spec", "type"]), Some(2));
        assert_eq!(line(TEXT, &["spec", "ports", "1", "name"]), Some(6));
        assert_eq!(line(TEXT, &["metadata"]), Some(2));
        assert_eq!(line(": : :", &["metadata"]), None);
    }
}
