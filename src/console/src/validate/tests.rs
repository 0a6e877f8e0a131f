//! Tests of what `validate` and `routes` report for folders of manifests.

mod gateways;

use std::fs;

use std::path::Path;

use sheave_dataplane::SmallSetting;
use tempfile::TempDir;

use super::*;
use crate::arguments::{Folders, TextFormat};
use crate::views::problem::LISTED;
use crate::views::routes::RoutesView;

fn config() -> Options {
    Options::of_node("gw-1")
}

/// A folder with this text in `web.yaml`.
fn folder(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("web.yaml"), text).unwrap();
    folder
}

fn view(folder: &TempDir) -> RoutesView {
    let folders = Folders { local: Some(folder.path()), karmada: None };
    ManifestProjection::new(Manifests::load(folders), &config()).routes(&config())
}

/// Result of `sheave validate` for a folder.
fn validation(folder: &TempDir) -> ValidationView {
    let folders = Folders { local: Some(folder.path()), karmada: None };
    ValidationView::new(Vec::new(), Some((Manifests::load(folders).count(), view(folder))), None)
}

/// Output of `sheave validate` for a folder.
fn validated(folder: &TempDir) -> String {
    validation(folder).to_text()
}

fn load_balancer(name: &str, class: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  type: LoadBalancer\n\
         {class}  ports: [{{name: http, port: 80}}]\nstatus: {{loadBalancer: {{ingress: [{{ip: 203.0.113.10}}]}}}}\n"
    )
}

#[test]
fn a_small_setting_of_this_machine_is_a_problem_only_where_it_was_asked_for() {
    let small = SmallSetting {
        sysctl: "net.core.somaxconn",
        value: "128".to_owned(),
        effect: "bursts wait".to_owned(),
        advice: "set it to 4096".to_owned(),
    };
    let view = |node| ValidationView::new(Vec::new(), None, node);
    let text = view(Some(vec![small])).to_text();
    assert_eq!(text, "node: net.core.somaxconn is 128: bursts wait; set it to 4096\n1 problem\n");
    assert!(view(Some(Vec::new())).to_text().contains("and the settings of this machine"));
    assert_eq!(serde_json::to_value(view(None)).unwrap()["node"], serde_json::Value::Null);
}

#[test]
fn load_balancers_that_are_not_served_are_notes_of_validate() {
    let folder =
        folder(&(load_balancer("web", "") + &load_balancer("api", "  loadBalancerClass: sheave.dev/L4\n")));
    let report = validated(&folder);
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), 3, "{report}");
    assert!(lines[0].starts_with("note: ") && lines[0].contains("Service shop/api: NotServed: "), "{report}");
    assert!(lines[0].contains("\"sheave.dev/L4\" is not \"sheave.dev/l4\""), "{report}");
    assert!(
        lines[1].contains("Service shop/web: NotServed: ") && lines[1].contains("handleUnclassified"),
        "{report}"
    );
    assert_eq!(lines[2], "0 problems, 2 notes");
}

#[test]
fn each_problem_begins_with_the_file_and_the_line_of_its_field() {
    let text = "# first\n".to_owned()
        + &load_balancer("web", "  loadBalancerClass: sheave.dev/l4\n  sessionAffinity: Often\n")
        + &load_balancer("api", "  loadBalancerClass: sheave.dev/L4\n")
        + "---\nkind: AddressPool\napiVersion: v1\nmetadata: {name: p}\n";
    let folder = folder(&text);
    let file = folder.path().join("web.yaml");
    let report = validated(&folder);
    for place in [
        format!("{}:9: Service shop/web: InvalidValue: spec.sessionAffinity: ", file.display()),
        format!("{}:18: Service shop/api: NotServed: spec.loadBalancerClass: ", file.display()),
        format!(
            "{}:23: AddressPool p: InvalidManifest: apiVersion: \"v1\" is not supported; an AddressPool has",
            file.display()
        ),
    ] {
        assert!(report.contains(&place), "{place}\n{report}");
    }
    let file = RoutesView { ..view(&folder) }.problems[0].file.clone();
    assert_eq!(file.as_deref(), Some("web.yaml"), "as before in JSON");
    let nowhere = Folders { local: Some(Path::new("/nowhere/at/all")), karmada: None };
    let view = ManifestProjection::new(Manifests::load(nowhere), &config()).routes(&config());
    let told = view.problems[0].to_string();
    assert!(told.starts_with("/nowhere/at/all: InvalidManifest: cannot be listed: "), "{told}");
}

#[test]
fn of_thousands_the_first_are_named_and_the_others_counted() {
    let text: String = (0..2_000)
        .map(|number| load_balancer(&format!("web-{number:04}"), "  loadBalancerClass: metallb.io/lb\n"))
        .collect();
    let folder = folder(&text);
    let report = validated(&folder);
    assert_eq!(report.lines().count(), LISTED + 2, "{report}");
    assert!(report.contains("note: 1980 more objects are not served; "), "{report}");
    assert!(report.ends_with("0 problems, 21 notes\n"), "{report}");
    let routes = view(&folder);
    assert_eq!(routes.not_served.len(), 2_000);
    let table = routes.to_text();
    assert!(table.contains("\nNot served: 2000 objects\n  /"), "{table}");
    assert!(table.contains("\n  and 1980 more; -o json lists all\n"), "{table}");
}

#[test]
fn a_folder_without_anything_of_use_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let nothing = format!("nothing was found in {}: manifests are the .yaml, ", empty.path().display());
    let report = validated(&empty);
    assert!(
        report.starts_with(&format!("note: {nothing}")) && report.ends_with("\n0 problems, 1 note\n"),
        "{report}"
    );
    let table = view(&empty).to_text();
    assert!(table.contains(&format!("0 frontends.\n\nNotes\n  {nothing}")), "{table}");
    let others = folder("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n");
    let report = validated(&others);
    assert!(
        report.contains("nothing of a kind that Sheave reads was found in ") && report.contains(": 1 object"),
        "{report}"
    );
    let no_service = folder("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n");
    assert_eq!(
        validated(&no_service),
        "note: no Service of type LoadBalancer was found\n0 problems, 1 note\n"
    );
}

#[test]
fn a_folder_in_which_all_is_served_has_no_problems_and_no_notes() {
    let folder = folder(&load_balancer("web", "  loadBalancerClass: sheave.dev/l4\n"));
    assert_eq!(validated(&folder), "no problems in 1 object\n");
    let nothing = ValidationView::default().to_text();
    assert!(nothing.starts_with("no problems in the configuration; no manifests were given"), "{nothing}");
    assert!(!view(&folder).to_text().contains("Not"), "{}", view(&folder).to_text());
}

#[test]
fn programs_get_all_that_people_get() {
    let text = load_balancer("web", "  loadBalancerClass: sheave.dev/l4\n  sessionAffinity: Often\n")
        + &load_balancer("api", "  loadBalancerClass: sheave.dev/L4\n");
    let mistake = ConfigMistake {
        path: "timeouts.idle".to_owned(),
        message: "\"x\" is no time".to_owned(),
        hint: None,
    };
    let folder = folder(&text);
    let found = ValidationView { config: vec![mistake], ..validation(&folder) };
    let json: serde_json::Value =
        serde_json::from_str(&render(&found, String::new, TextFormat::Json)).unwrap();
    assert_eq!(json["objects"], 2);
    assert_eq!(json["config"], serde_json::json!([{"key": "timeouts.idle", "message": "\"x\" is no time"}]));
    let problem = &json["problems"][0];
    assert_eq!(problem["object"], "Service shop/web");
    assert_eq!(
        (&problem["reason"], &problem["field"]),
        (&"InvalidValue".into(), &"spec.sessionAffinity".into())
    );
    assert_eq!((&problem["file"], &problem["line"]), (&"web.yaml".into(), &8.into()));
    assert_eq!(json["notServed"][0]["object"], "Service shop/api");
    assert_eq!(json["notes"], serde_json::json!([]));
    assert_eq!(serde_json::to_value(ValidationView::default()).unwrap()["objects"], serde_json::Value::Null);
}
