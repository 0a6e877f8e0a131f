//! Architecture tests: imports between the files of a crate are acyclic, type names are unique in a crate, and each file
//! describes what it owns.

use std::collections::{BTreeMap, BTreeSet};

use crate::known::{CIRCLES, ROOM_CIRCLES, TWINS};
use crate::sources::{Crate, ModulePath, crates, regex};

#[test]
fn every_file_says_what_it_owns() {
    let silent: Vec<String> = each_crate(|of| {
        of.files.values().filter(|file| !file.text.starts_with("//!")).map(|file| file.path.clone()).collect()
    });
    assert_known(&silent, &[]);
}

#[test]
fn a_type_name_stands_once_in_a_crate() {
    let definition = regex(r"(?m)^(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union|type) (\w+)");
    let twins: Vec<String> = each_crate(|of| {
        let mut count = BTreeMap::<String, usize>::new();
        for file in of.files.values() {
            for found in definition.captures_iter(&file.text) {
                *count.entry(found[1].to_owned()).or_default() += 1;
            }
        }
        count.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect()
    });
    assert_known(&twins, TWINS);
}

#[test]
fn imports_between_files_make_no_circle() {
    let circles: Vec<String> = each_crate(circles);
    assert_known(&circles, CIRCLES);
}

/// A room is a file or folder directly below `src`, without the crate's root.
#[test]
fn imports_between_rooms_make_no_circle() {
    let circles: Vec<String> = each_crate(room_circles);
    assert_known(&circles, ROOM_CIRCLES);
}

/// Checks that findings equal the known ones: no new ones, and none on the list that are gone.
fn assert_known(found: &[String], known: &[&str]) {
    let new: Vec<&String> = found.iter().filter(|found| !known.contains(&found.as_str())).collect();
    let gone: Vec<&&str> = known.iter().filter(|known| !found.contains(&(**known).to_owned())).collect();
    assert!(new.is_empty() && gone.is_empty(), "new: {new:#?}\ngone, to be taken out of known.rs: {gone:#?}");
}

/// Findings of `find` in each crate, prefixed with the crate's folder.
fn each_crate(find: impl Fn(&Crate) -> Vec<String>) -> Vec<String> {
    let crates = crates();
    assert!(crates.len() >= 3, "{} crates", crates.len());
    let named =
        |of: &Crate| find(of).into_iter().map(|found| format!("{}: {found}", of.name)).collect::<Vec<_>>();
    crates.iter().flat_map(named).collect()
}

/// Groups of files that import each other, directly or indirectly. A file's ancestors and descendants do not count as a cycle.
fn circles(of: &Crate) -> Vec<String> {
    let imports: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> =
        of.files.iter().map(|(module, file)| (module, imports(of, module, &file.text))).collect();
    groups(&imports)
        .into_iter()
        .map(|group| joined(group.iter().map(|module| of.files[*module].path.as_str())))
        .collect()
}

/// Groups of rooms whose files import each other.
fn room_circles(of: &Crate) -> Vec<String> {
    let mut imports = BTreeMap::<&String, BTreeSet<&String>>::new();
    for (module, file) in &of.files {
        let Some(room) = module.first() else { continue };
        let others = self::imports(of, module, &file.text).into_iter().filter_map(|other| other.first());
        imports.entry(room).or_default().extend(others.filter(|other| *other != room));
    }
    groups(&imports).into_iter().map(|group| joined(group.into_iter().map(String::as_str))).collect()
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Groups that reach each other, each once.
fn groups<'a, T: Ord>(imports: &BTreeMap<&'a T, BTreeSet<&'a T>>) -> BTreeSet<Vec<&'a T>> {
    let reached: BTreeMap<&T, BTreeSet<&T>> =
        imports.keys().map(|from| (*from, reach(imports, from))).collect();
    let group = |(from, reach): (&&'a T, &BTreeSet<&'a T>)| {
        let back: Vec<&T> = reach.iter().copied().filter(|other| reached[other].contains(from)).collect();
        (!back.is_empty()).then_some(back)
    };
    reached.iter().filter_map(group).collect()
}

fn reach<'a, T: Ord>(imports: &BTreeMap<&'a T, BTreeSet<&'a T>>, from: &T) -> BTreeSet<&'a T> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&T> = imports[from].iter().copied().collect();
    while let Some(other) = next.pop() {
        if reached.insert(other) {
            next.extend(&imports[other]);
        }
    }
    reached
}

/// Other files of the crate that `text`, the text of `module`, imports from.
fn imports<'a>(of: &'a Crate, module: &ModulePath, text: &str) -> BTreeSet<&'a ModulePath> {
    let text = regex(r"//[^\n]*").replace_all(text, "");
    let mut paths = Vec::new();
    for found in regex(r"\b(?:use|in)\s+((?:crate|super|self)\b[^;]*);").captures_iter(&text) {
        expand(&found[1], "", &mut paths);
    }
    let inline = regex(r"\b(?:crate|super)(?:::[a-z_]+)+");
    paths.extend(inline.find_iter(&text).map(|found| found.as_str().to_owned()));
    paths.iter().filter_map(|path| resolve(of, module, path)).collect()
}

/// Adds every path of a use tree, such as `a::{b, c::d as e}`.
fn expand(tree: &str, prefix: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        return paths.push(format!("{prefix}{}", tree.split_whitespace().next().unwrap_or_default()));
    };
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in rest.char_indices() {
        match letter {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                expand(&rest[start..at], &prefix, paths);
                start = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// File that contains the item at `path`, as named in `module`; `None` for the module itself, its ancestors and descendants.
fn resolve<'a>(of: &'a Crate, module: &ModulePath, path: &str) -> Option<&'a ModulePath> {
    let mut full = module.clone();
    for part in path.split("::").filter(|part| !part.is_empty()) {
        match part {
            "crate" => full.clear(),
            "self" => {}
            "super" => drop(full.pop()),
            item => full.push(item.to_owned()),
        }
    }
    while !of.files.contains_key(&full) {
        full.pop()?;
    }
    let (found, _) = of.files.get_key_value(&full)?;
    (!found.starts_with(module) && !module.starts_with(found)).then_some(found)
}
