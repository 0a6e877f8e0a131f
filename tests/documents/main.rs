//! What the repository says about itself is true: the sources keep to the rules of the house, and the documents to the program.
//!
//! `UPDATE_DOCS=1 cargo test --test documents` writes the tables and console samples of the documents anew.

use sheave_test_support::{http, patience};

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod document;
#[cfg(test)]
mod known;
#[cfg(test)]
mod links;
#[cfg(test)]
mod program;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tables;
