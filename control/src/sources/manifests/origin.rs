//! Where in the manifest folder an object or a Problem comes from.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::api::decode::field_path::FieldPath;
use crate::api::problem::{ObjectRef, Problem};

/// A place in a manifest file. Prints as editors open it: `web.yaml:12`, or `web.yaml` when the file as a whole is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The file's name below the manifest folder.
    pub file: Arc<str>,
    /// The document inside the file, from 1.
    pub document: Option<u32>,
    /// The line inside the file, from 1, as near as it is known.
    pub line: Option<u32>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// A Problem and the place to mend it. Prints as `web.yaml:12: Service shop/web: ...`; a file is not named twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileProblem {
    /// Where it is.
    pub origin: Origin,
    /// What it is.
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

/// The kind of object that Problems of a file as a whole are about.
pub const FILE: &str = "File";

/// Which document each object in effect comes from, and its place in there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(pub(super) HashMap<ObjectRef, (Origin, FieldPath)>);

impl Origins {
    /// The document that defines `object`.
    pub fn of(&self, object: &ObjectRef) -> Option<&Origin> {
        self.0.get(object).map(|(origin, _)| origin)
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The way to the object inside its document: to an item of a list, or nothing.
    pub(super) fn place_of(&self, object: &ObjectRef) -> Option<&FieldPath> {
        self.0.get(object).map(|(_, place)| place)
    }
}

/// Tells the lines of places in a text that are asked for from front to back, so that each byte is looked at once.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    /// What is behind the last place.
    rest: &'a [u8],
    offset: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { rest: text.as_bytes(), offset: 0, line: 1 }
    }

    /// The line, from 1, that holds the byte at `offset`, which is not before the last one asked for.
    pub(super) fn at(&mut self, offset: usize) -> u32 {
        let passed = offset.saturating_sub(self.offset).min(self.rest.len());
        let (passed, rest) = self.rest.split_at(passed);
        self.line += passed.iter().filter(|&&byte| byte == b'\n').count();
        (self.rest, self.offset) = (rest, offset.max(self.offset));
        u32::try_from(self.line).unwrap_or(u32::MAX)
    }
}
