//! What users and programs see of a process: routing table, status and explanations, as JSON and as text. The JSON is a contract:
//! keys are added, never renamed.

pub(crate) mod explain;
pub(crate) mod problem;
pub(crate) mod routes;
pub(crate) mod status;
pub(crate) mod steering;
mod text_table;
