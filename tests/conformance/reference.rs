//! Check of the reference of fields (`control/src/projection/fields.md`), which names for each field the cases of this
//! suite and the files of other tests that verify it. All of these must exist.

use std::collections::BTreeSet;
use std::path::Path;

const REFERENCE: &str = include_str!("../../control/src/projection/fields.md");
/// Minimum number of rows with tests; fewer means that they are not found.
const FEWEST: usize = 50;

/// Fields that no type of the program has completely, by the heading of their section: those of other versions of Karmada, and those of the
/// Gateway API and the Multi-Cluster Services API that are not read. Each has a row.
const MORE_FIELDS: [(&str, &[&str]); 5] = [
    (
        "MultiClusterService",
        &[
            "spec.types",
            "spec.ports[].name",
            "spec.ports[].port",
            "spec.providerClusters[].name",
            "spec.consumerClusters",
            "spec.range.clusterNames",
            "spec.serviceProvisionClusters",
            "spec.serviceConsumptionClusters",
        ],
    ),
    ("GatewayClass", &["spec.description"]),
    (
        "Gateway",
        &[
            "spec.listeners[].tls.certificateRefs",
            "spec.listeners[].tls.options",
            "spec.tls.backend",
            "spec.tls.frontend",
            "spec.defaultScope",
        ],
    ),
    (
        "TCPRoute, UDPRoute, TLSRoute",
        &[
            "spec.rules[].name",
            "spec.useDefaultGateways",
            "status.parents[].parentRef",
            "status.parents[].controllerName",
            "status.parents[].conditions",
        ],
    ),
    ("ServiceImport", &["spec.ips", "spec.internalTrafficPolicy", "spec.trafficDistribution", "status"]),
];

/// Checks the last column of every row. The error lists names that do not exist.
pub(crate) fn check(cases: &BTreeSet<String>) -> Result<(), String> {
    let rows: Vec<&str> = REFERENCE.lines().filter(|line| line.starts_with("| `")).collect();
    if rows.len() < FEWEST {
        return Err(format!("{} rows", rows.len()));
    }
    for (heading, fields) in MORE_FIELDS {
        let section =
            REFERENCE.split("\n# ").find_map(|section| section.strip_prefix(heading)?.strip_prefix('\n'));
        let section = section.ok_or_else(|| format!("nothing on {heading}"))?;
        if let Some(field) = fields.iter().find(|field| !section.contains(&format!("`{field}`"))) {
            return Err(format!("nothing on {field} of {heading}"));
        }
    }
    let wrong: Vec<&str> = rows.into_iter().filter(|row| !holds(row, cases)).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("names what is not there:\n{}", wrong.join("\n"))) }
}

fn holds(row: &str, cases: &BTreeSet<String>) -> bool {
    let Some(last) = row.trim_end_matches(" |").rsplit(" | ").next() else { return false };
    let mut names = last.split('`').skip(1).step_by(2).peekable();
    names.peek().is_some()
        && names.all(|name| match name.split_once("::") {
            Some((folder @ ("e2e" | "api"), file)) => {
                Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{folder}/{file}.rs")).exists()
            }
            _ => cases.contains(name),
        })
}
