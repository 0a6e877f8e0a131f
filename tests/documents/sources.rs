//! Rust files of the workspace's crates, except those that are only compiled for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use regex::Regex;

/// Module path of a file within its crate; empty for the crate's root.
pub(crate) type ModulePath = Vec<String>;

/// Crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    /// Folder below that of the repository; `sheave` for the root package.
    pub(crate) name: String,
    pub(crate) files: BTreeMap<ModulePath, SourceFile>,
}

/// File of the program.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Path below the crate's `src`.
    pub(crate) path: String,
    /// Text without the inline test module at its end.
    pub(crate) text: String,
}

/// Crates of the workspace, except those below `tests`.
pub(crate) fn crates() -> Vec<Crate> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = Vec::new();
    collect(root, &mut folders, &|path| path.is_dir() && !is_foreign(root, path));
    folders.push(root.to_owned());
    folders.retain(|folder| folder.join("Cargo.toml").is_file() && folder.join("src").is_dir());
    folders.sort();
    folders.iter().map(|folder| read(root, folder)).collect()
}

/// Whether the folder cannot contain crates of the workspace: build products, hidden files, tests.
fn is_foreign(root: &Path, path: &Path) -> bool {
    let name = below(root, path);
    name.starts_with('.') || ["target", "tests", "benches"].iter().any(|part| name == *part)
}

fn read(root: &Path, folder: &Path) -> Crate {
    let src = folder.join("src");
    let mut paths = Vec::new();
    // A folder with a manifest is a crate of its own.
    collect(&src, &mut paths, &|path| !path.join("Cargo.toml").is_file());
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let inline_tests = regex(r"(?m)^#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*mod \w+ \{");
    let test_files = regex(r"(?m)^#\[cfg\(test\)\]\n(?:#\[[^\n]*\n)*(?:pub(?:\([^)]*\))? )?mod (\w+);");
    let mut files = BTreeMap::new();
    let mut for_tests = BTreeSet::new();
    for path in paths {
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let module = module(&below(&src, &path));
        for_tests.extend(
            test_files.captures_iter(&text).map(|found| [module.clone(), vec![found[1].to_owned()]].concat()),
        );
        let end = inline_tests.find(&text).map_or(text.len(), |found| found.start());
        let text = text[..end].to_owned();
        files.insert(module, SourceFile { path: below(&src, &path), text });
    }
    files.retain(|module, _| !(0..=module.len()).any(|length| for_tests.contains(&module[..length])));
    let name = if folder == root { "sheave".to_owned() } else { below(root, folder) };
    Crate { name, files }
}

/// Collects wanted entries below `folder`, recursively.
fn collect(folder: &Path, found: &mut Vec<PathBuf>, is_wanted: &dyn Fn(&Path) -> bool) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.unwrap().path()).filter(|path| is_wanted(path)) {
        if path.is_dir() {
            collect(&path, found, is_wanted);
        }
        found.push(path);
    }
}

fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()
}

fn module(path: &str) -> ModulePath {
    let mut parts: ModulePath = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

pub(crate) fn regex(pattern: &str) -> Regex {
    /// Without optimisation a pattern takes longer to compile than to be looked for in a file.
    static KNOWN: Mutex<BTreeMap<String, Regex>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap();
    known.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).unwrap()).clone()
}
