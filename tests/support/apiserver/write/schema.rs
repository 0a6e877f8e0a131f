//! Schema of a kind: its fields, and which lists and maps are merged instead of replaced.
//!
//! Used for built-in kinds and those of CustomResourceDefinitions. Independent of values.

mod builtin;
mod openapi;

use std::collections::BTreeMap;

use serde_json::Value;

pub(super) use builtin::{builtin, object_meta};
pub(super) use openapi::from_openapi;

/// Type of a value.
#[derive(Clone, Debug)]
pub(super) enum Schema {
    Text,
    Flag,
    Int32,
    Int64,
    /// `IntOrString` in Go.
    IntOrText,
    /// `metav1.Time`: any RFC 3339 text, truncated to seconds in UTC.
    Time,
    /// `metav1.MicroTime`: exactly six digits of fraction.
    MicroTime,
    /// Any value: objects are merged by field, others are replaced.
    Opaque,
    List(Box<Schema>, ListKind),
    Struct(Struct),
    /// Arbitrary keys. An atomic map has one owner.
    Map {
        values: Box<Schema>,
        atomic: bool,
    },
}

/// Named fields.
#[derive(Clone, Debug)]
pub(super) struct Struct {
    /// Go type, which JSON errors name.
    pub go_name: &'static str,
    pub fields: BTreeMap<String, Field>,
    /// Whether it has one owner as a whole.
    pub atomic: bool,
    /// Whether unknown fields are kept.
    pub open: bool,
}

/// Named field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub schema: Schema,
    pub presence: Presence,
}

/// When a field is serialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// If it is not zero (Go: a value with `omitempty`).
    NonZero,
    /// If it was set, even to zero (Go: a pointer with `omitempty`).
    Pointer,
    /// Always, as zero or null if it was not set (Go: no `omitempty`).
    Always,
    /// As sent (custom resources).
    AsSent,
}

/// Merge rule of a list.
#[derive(Clone, Debug)]
pub(super) enum ListKind {
    /// One owner, replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Objects identified by some of their fields.
    Keyed {
        keys: Vec<ListKey>,
        /// The single key of strategic merge patch, which may be weaker.
        patch_key: String,
    },
}

/// Field that identifies list elements.
#[derive(Clone, Debug)]
pub(super) struct ListKey {
    pub name: String,
    /// Value of elements without the field.
    pub default: Option<Value>,
}

impl Struct {
    /// Schema of a field, if known.
    pub(super) fn field(&self, name: &str) -> Option<&Schema> {
        self.fields.get(name).map(|field| &field.schema)
    }
}

impl Schema {
    /// Schema of the value at `key` of an object, if allowed.
    pub(super) fn member(&self, key: &str) -> Option<&Schema> {
        match self {
            Self::Struct(known) => known.field(key).or(if known.open { Some(&Self::Opaque) } else { None }),
            Self::Map { values, .. } => Some(values),
            Self::Opaque => Some(&Self::Opaque),
            _ => None,
        }
    }

    /// Whether `key` is a named field.
    pub(super) fn names(&self, key: &str) -> bool {
        matches!(self, Self::Struct(known) if known.fields.contains_key(key))
    }
}
