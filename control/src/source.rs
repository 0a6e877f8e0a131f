//! Sources of objects: where they come from is known here and nowhere else. Each fills [`crate::store`]; whether a list
//! failed or was empty is never the same thing.

pub mod api;
pub mod files;
