//! What the repository says about itself is true: the sources keep to the rules of the house, and the documents to the program.
//!
//! `UPDATE_DOCS=1 cargo test --test documents` writes the tables and console samples of the documents anew.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod document;
#[cfg(test)]
#[path = "../support/http.rs"]
mod http;
#[cfg(test)]
mod known;
#[cfg(test)]
mod links;
#[cfg(test)]
#[path = "../support/patience.rs"]
#[allow(dead_code, reason = "the kit serves several test programs; each uses a part of it")]
mod patience;
#[cfg(test)]
mod program;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tables;
