//! The commands that answer and end, and the demo.

mod admin_client;
pub(crate) mod demo;
pub(crate) mod inspect;
pub(crate) mod stdout;
pub(crate) mod uninstall;
