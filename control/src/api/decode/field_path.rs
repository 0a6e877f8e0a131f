//! Path of a field in a document, in the notation of users: `spec.ports[0].port`.

use std::fmt;

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Into a mapping.
    Key(String),
    /// Into a sequence.
    Index(usize),
}

/// Steps from the root of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(pub(crate) Vec<Step>);

impl FieldPath {
    /// A field at the root.
    pub(crate) fn key(name: &str) -> Self {
        Self::default().then_key(name)
    }

    /// One key further.
    #[must_use]
    pub(crate) fn then_key(mut self, name: &str) -> Self {
        self.0.push(Step::Key(name.to_owned()));
        self
    }

    /// Parses a field path from a Problem: `spec.ports[0].port`, `metadata.annotations[sheave.dev/balance]`.
    pub(crate) fn parse(field: &str) -> Self {
        let mut steps = Vec::new();
        let mut rest = field;
        while !rest.is_empty() {
            if let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                let key = || Step::Key(inside.trim_matches('"').to_owned());
                steps.push(inside.parse().map_or_else(|_| key(), Step::Index));
                rest = after;
            } else {
                let end = rest.find(['.', '[']).filter(|end| *end > 0).unwrap_or(rest.len());
                let (key, after) = rest.split_at(end);
                steps.push(Step::Key(key.to_owned()));
                rest = after;
            }
            rest = rest.strip_prefix('.').unwrap_or(rest);
        }
        Self(steps)
    }

    /// This path below `outer`, the path of the object that it is relative to.
    pub(crate) fn below(&self, outer: &Self) -> Self {
        Self([outer.0.as_slice(), &self.0].concat())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(number) => write!(f, "[{number}]")?,
                // Label and annotation keys hold dots and slashes.
                Step::Key(key) if key.contains(['.', '/', '[']) => write!(f, "[{key:?}]")?,
                Step::Key(key) if index == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

impl From<&serde_path_to_error::Path> for FieldPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        Self(path.iter().filter_map(step).collect())
    }
}

impl From<&serde_ignored::Path<'_>> for FieldPath {
    fn from(path: &serde_ignored::Path<'_>) -> Self {
        use serde_ignored::Path;
        let (parent, step) = match path {
            Path::Root => return Self::default(),
            Path::Seq { parent, index } => (parent, Some(Step::Index(*index))),
            Path::Map { parent, key } => (parent, Some(Step::Key(key.clone()))),
            Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
                (parent, None)
            }
        };
        let mut steps = Self::from(*parent);
        steps.0.extend(step);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_users_write_them() {
        let mut path = FieldPath::key("spec").then_key("ports");
        path.0.push(Step::Index(0));
        assert_eq!(path.then_key("port").to_string(), "spec.ports[0].port");
        let label = FieldPath::key("metadata").then_key("labels").then_key("kubernetes.io/service-name");
        assert_eq!(label.to_string(), "metadata.labels[\"kubernetes.io/service-name\"]");
        assert_eq!(FieldPath::default().to_string(), "");
    }

    #[test]
    fn fields_of_problems_are_read_as_they_are_written() {
        let read = |field| FieldPath::parse(field).0;
        let key = |name: &str| Step::Key(name.to_owned());
        assert_eq!(read("spec.ports[12].port"), [key("spec"), key("ports"), Step::Index(12), key("port")]);
        let annotation = [key("metadata"), key("annotations"), key("sheave.dev/balance")];
        assert_eq!(read("metadata.annotations[sheave.dev/balance]"), annotation);
        assert_eq!(read("metadata.annotations[\"sheave.dev/balance\"]"), annotation);
        assert_eq!(read(""), []);
        // Parsing malformed input must terminate.
        for odd in [".", "[", "]", "a..b", "a[", "[]"] {
            read(odd);
        }
    }
}
