//! The line of a field, found by reading the document's text a second time. Only asked when there is a Problem to place.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::manifest::MAX_LINE_LOOKUPS;
use super::origin::{Origin, Origins};
use super::{document, folder};
use crate::problem::ObjectRef;
use crate::source::field_path::{FieldPath, Step};

/// Finds the lines of fields in the files of a folder, which it reads once more for that: for commands that run once. Blocking.
#[derive(Debug)]
pub struct FieldLines {
    folder: PathBuf,
    /// The documents of each file that was asked for: first line and text.
    documents: HashMap<Arc<str>, Vec<(u32, String)>>,
    /// How often each document was read.
    lookups: HashMap<(Arc<str>, u32), usize>,
}

impl FieldLines {
    /// Of a folder, or of a single file.
    pub fn of(path: &Path) -> Self {
        Self { folder: path.to_owned(), documents: HashMap::new(), lookups: HashMap::new() }
    }

    /// The line of the file, from 1, with the field of the object, or with as much of the way there as there is. `None` if the
    /// object is not from there, or if enough was looked up in its document.
    pub fn line(&mut self, origins: &Origins, object: &ObjectRef, field: &str) -> Option<u32> {
        let (Origin { file, document, .. }, place) = (origins.of(object)?, origins.place_of(object)?);
        let number = (*document)?;
        let lookups = self.lookups.entry((Arc::clone(file), number)).or_default();
        *lookups += 1;
        if *lookups > MAX_LINE_LOOKUPS {
            return None;
        }
        let documents = self.documents.entry(Arc::clone(file)).or_insert_with(|| {
            let text = folder::text_of(&self.folder, file).unwrap_or_default();
            document::texts(&text, file.ends_with(".json"))
        });
        let (first_line, text) = documents.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        let line = of(text, &FieldPath::parse(field).below(place))?;
        Some(first_line + line - 1)
    }
}

/// The line of `text`, from 1, of the last step of `path` that is there.
pub(super) fn of(text: &str, path: &FieldPath) -> Option<u32> {
    let mut found = None;
    let seed = LineOf { path: &path.0, element: true, found: &mut found };
    // The search ends by an error, and where it ended is what was asked for.
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

/// Where the search is over.
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
        of(text, &FieldPath(keys.iter().map(step).collect()))
    }

    #[test]
    fn fields_of_objects_are_found_in_their_files_lists_and_all() {
        let dir = tempfile::tempdir().unwrap();
        let service = |name: &str, indent: &str| {
            let lines = [
                "apiVersion: v1",
                "kind: Service",
                &format!("metadata: {{name: {name}}}"),
                "spec:",
                "  type: X",
            ];
            lines.map(|line| format!("{indent}{line}\n")).concat()
        };
        let list =
            format!("kind: List\napiVersion: v1\nitems:\n-\n{}-\n{}", service("b", "  "), service("c", "  "));
        std::fs::write(dir.path().join("all.yaml"), service("a", "") + "---\n" + &list).unwrap();
        let loaded = super::super::load(dir.path());
        let mut lines = FieldLines::of(dir.path());
        let mut line = |name: &str, field: &str| {
            let object = ObjectRef { kind: "Service", namespace: "default".into(), name: name.into() };
            lines.line(&loaded.origins, &object, field)
        };
        assert_eq!(line("a", "spec.type"), Some(5));
        assert_eq!(line("b", "spec.type"), Some(15));
        assert_eq!(line("c", "spec.type"), Some(21));
        assert_eq!(line("c", "spec.ports[0].port"), Some(20), "the nearest that is there");
        assert_eq!(line("c", ""), Some(17), "the object");
        assert_eq!(line("nobody", "spec.type"), None);
        let mut single = FieldLines::of(&dir.path().join("all.yaml"));
        let object = ObjectRef { kind: "Service", namespace: "default".into(), name: "a".into() };
        assert_eq!(single.line(&loaded.origins, &object, "spec.type"), Some(5));
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
