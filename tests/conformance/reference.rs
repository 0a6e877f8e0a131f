//! Check of the reference of fields (`control/src/projection/fields.md`), which names for each field the cases of this
//! suite and the files of end-to-end tests that verify it. All of these must exist.

use std::collections::BTreeSet;
use std::path::Path;

const REFERENCE: &str = include_str!("../../control/src/projection/fields.md");
/// Minimum number of rows with tests; fewer means that they are not found.
const FEWEST: usize = 50;

/// Fields in the spec of a MultiClusterService, including those of older versions. Each has a row.
const OF_MULTI_CLUSTER_SERVICES: [&str; 8] = [
    "spec.types",
    "spec.ports[].name",
    "spec.ports[].port",
    "spec.providerClusters[].name",
    "spec.consumerClusters",
    "spec.range.clusterNames",
    "spec.serviceProvisionClusters",
    "spec.serviceConsumptionClusters",
];

/// Checks the last column of every row. The error lists names that do not exist.
pub(crate) fn check(cases: &BTreeSet<String>) -> Result<(), String> {
    let rows: Vec<&str> = REFERENCE.lines().filter(|line| line.starts_with("| `")).collect();
    if rows.len() < FEWEST {
        return Err(format!("{} rows", rows.len()));
    }
    let section = REFERENCE.split("\n# ").find(|section| section.starts_with("MultiClusterService\n"));
    let section = section.ok_or("nothing on MultiClusterServices")?;
    let missing = |field: &&str| !section.contains(&format!("`{field}`"));
    if let Some(field) = OF_MULTI_CLUSTER_SERVICES.iter().copied().find(missing) {
        return Err(format!("nothing on {field} of MultiClusterServices"));
    }
    let wrong: Vec<&str> = rows.into_iter().filter(|row| !holds(row, cases)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("names what is not there:\n{}", wrong.join("\n"))) }
}

fn holds(row: &str, cases: &BTreeSet<String>) -> bool {
    let Some(last) = row.trim_end_matches(" |").rsplit(" | ").next() else { return false };
    let mut names = last.split('`').skip(1).step_by(2).peekable();
    names.peek().is_some()
        && names.all(|name| match name.strip_prefix("e2e::") {
            Some(file) => Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/e2e/{file}.rs")).exists(),
            None => cases.contains(name),
        })
}
