//! Tests that sources follow the architecture rules, and that documents match the program.
//!
//! `UPDATE_DOCS=1 cargo test --test documents` regenerates the tables and console samples of the documents.

#![cfg(test)]

use sheave_test_support::{http, patience};

mod architecture;
mod chart;
mod document;
mod kernel_path;
mod known;
mod links;
mod program;
mod samples;
mod sources;
mod tables;
