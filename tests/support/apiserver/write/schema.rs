//! The shape of a kind of objects: which fields exist, and which lists and maps are merged instead of replaced.
//!
//! One form serves the built-in kinds and those of CustomResourceDefinitions. It knows nothing of values.

mod builtin;
mod openapi;

use std::collections::BTreeMap;

use serde_json::Value;

pub(super) use builtin::{builtin, object_meta};
pub(super) use openapi::from_openapi;

/// What a value looks like.
#[derive(Clone, Debug)]
pub(super) enum Schema {
    Text,
    Flag,
    Int32,
    Int64,
    /// Go's `IntOrString`.
    IntOrText,
    /// `metav1.Time`: any RFC 3339 text is taken and truncated to seconds in UTC.
    Time,
    /// `metav1.MicroTime`: exactly six digits of fraction.
    MicroTime,
    /// Anything: objects are merged by field, the rest is replaced.
    Opaque,
    List(Box<Schema>, ListKind),
    Struct(Struct),
    /// Free keys. An atomic map has one owner.
    Map {
        values: Box<Schema>,
        atomic: bool,
    },
}

/// Named fields.
#[derive(Clone, Debug)]
pub(super) struct Struct {
    /// The Go type, which JSON errors name.
    pub go_name: &'static str,
    pub fields: BTreeMap<String, Field>,
    /// Whether it has one owner as a whole.
    pub atomic: bool,
    /// Whether fields that are not named here are kept.
    pub open: bool,
}

/// A named field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub schema: Schema,
    pub presence: Presence,
}

/// When a field is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Only if it says something (Go: a value with `omitempty`).
    NonZero,
    /// If it was given, even as zero (Go: a pointer with `omitempty`).
    Pointer,
    /// Always, as zero or null when it was not given (Go: no `omitempty`).
    Always,
    /// As it was sent (custom resources).
    AsSent,
}

/// How a list is merged.
#[derive(Clone, Debug)]
pub(super) enum ListKind {
    /// One owner, replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Objects told apart by some of their fields.
    Keyed {
        keys: Vec<ListKey>,
        /// Strategic merge patch has only one key, sometimes a weaker one.
        patch_key: String,
    },
}

/// A field that tells list elements apart.
#[derive(Clone, Debug)]
pub(super) struct ListKey {
    pub name: String,
    /// What an element that lacks it is taken to have.
    pub default: Option<Value>,
}

impl Struct {
    /// The schema of a field, if it is known.
    pub(super) fn field(&self, name: &str) -> Option<&Schema> {
        self.fields.get(name).map(|field| &field.schema)
    }
}

impl Schema {
    /// The schema of what is under `key` of an object, if it may be there.
    pub(super) fn member(&self, key: &str) -> Option<&Schema> {
        match self {
            Self::Struct(known) => known.field(key).or(if known.open { Some(&Self::Opaque) } else { None }),
            Self::Map { values, .. } => Some(values),
            Self::Opaque => Some(&Self::Opaque),
            _ => None,
        }
    }

    /// Whether `key` is one of its named fields.
    pub(super) fn names(&self, key: &str) -> bool {
        matches!(self, Self::Struct(known) if known.fields.contains_key(key))
    }
}
