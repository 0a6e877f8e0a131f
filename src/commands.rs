//! Commands that change something or need nothing of a process: demo, migrate, uninstall, version and completions.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod migrate;
pub(crate) mod status_here;
pub(crate) mod uninstall;
pub(crate) mod version;
