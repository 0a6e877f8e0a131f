//! Where in the manifest folder an object or a Problem comes from.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::problem::{ObjectRef, Problem};

/// A place in a manifest file. Prints as `web.yaml#2`, without `#2` when the file as a whole is meant.
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
        self.document.map_or(Ok(()), |document| write!(f, "#{document}"))
    }
}

/// A Problem and the place to mend it. Prints as `web.yaml#2: Service shop/web: ...`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileProblem {
    /// Where it is.
    pub origin: Origin,
    /// What it is.
    pub problem: Problem,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.problem)?;
        self.origin.line.map_or(Ok(()), |line| write!(f, " (line {line})"))
    }
}

/// Which document each object in effect comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(pub(super) HashMap<ObjectRef, Origin>);

impl Origins {
    /// The document that defines `object`.
    pub fn of(&self, object: &ObjectRef) -> Option<&Origin> {
        self.0.get(object)
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
