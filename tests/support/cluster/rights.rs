//! User names and permissions of the processes at an API server, read from the roles and bindings of `deploy`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{Account, documents_of};

/// User with all permissions.
pub(super) const ADMINISTRATOR: &str = "admin";

/// Roles and bindings.
pub(super) struct Rights {
    objects: Vec<Value>,
    gateway: String,
    controller: String,
}

impl Rights {
    /// Reads these files of the repository, which bind both accounts.
    pub(super) fn read(files: &[&str]) -> Self {
        let objects: Vec<Value> = files.iter().flat_map(|file| documents_of(&text_of(file))).collect();
        let user = |name: &str| {
            let subject = objects.iter().flat_map(subjects).find(|subject| subject["name"] == name);
            user_of(subject.unwrap_or_else(|| panic!("{files:?} grant nothing to {name}")))
        };
        Self { gateway: user("sheave-gateway"), controller: user("sheave-controller"), objects }
    }

    /// User name of an account.
    pub(super) fn user(&self, account: Account) -> &str {
        match account {
            Account::Gateway => &self.gateway,
            Account::Controller => &self.controller,
            Account::Administrator => ADMINISTRATOR,
        }
    }

    /// The Roles and ClusterRoles that are bound to an account; empty for the administrator.
    pub(super) fn roles(&self, account: Account) -> Vec<Value> {
        let user = self.user(account);
        let bindings = self
            .objects
            .iter()
            .filter(|object| subjects(object).iter().any(|subject| user_of(subject) == user));
        let roles = bindings.flat_map(|binding| {
            let reference = &binding["roleRef"];
            self.objects.iter().filter(move |role| {
                let same_place = role["kind"] == "ClusterRole"
                    || role["metadata"]["namespace"] == binding["metadata"]["namespace"];
                role["kind"] == reference["kind"]
                    && role["metadata"]["name"] == reference["name"]
                    && same_place
            })
        });
        roles.cloned().collect()
    }
}

fn subjects(binding: &Value) -> &[Value] {
    binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn user_of(subject: &Value) -> String {
    let text = |name: &str| subject[name].as_str().unwrap_or_default();
    match text("kind") {
        "ServiceAccount" => format!("system:serviceaccount:{}:{}", text("namespace"), text("name")),
        _ => text("name").to_owned(),
    }
}

/// Text of a file of the repository.
pub(super) fn text_of(file: &str) -> String {
    let path = PathBuf::from(crate::program::PROJECT).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
