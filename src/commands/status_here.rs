//! `sheave status --here`: the startup probe of a process that is to take over.

use std::path::Path;

use sheave_console::exit::Exit;

use crate::takeover::predecessor;

/// Exits with 2 if a process of another container serves, or may serve, on this node.
pub(crate) async fn run(state_dir: &Path) -> Exit {
    match predecessor::serves_elsewhere(state_dir).await {
        Ok(false) => Exit::Ok,
        Ok(true) => {
            eprintln!("sheave: a process of another container serves");
            Exit::Down
        }
        Err(error) => {
            eprintln!("sheave: {}: {error}", state_dir.display());
            // Without a usable socket no takeover is possible, so there is no process to wait for. After any other error a process
            // may still serve.
            if predecessor::is_unusable(&error) { Exit::Ok } else { Exit::Down }
        }
    }
}
