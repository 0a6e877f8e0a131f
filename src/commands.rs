//! One-shot commands, and the demo.

mod admin_client;
pub(crate) mod admin_server;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod inspect;
pub(crate) mod manifests;
pub(crate) mod migrate;
mod port_forward;
mod stdout;
pub(crate) mod top;
pub(crate) mod uninstall;
pub(crate) mod validate;
pub(crate) mod version;
pub(crate) mod watch;
