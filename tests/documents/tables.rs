//! Generated tables of the documents, each between `<!-- generated: NAME -->` and `<!-- end -->`. Annotations, conditions and
//! Problems are the constants of `control` with their doc comments; metrics are those that processes export.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::document::{expect, read};
use crate::program::Server;
use crate::sources::{crates, regex};

/// Kubeconfig of an API server that does not exist.
const NOWHERE: &str = "{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: x, cluster: {server: 'http://127.0.0.1:9'}}], \
                       users: [{name: x, user: {}}], contexts: [{name: x, context: {cluster: x, user: x}}]}";
#[test]
fn annotations_are_listed() {
    let rows = constants("sheave.dev/balance", r"sheave\.dev/[a-z-]+");
    check("control/README.md", "annotations", &table("annotation | meaning", &rows));
}

#[test]
fn conditions_are_listed() {
    let rows = constants("sheave.dev/Programmed", r"sheave\.dev/[A-Z][A-Za-z]+");
    check("control/README.md", "conditions", &table("condition | meaning", &rows));
}

#[test]
fn problems_are_listed() {
    let rows = constants("InvalidManifest", "[A-Z][A-Za-z]+");
    check("control/README.md", "problems", &table("reason | meaning", &rows));
}

#[test]
fn metrics_are_listed() {
    let declared = declared_families();
    let rows = declared.iter().filter(|(name, _)| !name.starts_with(TOTAL)).map(|(name, family)| {
        let labels = family.labels.join(", ");
        vec![format!("`{name}`"), family.kind.clone(), labels, family.help.clone()]
    });
    let table = table("metric | type | labels | meaning", &rows.collect::<Vec<_>>());
    check("src/console/src/http/README.md", "metrics", &table);
}

#[test]
fn processes_have_the_metrics_that_are_declared_and_the_series_their_labels() {
    let declared = declared_families();
    let gateway = Server::gateway().get("/metrics");
    let folder = tempfile::TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, NOWHERE).unwrap();
    let settings = format!("kubeconfig: {}\n", kubeconfig.display());
    let controller = Server::start(&["controller"], &settings, ("/livez", 200)).get("/metrics");
    let text = format!("{gateway}{controller}");
    let found = families(&text);
    // A gateway with manifests has no API server and no snapshot.
    let absent = declared.keys().filter(|name| !found.contains_key(*name));
    let of_api_servers = ["sheave_network_programming_seconds", "sheave_snapshot_failing"];
    assert_eq!(absent.collect::<Vec<_>>(), of_api_servers);
    for (name, family) in &found {
        let total = |name: &str| declared.get(&name.replacen(TOTAL, "sheave_", 1));
        let wanted = declared.get(name).or_else(|| total(name)).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(family.kind, wanted.kind, "{name}");
        assert!(family.help == wanted.help || !declared.contains_key(name), "{name}: {}", family.help);
        let own = declared.contains_key(name);
        let of_frontend = ["frontend", "service"];
        let expected = wanted.labels.iter().filter(|label| own || !of_frontend.contains(&label.as_str()));
        // Neither process has a Karmada control plane.
        let expected: BTreeSet<_> = expected.filter(|label| *label != "source").cloned().collect();
        for labels in &family.series {
            assert_eq!(*labels, expected, "{name}");
        }
    }
}

#[test]
fn alerts_are_listed() {
    let text = read("deploy/monitoring/rules.yaml");
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let groups =
        rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let of_alert = regex(r"\{\{ (?:\$labels\.)?\$?(\w+)[^}]*\}\}");
    let rows = groups.map(|rule| {
        let text = |value: &Value| value.as_str().unwrap_or("0m").to_owned();
        let summary = text(&rule["annotations"]["summary"]);
        let summary = of_alert.replace_all(&summary, "*$1*").into_owned();
        vec![
            format!("`{}`", text(&rule["alert"])),
            text(&rule["labels"]["severity"]),
            text(&rule["for"]),
            summary,
        ]
    });
    let table = table("alert | severity | after | summary", &rows.collect::<Vec<_>>());
    check("deploy/monitoring/README.md", "alerts", &table);
}

#[test]
fn changes_of_the_configuration_are_listed() {
    let sources = crates();
    let mut files = sources.iter().filter(|of| of.name == "sheave").flat_map(|of| of.files.values());
    let file = files.find(|file| file.path.ends_with("config/changes.rs")).expect("the table of keys");
    let row = regex(r#"(?m)((?:^ +/// [^\n]+\n)*)^ +((?:"[\w.]+"(?:, )?)+) => [\w.]+: (\w+), (\w+);"#);
    let rows = row.captures_iter(&file.text).map(|found| {
        let words = found[1].lines().flat_map(|line| line.trim_start_matches([' ', '/']).split_whitespace());
        let effect = |name: &str| if name == "Unused" { "-".to_owned() } else { name.to_lowercase() };
        let keys = found[2].replace('"', "`");
        vec![keys, effect(&found[3]), effect(&found[4]), words.collect::<Vec<_>>().join(" ")]
    });
    let table = table("key | gateway | controller | remarks", &rows.collect::<Vec<_>>());
    check("src/config/README.md", "changes", &table);
}

/// Prefix of totals over all frontends.
const TOTAL: &str = "sheave_gateway_";

/// Declaration of a metric family.
#[derive(Default)]
struct DeclaredFamily {
    kind: String,
    help: String,
    labels: Vec<String>,
}

/// Declarations in the code.
fn declared_families() -> BTreeMap<String, DeclaredFamily> {
    let sources = crates();
    let mut files = sources.iter().filter(|of| of.name == "src/console").flat_map(|of| of.files.values());
    let file = files.find(|file| file.path.ends_with("http/metrics/families.rs")).expect("the families");
    let row = regex(r#"(?m)^ +[A-Z_]+: (\w+) "(\w+)" \[([\w, ]*)\] = "(.*)";$"#);
    let declared = row.captures_iter(&file.text).map(|found| {
        let labels = found[3].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        (found[2].to_owned(), DeclaredFamily { kind: found[1].to_owned(), help: found[4].to_owned(), labels })
    });
    declared.collect()
}

/// Metric family in Prometheus text.
#[derive(Default)]
struct AnsweredFamily {
    kind: String,
    help: String,
    /// Label names of each series.
    series: Vec<BTreeSet<String>>,
}

fn families(text: &str) -> BTreeMap<String, AnsweredFamily> {
    let mut families = BTreeMap::<String, AnsweredFamily>::new();
    for found in regex(r"(?m)^# HELP (\w+) (.*)\n# TYPE \w+ (\w+)").captures_iter(text) {
        let family = families.entry(found[1].to_owned()).or_default();
        (family.help, family.kind) = (found[2].to_owned(), found[3].to_owned());
    }
    let label = regex(r#"(\w+)=""#);
    for found in regex(r"(?m)^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$").captures_iter(text) {
        let labels = found.get(2).map_or("", |it| it.as_str());
        let labels = label.captures_iter(labels).map(|label| label[1].to_owned());
        let labels = labels.filter(|label| label != "le").collect();
        families.entry(found[1].to_owned()).or_default().series.push(labels);
    }
    families
}

/// Constants whose values match, in the file that has the value `beside`, with their doc comments.
pub(crate) fn constants(beside: &str, value: &str) -> Vec<Vec<String>> {
    let (quoted, sources) = (format!("\"{beside}\""), crates());
    let mut files = sources.iter().filter(|of| of.name == "control").flat_map(|of| of.files.values());
    let file =
        files.find(|file| file.text.contains(&quoted)).unwrap_or_else(|| panic!("no file has {quoted}"));
    let declaration = regex(&format!(
        r#"((?:(?m:^) *///[^\n]*\n)+) *(?:pub(?:\([^)]*\))? )?const \w+: &str =\s+"({value})";"#
    ));
    let rows = declaration.captures_iter(&file.text).map(|found| {
        let words = found[1].lines().flat_map(|line| line.trim_start_matches([' ', '/']).split_whitespace());
        vec![format!("`{}`", &found[2]), words.collect::<Vec<_>>().join(" ")]
    });
    rows.collect()
}

pub(crate) fn table(heading: &str, rows: &[Vec<String>]) -> String {
    assert!(rows.len() >= 5, "{heading}: {} rows", rows.len());
    let rule = "|---".repeat(heading.split(" | ").count());
    let rows: String = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    format!("| {heading} |\n{rule}|\n{rows}")
}

/// Compares what is between the marks of `name` in the document.
pub(crate) fn check(path: &str, name: &str, table: &str) {
    expect(path, |text| {
        let (start, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
        let (before, rest) = text.split_once(&start).unwrap_or_else(|| panic!("{path} has no {start}"));
        let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{path} has no {end} after {start}"));
        format!("{before}{start}{table}{end}{after}")
    });
}
