//! Lines of fields in the files of a folder, for commands that run once and no longer have the text of the objects.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::line::{self, MAX_LINE_LOOKUPS};
use super::origin::{Origin, Origins};
use super::{document, folder};
use crate::api::decode::field_path::FieldPath;
use crate::api::problem::ObjectRef;

/// Finds lines of fields in the files of a folder by reading the files again, for commands that run once. Blocking.
#[derive(Debug)]
pub struct FieldLines {
    folder: PathBuf,
    /// First line and text of each document, for files that were needed so far.
    documents: HashMap<Arc<str>, Vec<(u32, String)>>,
    /// Number of lookups in each document.
    lookups: HashMap<(Arc<str>, u32), usize>,
}

impl FieldLines {
    /// Lines in a folder, or in a single file.
    pub fn of(path: &Path) -> Self {
        Self { folder: path.to_owned(), documents: HashMap::new(), lookups: HashMap::new() }
    }

    /// The line in the file, from 1, of the object's field, or of the longest existing part of its path. `None` if the object is
    /// not from this folder, or after too many lookups in its document.
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
        let line = line::line_of(text, &FieldPath::parse(field).below(place))?;
        Some(first_line + line - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
