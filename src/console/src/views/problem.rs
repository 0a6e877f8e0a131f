//! Problems for users and programs: what is wrong, and where in the manifests.

pub(crate) mod advice;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sheave_control::api::problem::{ObjectRef, Problem};
use sheave_control::sources::manifests::{FILE, FileProblem, Origin, Origins};

/// Limit of entries in lists for people; the others usually have the same causes.
pub const LISTED: usize = 20;

/// Problem of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProblemView {
    /// `Service shop/web`, `File web.yaml`.
    pub object: String,
    /// A CamelCase token.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Port that is affected, if it is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortView>,
    /// Field inside the object, if one is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Manifest file, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of the document in the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<u32>,
    /// Line in the file, from 1, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Folder of the file, for people who open it from here.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
}

/// A Service port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortView {
    /// Port number, as in the Service.
    pub port: u16,
    /// Protocol, as in the Service.
    pub protocol: String,
}

impl ProblemView {
    /// Problem of an object, with the document that defines the object, if known.
    pub fn new(problem: &Problem, origin: Option<&Origin>) -> Self {
        let port = problem.port.map(|port| PortView { port: port.port, protocol: port.protocol.to_owned() });
        Self {
            object: problem.object.to_string(),
            reason: problem.reason.to_owned(),
            message: problem.message.clone(),
            port,
            field: Some(problem.field.clone()).filter(|field| !field.is_empty()),
            file: origin.map(|origin| origin.file.as_ref().to_owned()),
            document: origin.and_then(|origin| origin.document),
            line: origin.and_then(|origin| origin.line),
            folder: None,
        }
    }

    /// Problem with the line of its field, which `line_of` looks up in the manifest; `None` if the object is not from these manifests.
    pub fn in_manifest(
        problem: &Problem,
        origins: &Origins,
        line_of: impl FnOnce(&ObjectRef, &str) -> Option<u32>,
    ) -> Option<Self> {
        origins.of(&problem.object)?;
        let (object, field) = written_as(problem, origins);
        let view = Self::new(problem, origins.of(&object));
        Some(Self { line: line_of(&object, field).or(view.line), ..view })
    }

    /// Adds the folder of the file; `manifests` is a folder or the file itself.
    pub fn within(self, manifests: &Path) -> Self {
        let folder = if manifests.is_dir() { Some(manifests) } else { manifests.parent() };
        // The Problem may be about the folder itself.
        let is_file = self.file.as_deref().is_some_and(|file| Path::new(file) != manifests);
        Self { folder: folder.filter(|_| is_file).map(Path::to_owned), ..self }
    }
}

/// Object and field as in the manifest: Problems of a MultiClusterService's template are written in its Service.
fn written_as<'a>(problem: &'a Problem, origins: &Origins) -> (ObjectRef, &'a str) {
    let template = ObjectRef { kind: "Service", ..problem.object.clone() };
    match problem.field.strip_prefix("Service.") {
        Some(field) if origins.of(&template).is_some() => (template, field),
        _ => (problem.object.clone(), &problem.field),
    }
}

impl From<&FileProblem> for ProblemView {
    fn from(found: &FileProblem) -> Self {
        Self::new(&found.problem, Some(&found.origin))
    }
}

/// Formats `file:line: object: reason: field: message`, omitting unknown parts. A file is not named twice.
impl std::fmt::Display for ProblemView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let about_file = self.object.strip_prefix(FILE).is_some_and(|rest| rest.starts_with(' '));
        match (&self.file, &self.folder) {
            (Some(file), Some(folder)) => write!(f, "{}", folder.join(file).display())?,
            (Some(file), None) => f.write_str(file)?,
            (None, _) => {}
        }
        if self.file.is_some() {
            self.line.map_or(Ok(()), |line| write!(f, ":{line}"))?;
            f.write_str(": ")?;
        }
        if self.file.is_none() || !about_file {
            write!(f, "{}: ", self.object)?;
        }
        write!(f, "{}: ", self.reason)?;
        if let Some(PortView { port, protocol }) = &self.port {
            write!(f, "port {port}/{protocol}: ")?;
        }
        self.field.as_ref().map_or(Ok(()), |field| write!(f, "{field}: "))?;
        f.write_str(&self.message)
    }
}
