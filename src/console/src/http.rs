//! HTTP servers of the process: admin pages and status page, metrics, health checks, and a gateway's report for the controller.

pub mod admin;
mod admin_guard;
pub mod all_gateways;
pub mod controller_pages;
pub mod gateway_pages;
pub mod health;
pub(crate) mod history;
mod live;
pub mod metrics;
pub mod page;
pub mod query;
pub mod report;
pub mod server;
pub(crate) mod trace;
