//! Console: what a gateway or controller shows to people and programs. Views, the admin server with its pages and metrics, and the
//! commands that query a process or read manifests. It reads typed values of the other crates and decides nothing.

mod admin_client;
pub mod admin_server;
pub mod arguments;
pub mod connection_log;
pub mod diff;
pub mod exit;
pub mod http;
pub mod inspect;
mod manifests;
pub mod options;
mod port_forward;
pub mod replay;
pub mod retry;
pub mod stdout;
#[cfg(test)]
mod test_gateways;
pub mod top;
pub mod trace;
pub mod validate;
pub mod views;
pub mod watch;
