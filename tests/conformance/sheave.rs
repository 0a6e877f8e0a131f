//! Runs the real binary with a case's input, as a user would.

use std::fs;
use std::io;
use std::process::Command;

use serde_json::{Value, json};
use sheave_test_support::program;
use tempfile::TempDir;

/// Folder of the objects of the gateways' own cluster.
const MANIFESTS: &str = "manifests";
/// Folder of the objects of the Karmada control plane.
const KARMADA_MANIFESTS: &str = "karmada-manifests";

/// Configuration file and folders of manifests, which are removed when dropped.
pub(crate) struct Input {
    folder: TempDir,
    node: String,
    karmada: bool,
}

impl Input {
    /// Writes the input. Without Karmada objects there is no such control plane.
    pub(crate) fn write(
        config: &Value,
        objects: &[Value],
        karmada: &[Value],
        node: &str,
    ) -> io::Result<Self> {
        let folder = TempDir::new()?;
        // YAML includes JSON.
        fs::write(folder.path().join("config.yaml"), config.to_string())?;
        for (name, objects) in [(MANIFESTS, objects), (KARMADA_MANIFESTS, karmada)] {
            let manifests = folder.path().join(name);
            fs::create_dir(&manifests)?;
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            fs::write(manifests.join("objects.json"), format!("{list:#}"))?;
        }
        Ok(Self { folder, node: node.to_owned(), karmada: !karmada.is_empty() })
    }

    /// Output of `sheave routes`.
    pub(crate) fn routes(&self) -> Result<Value, String> {
        self.run("routes", &[])
    }

    /// Output of `sheave explain`.
    pub(crate) fn explain(&self, args: &[String]) -> Result<Value, String> {
        self.run("explain", args)
    }

    fn run(&self, command: &str, args: &[String]) -> Result<Value, String> {
        let path = |name| self.folder.path().join(name);
        let mut sheave = Command::new(program::path());
        sheave.arg(command).args(args).args(["-o", "json", "--node", &self.node]);
        sheave.arg("--config").arg(path("config.yaml")).arg("--manifests").arg(path(MANIFESTS));
        if self.karmada {
            sheave.arg("--karmada-manifests").arg(path(KARMADA_MANIFESTS));
        }
        let output = sheave.output().map_err(|error| format!("sheave cannot be run: {error}"))?;
        let failure = |why: &dyn std::fmt::Display| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("`sheave {command}` {}: {why}\n{}", output.status, stderr.trim_end())
        };
        if !output.status.success() {
            return Err(failure(&"failed"));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failure(&error))
    }
}
