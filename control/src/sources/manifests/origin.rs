//! Origin of an object or a Problem in the manifest folder.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::api::decode::field_path::FieldPath;
use crate::api::problem::{ObjectRef, Problem};

/// A location in a manifest file. Displays as editors accept it: `web.yaml:12`, or `web.yaml` for the whole file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Name of the file in the manifest folder.
    pub file: Arc<str>,
    /// Number of the document in the file, from 1.
    pub document: Option<u32>,
    /// Line in the file, from 1, as precisely as it is known.
    pub line: Option<u32>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// A Problem and its location. Displays as `web.yaml:12: Service shop/web: ...`, without repeating the name of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileProblem {
    /// Location of the Problem.
    pub origin: Origin,
    /// The Problem.
    pub problem: Problem,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { object, reason, field, message, .. } = &self.problem;
        write!(f, "{}: ", self.origin)?;
        if object.kind != FILE {
            write!(f, "{object}: ")?;
        }
        write!(f, "{reason}: ")?;
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        f.write_str(message)
    }
}

/// Kind of the object in Problems about a whole file.
pub const FILE: &str = "File";

/// Document of each object in effect, and its path in there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(pub(super) HashMap<ObjectRef, (Origin, FieldPath)>);

impl Origins {
    /// Location of the document that defines `object`.
    pub fn of(&self, object: &ObjectRef) -> Option<&Origin> {
        self.0.get(object).map(|(origin, _)| origin)
    }

    /// Number of objects.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Path of the object in its document: of an item in a list, or empty.
    pub(super) fn place_of(&self, object: &ObjectRef) -> Option<&FieldPath> {
        self.0.get(object).map(|(_, place)| place)
    }
}

/// Converts ascending offsets in a text to lines, so that each byte is scanned once.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    /// Text after the last offset.
    rest: &'a [u8],
    offset: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { rest: text.as_bytes(), offset: 0, line: 1 }
    }

    /// The line, from 1, of the byte at `offset`, which must not be less than the previous one.
    pub(super) fn at(&mut self, offset: usize) -> u32 {
        let passed = offset.saturating_sub(self.offset).min(self.rest.len());
        let (passed, rest) = self.rest.split_at(passed);
        self.line += passed.iter().filter(|&&byte| byte == b'\n').count();
        (self.rest, self.offset) = (rest, offset.max(self.offset));
        u32::try_from(self.line).unwrap_or(u32::MAX)
    }
}
