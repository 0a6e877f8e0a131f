//! HTTP servers of the process: admin pages and status page, metrics, health checks, and a gateway's report for the controller.

pub(crate) mod admin;
pub(crate) mod all_gateways;
pub(crate) mod controller_pages;
pub(crate) mod health;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod questions;
pub(crate) mod report;
pub(crate) mod server;
