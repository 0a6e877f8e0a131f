//! Sources of objects: where they come from is known here and nowhere else. Each fills [`crate::store`]; whether a list
//! failed or was empty is never the same thing.

pub mod api;
mod field_path;
pub mod files;
mod known_fields;
pub(crate) mod typed;

#[cfg(test)]
pub(crate) use self::{field_path::Step, known_fields::at as known_fields_at};
