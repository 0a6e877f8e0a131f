//! Built program: the output of commands, and processes with an admin server.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::document::root;
use crate::http;
use crate::patience::eventually;

/// Process with an admin server, which ends when dropped.
pub(crate) struct Server {
    pub(crate) admin: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Server {
    /// Starts `sheave` with these arguments and settings, and waits until it answers `path` with `status`.
    pub(crate) fn start(arguments: &[&str], settings: &str, (path, status): (&str, u16)) -> Self {
        let folder = TempDir::new().unwrap();
        let admin = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let state = folder.path().join("state");
        let config = format!("admin: {{listen: \"{admin}\"}}\nstateDir: {}\n{settings}", state.display());
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, config).unwrap();
        let mut command = sheave();
        let child = command.args(arguments).arg("--config").arg(file).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { admin, child, _folder: folder };
        eventually("the admin server answers", || match http::get(admin, path) {
            Ok(answer) if answer.status == status => Ok(()),
            Ok(answer) => Err(answer.status.to_string()),
            Err(error) => Err(error.to_string()),
        });
        server
    }

    /// A gateway that forwards the Services of the examples.
    pub(crate) fn gateway() -> Self {
        let arguments = ["run", "--node", "gw-1", "--manifests", "deploy/examples/manifests"];
        Self::start(&arguments, "metrics: {maxEndpoints: 10}\nsteering: never\n", ("/readyz", 200))
    }

    /// Body of the response.
    pub(crate) fn get(&self, path: &str) -> String {
        http::get(self.admin, path).unwrap().body
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Command for the program in the repository's folder.
pub(crate) fn sheave() -> Command {
    let mut command = Command::new(sheave_test_support::program::path());
    command.current_dir(root()).env_remove("KUBECONFIG").env_remove("NODE_NAME");
    command
}
