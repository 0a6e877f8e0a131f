//! The request and answer path that everything the controller writes takes.

pub(super) mod answer;
