//! What the repository says about itself is true: the sources keep to the rules of the house, and the documents to the program.
//!
//! `UPDATE_DOCS=1 cargo test --test documents` writes the tables and console samples of the documents anew.

#![cfg(test)]

use sheave_test_support::{http, patience};

mod architecture;
mod document;
mod known;
mod links;
mod program;
mod samples;
mod sources;
mod tables;
