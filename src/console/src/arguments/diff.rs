//! Arguments of `sheave diff`: the new manifests, and what they are compared with.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};

use super::{Folders, RunningArgs, TextFormat};

/// `sheave diff`.
#[derive(Debug, PartialEq, Args)]
#[command(group(ArgGroup::new("new").args(["manifests", "karmada_manifests"]).required(true).multiple(true)))]
pub struct Diff {
    /// Folder or file of the new Kubernetes manifests; a second --manifests names the old ones, in place of a gateway
    #[arg(id = "manifests", long = "manifests", value_name = "DIR")]
    local: Vec<PathBuf>,
    /// Folder or file of the new manifests of a Karmada control plane; a second one names the old ones, even if both are the same
    #[arg(id = "karmada_manifests", long = "karmada-manifests", value_name = "DIR")]
    karmada: Vec<PathBuf>,
    /// Same as a second --manifests
    #[arg(long, value_name = "DIR")]
    old: Option<PathBuf>,
    /// Same as a second --karmada-manifests
    #[arg(long, value_name = "DIR")]
    old_karmada: Option<PathBuf>,
    /// Running process to query.
    #[command(flatten)]
    pub running: RunningArgs,
    /// Name of the Node that the manifests are read for [default: the gateway's; between manifests as for `sheave routes`]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = TextFormat::Text)]
    pub output: TextFormat,
}

impl Diff {
    /// Refuses more than two sets of manifests, and more than one to compare with.
    pub fn check(&self) -> Result<(), String> {
        let sides = |folders: &[PathBuf], old: &Option<PathBuf>| folders.len() + usize::from(old.is_some());
        if sides(&self.local, &self.old) > 2 || sides(&self.karmada, &self.old_karmada) > 2 {
            return Err("name the new manifests, and those to compare them with; there are more".to_owned());
        }
        if self.old_folders().is_some() && (self.running.admin.is_some() || self.running.gateway.is_some()) {
            return Err("compare with a gateway, or with other manifests".to_owned());
        }
        Ok(())
    }

    /// The new manifests; clap requires at least one folder.
    pub fn new_folders(&self) -> Option<Folders<'_>> {
        Folders::of(first(&self.local), first(&self.karmada))
    }

    /// The old manifests; `None` if the new ones are compared with a gateway.
    pub fn old_folders(&self) -> Option<Folders<'_>> {
        let local = self.old.as_deref().or(second(&self.local));
        Folders::of(local, self.old_karmada.as_deref().or(second(&self.karmada)))
    }
}

fn first(folders: &[PathBuf]) -> Option<&Path> {
    folders.first().map(PathBuf::as_path)
}

fn second(folders: &[PathBuf]) -> Option<&Path> {
    folders.get(1).map(PathBuf::as_path)
}
