//! Commands that answer and end: `routes`, `explain`, `status` and `validate`. They read what a gateway would read and project it as it
//! would, or ask one that runs. Nothing is forwarded here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::de::DeserializeOwned;

use sheave_control::api::problem::{ObjectRef, Problem};
use sheave_control::api::store::{ControlPlane, Objects, Store};
use sheave_control::projection::{Projection, Projector, Role};
use sheave_control::sources::manifests::{self, FieldLines, Loaded};
use sheave_dataplane::select::ActiveTable;

use crate::cli::{AdminUrl, Explain, Folders, Output, Routes, Status, TextOutput, Validate};
use crate::commands::admin_client;
use crate::commands::stdout::print;
use crate::config::{Config, ConfigMistake};
use crate::exit::Exit;
use crate::gateway::options::projection_options;
use crate::views::explain::{self, Answer, Basis, Question};
use crate::views::problem::{LISTED, ProblemView};
use crate::views::routes::RoutesView;
use crate::views::status::ProcessView;

/// Prints the routing table that manifests give, or that a running gateway has.
pub(crate) fn routes(command: &Routes, config: &Config) -> Exit {
    let view = match command.sources.folders() {
        Some(folders) => read(folders).map(|manifests| Offline::new(manifests, config).routes(config)),
        None => ask(command.sources.admin.as_ref(), config, "/api/routes").map(|(_, view)| view),
    };
    match (view, command.output) {
        (Err(exit), _) => exit,
        (Ok(view), Output::Json) => print(&view.to_json()),
        (Ok(view), Output::Table) => print(&view.to_text()),
    }
}

/// Prints why a client goes where it goes, by manifests or by a running gateway.
pub(crate) fn explain(command: &Explain, config: &Config) -> Exit {
    let question = command.question();
    let answer = match command.sources.folders() {
        Some(folders) => read(folders).map(|manifests| Offline::new(manifests, config).explain(&question)),
        None => {
            ask(command.sources.admin.as_ref(), config, &question.path()).map(|(status, view)| match status {
                NOT_FOUND => Answer::NotFound(view),
                _ => Answer::Explained(view),
            })
        }
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(exit) => return exit,
    };
    let text = match command.output {
        TextOutput::Json => answer.view().to_json(),
        TextOutput::Text => answer.to_text(),
    };
    match (print(&text), answer) {
        (Exit::Ok, Answer::NotFound(_)) => Exit::Data,
        (exit, _) => exit,
    }
}

/// Prints how a running process is, and exits as monitors expect it.
pub(crate) fn status(command: &Status, config: &Config) -> Exit {
    let Ok((_, view)) = ask::<ProcessView>(command.admin.as_ref(), config, "/api/status") else {
        return Exit::Down;
    };
    let text = match command.output {
        TextOutput::Json => view.to_json(),
        TextOutput::Text => view.to_text(),
    };
    match print(&text) {
        Exit::Ok => view.exit(),
        failed => failed,
    }
}

/// Tells every mistake in the configuration and the manifests: one line each, on stdout. Load balancers that are not served
/// are notes, which change nothing of how it exits: others may serve them.
pub(crate) fn validate(command: &Validate, config: Result<Config, Vec<ConfigMistake>>) -> Exit {
    let (config, mistakes) = match config {
        Ok(config) => (config, Vec::new()),
        // The manifests are judged by the defaults then.
        Err(mistakes) => (Config::fallback(), mistakes),
    };
    let folders = Folders::of(command.manifests.as_deref(), command.karmada_manifests.as_deref());
    let view = folders.map(|folders| Offline::new(Manifests::load(folders), &config).routes(&config));
    let problems = view.as_ref().map(|view| view.problems.as_slice()).unwrap_or_default();
    let report = validation(&mistakes, problems, &view.as_ref().map(notes).unwrap_or_default());
    match (print(&report), problems.is_empty(), mistakes.is_empty()) {
        (Exit::Ok, true, true) => Exit::Ok,
        (Exit::Ok, true, false) => Exit::Config,
        (Exit::Ok, false, _) => Exit::Data,
        (failed, ..) => failed,
    }
}

/// What `sheave validate` prints.
fn validation(mistakes: &[ConfigMistake], problems: &[ProblemView], notes: &[String]) -> String {
    let mut report: String = mistakes.iter().map(|mistake| format!("config: {mistake}\n")).collect();
    report.extend(problems.iter().map(|problem| format!("{problem}\n")));
    report.extend(notes.iter().map(|note| format!("note: {note}\n")));
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let wrong = mistakes.len() + problems.len();
    report
        + &match (wrong, notes.len()) {
            (0, 0) => "no problems\n".to_owned(),
            (_, 0) => format!("{}\n", counted(wrong, "problem")),
            (_, notes) => format!("{}, {}\n", counted(wrong, "problem"), counted(notes, "note")),
        }
}

/// The load balancers that are not served, the first of them by name, and what else may surprise.
fn notes(view: &RoutesView) -> Vec<String> {
    let mut notes: Vec<String> = view.not_served.iter().take(LISTED).map(ToString::to_string).collect();
    if let more @ 1.. = view.not_served.len().saturating_sub(LISTED) {
        notes.push(format!(
            "{more} more objects of type LoadBalancer are not served; `sheave routes -o json` lists all"
        ));
    }
    notes.extend(view.notes.iter().cloned());
    notes
}

/// Tells the mistakes of a configuration that a command cannot work with.
pub(crate) fn tell_mistakes(mistakes: &[ConfigMistake]) -> Exit {
    for mistake in mistakes {
        eprintln!("config: {mistake}");
    }
    Exit::Config
}

/// Reads manifests; tells what is wrong if they cannot be listed at all.
fn read(folders: Folders<'_>) -> Result<Manifests, Exit> {
    let manifests = Manifests::load(folders);
    let mut unlisted = manifests.loaded();
    unlisted.retain(|loaded| !loaded.listed);
    if unlisted.is_empty() {
        return Ok(manifests);
    }
    unlisted.iter().flat_map(|loaded| &loaded.problems).for_each(|problem| eprintln!("sheave: {problem}"));
    Err(Exit::Data)
}

/// What the folders say.
struct Manifests {
    /// By folder, that of the gateways' own cluster first.
    folders: Vec<(PathBuf, ControlPlane, Loaded)>,
}

impl Manifests {
    fn load(folders: Folders<'_>) -> Self {
        let given = [(folders.local, ControlPlane::Local), (folders.karmada, ControlPlane::Karmada)];
        let load = |(path, of): (Option<&Path>, ControlPlane)| {
            path.map(|path| (path.to_owned(), of, manifests::load_of(of, path)))
        };
        Self { folders: given.into_iter().filter_map(load).collect() }
    }

    fn loaded(&self) -> Vec<&Loaded> {
        self.folders.iter().map(|(_, _, loaded)| loaded).collect()
    }

    /// Of each folder that holds nothing of use, that it does.
    fn nothing_found(&self) -> Vec<String> {
        let empty = self.folders.iter().filter(|(_, _, loaded)| {
            loaded.listed && loaded.problems.is_empty() && loaded.objects == Objects::default()
        });
        let sentence = |(path, _, loaded): &(PathBuf, ControlPlane, Loaded)| match loaded.passed_over {
            0 => format!(
                "nothing was found in {}: manifests are the .yaml, .yml and .json files directly in it",
                path.display()
            ),
            count => format!(
                "nothing of a kind that Sheave reads was found in {}: {count} object{} of other kinds",
                path.display(),
                if count == 1 { "" } else { "s" }
            ),
        };
        empty.map(sentence).collect()
    }
}

/// What a gateway with this configuration would make of manifests.
struct Offline {
    manifests: Manifests,
    store: Store,
    projector: Projector,
    projection: Projection,
}

impl Offline {
    fn new(manifests: Manifests, config: &Config) -> Self {
        let mut store = Store::default();
        for (_, of, loaded) in &manifests.folders {
            store.replace_part(*of, &loaded.objects);
        }
        let dirty = store.take_dirty();
        let mut projector = Projector::new(projection_options(config, Role::Standalone));
        projector.set_now(jiff::Timestamp::now());
        let projection = projector.project(store.objects(), &dirty);
        Self { manifests, store, projector, projection }
    }

    fn places(&self) -> ProblemPositions<'_> {
        ProblemPositions::of(self.manifests.folders.iter().map(|(path, _, loaded)| (path.as_path(), loaded)))
    }

    fn routes(&self, config: &Config) -> RoutesView {
        let Projection { table, health_checks, .. } = &self.projection;
        let mut places = self.places();
        let view = RoutesView::new(table, &config.node, places.problems(&self.projection));
        let unserved = self.projector.unserved(self.store.objects());
        let not_served = unserved.iter().map(|note| places.place(note)).collect();
        view.publishing(self.projector.statuses(), health_checks, |_| false)
            .noting(not_served, self.manifests.nothing_found())
    }

    fn explain(&self, question: &Question) -> Answer {
        let basis = Basis {
            projector: &self.projector,
            objects: self.store.objects(),
            active: &ActiveTable::compile(Arc::clone(&self.projection.table), &ActiveTable::default()),
            affinity: None,
            problems: &self.places().problems(&self.projection),
            closed: &BTreeMap::new(),
            obstacle: None,
            no_client_addresses: None,
            now: Instant::now(),
        };
        explain::explain(question, basis)
    }
}

/// The place of Problems in the manifests that were read.
pub(crate) struct ProblemPositions<'a> {
    folders: Vec<(&'a Path, &'a Loaded, FieldLines)>,
}

impl<'a> ProblemPositions<'a> {
    /// In these folders, or single files.
    pub(crate) fn of(folders: impl IntoIterator<Item = (&'a Path, &'a Loaded)>) -> Self {
        let folders = folders.into_iter();
        Self { folders: folders.map(|(path, loaded)| (path, loaded, FieldLines::of(path))).collect() }
    }

    /// The Problems of files and projection.
    pub(crate) fn problems(&mut self, projection: &Projection) -> Vec<ProblemView> {
        let of_files = self.folders.iter().flat_map(|(path, loaded, _)| {
            loaded.problems.iter().map(|problem| ProblemView::from(problem).within(path))
        });
        let mut problems: Vec<ProblemView> = of_files.collect();
        // The projection is the first, so that all there is came with it.
        problems.extend(projection.problem_changes.came.iter().map(|problem| self.place(problem)));
        problems
    }

    /// A Problem with the line of its field, if its object is in a file.
    fn place(&mut self, problem: &Problem) -> ProblemView {
        let found =
            self.folders.iter_mut().find(|(_, loaded, _)| loaded.origins.of(&problem.object).is_some());
        let Some((path, loaded, lines)) = found else { return ProblemView::new(problem, None) };
        let (object, field) = in_manifest(problem, loaded);
        let view = ProblemView::new(problem, loaded.origins.of(&object)).within(path);
        let line = lines.line(&loaded.origins, &object, field);
        ProblemView { line: line.or(view.line), ..view }
    }
}

/// The object and field as they are written: what concerns the template of a MultiClusterService is in its Service.
fn in_manifest<'a>(problem: &'a Problem, loaded: &Loaded) -> (ObjectRef, &'a str) {
    let template = ObjectRef { kind: "Service", ..problem.object.clone() };
    match problem.field.strip_prefix("Service.") {
        Some(field) if loaded.origins.of(&template).is_some() => (template, field),
        _ => (problem.object.clone(), &problem.field),
    }
}

const OK: u16 = 200;
const NOT_FOUND: u16 = 404;

/// Asks a running gateway, by default the one of the configuration; tells what is wrong if it does not answer as it should.
fn ask<T: DeserializeOwned>(admin: Option<&AdminUrl>, config: &Config, path: &str) -> Result<(u16, T), Exit> {
    let authority = admin.map(|admin| admin.authority.clone());
    let authority = authority.unwrap_or_else(|| config.admin_listen.to_string());
    answered(&authority, path).map_err(|error| {
        eprintln!("sheave: the gateway at http://{authority} does not answer: {error}");
        Exit::Unavailable
    })
}

/// The status, and what the body says. A gateway says that something does not exist in the same form as that it does.
fn answered<T: DeserializeOwned>(authority: &str, path: &str) -> Result<(u16, T), String> {
    let reply = admin_client::get(authority, path)?;
    match serde_json::from_str(&reply.body) {
        Ok(view) if matches!(reply.status, OK | NOT_FOUND) => Ok((reply.status, view)),
        Err(error) if reply.status == OK => Err(format!("this is no answer to {path}: {error}")),
        _ => Err(reply.refusal()),
    }
}

#[cfg(test)]
mod tests;
