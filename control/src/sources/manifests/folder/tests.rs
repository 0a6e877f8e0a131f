//! Real folders: which files are read, when changes are accepted, and what stays in effect after a mistake.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use tempfile::TempDir;

use super::super::known_file::{REPLACED, SETTLE};
use super::*;
use crate::api::problem::ObjectRef;
use crate::api::store::ServiceKey;

const BAD: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: http}]}\n";

fn service(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n")
}

/// A folder with one file.
fn folder(name: &str, text: &str) -> (TempDir, Folder) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), text).unwrap();
    let folder = Folder::new(dir.path().to_owned(), ControlPlane::Local);
    (dir, folder)
}

fn services(folder: &Folder) -> Vec<String> {
    folder.loaded().objects.services.keys().map(|key| key.name.to_string()).collect()
}

fn problems(folder: &Folder) -> Vec<String> {
    folder.loaded().problems.iter().map(ToString::to_string).collect()
}

#[test]
fn files_count_by_their_ending_and_hidden_ones_and_folders_do_not() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    for (name, service_name) in [
        ("b.yml", "b"),
        (".hidden.yaml", "x"),
        (".#a.yaml", "x"),
        ("a.yaml~", "x"),
        ("a.yaml.swp", "x"),
        ("README", "x"),
    ] {
        fs::write(dir.path().join(name), service(service_name)).unwrap();
    }
    fs::write(dir.path().join("c.json"), r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"}}"#)
        .unwrap();
    fs::create_dir(dir.path().join("d.yaml")).unwrap();
    fs::write(dir.path().join("d.yaml/e.yaml"), service("x")).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a", "b", "c"]);
    assert_eq!(problems(&folder), [""; 0]);
}

#[test]
fn a_single_file_is_a_folder_of_one() {
    let (dir, _) = folder("a.yaml", &service("a"));
    fs::write(dir.path().join("b.yaml"), service("b")).unwrap();
    let mut folder = Folder::new(dir.path().join("b.yaml"), ControlPlane::Local);
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["b"]);
}

#[test]
fn a_scan_without_changes_says_so_and_objects_keep_their_identity() {
    let (dir, mut folder) = folder("a.yaml", &(service("a") + &service("b")));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let before = folder.loaded().objects;
    assert_eq!(folder.scan(), FileScan::UNCHANGED);
    fs::write(dir.path().join("a.yaml"), service("a") + &service("c")).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let after = folder.loaded().objects;
    let key = ServiceKey::new("default", "a");
    assert!(Arc::ptr_eq(&before.services[&key], &after.services[&key]));
    assert_eq!(services(&folder), ["a", "c"]);
    fs::remove_file(dir.path().join("a.yaml")).unwrap();
    assert_eq!(folder.scan(), FileScan::UNSETTLED);
    assert_eq!(folder.scan_at(Instant::now() + REPLACED), FileScan::CHANGED);
    assert_eq!(services(&folder), [""; 0]);
}

#[test]
fn a_rewrite_of_equal_length_right_after_reading_is_seen() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    for round in 0..50 {
        let name = if round % 2 == 0 { "b" } else { "a" };
        assert_eq!(folder.scan(), FileScan::CHANGED);
        fs::write(dir.path().join("a.yaml"), service(name)).unwrap();
        assert_eq!(folder.scan(), FileScan::CHANGED);
        assert_eq!(services(&folder), [name]);
        fs::write(dir.path().join("a.yaml"), service("c")).unwrap();
    }
}

#[test]
fn a_file_that_breaks_keeps_its_last_good_state_and_the_other_files_go_on() {
    let (dir, mut folder) = folder("a.yaml", &(service("a") + &service("b")));
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("b.yaml", &service("c"));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    for broken in [format!("{BAD}{}", service("new")), "a: b: c\n".to_owned()] {
        write("a.yaml", &broken);
        write("b.yaml", &service("d"));
        assert!(folder.scan().unsettled);
        assert_eq!(folder.scan_at(Instant::now() + SETTLE), FileScan::CHANGED);
        assert_eq!(services(&folder), ["a", "b", "d"]);
        assert_eq!(problems(&folder).len(), 1);
        assert!(problems(&folder)[0].contains("last good state of the file stays in effect"));
        write("b.yaml", &service("c"));
    }
    write("a.yaml", &(service("e") + &service("f")));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["c", "e", "f"]);
    assert_eq!(problems(&folder), [""; 0]);
}

#[test]
fn a_file_that_was_never_good_gives_what_can_be_taken_of_it() {
    let (_dir, mut folder) = folder("a.yaml", &format!("{BAD}{}", service("a")));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a"]);
    assert_eq!(
        problems(&folder),
        ["a.yaml:4: Service default/bad: InvalidManifest: spec.ports[0].port: \
          invalid type: string \"http\", expected i32"]
    );
}

#[test]
fn a_file_that_is_not_text_keeps_its_last_good_state() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    fs::write(dir.path().join("a.yaml"), b"a: \xff\n").unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a"]);
    assert_eq!(problems(&folder), ["a.yaml: InvalidManifest: the file cannot be read: byte 3 is not UTF-8"]);
    assert_eq!(folder.scan(), FileScan::UNCHANGED);
    fs::write(dir.path().join("a.yaml"), service("a")).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(problems(&folder), [""; 0]);
}

#[test]
fn a_file_that_may_not_be_read_keeps_its_last_good_state() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    // A link to itself fails even for root, whom no permission excludes.
    let path = dir.path().join("a.yaml");
    fs::remove_file(&path).unwrap();
    symlink(&path, &path).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a"]);
    assert!(problems(&folder)[0].contains("the file cannot be read"));
}

#[test]
fn a_folder_that_cannot_be_listed_keeps_what_it_held() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let away = dir.path().with_extension("away");
    fs::rename(dir.path(), &away).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(folder.scan(), FileScan::UNCHANGED);
    assert_eq!(services(&folder), ["a"]);
    assert!(problems(&folder)[0].contains("what it held before stays in effect"));
    fs::create_dir(dir.path()).unwrap();
    assert_eq!(folder.scan(), FileScan { changed: true, unsettled: true });
    assert_eq!(folder.scan_at(Instant::now() + REPLACED), FileScan::CHANGED);
    assert_eq!(services(&folder), [""; 0]);
    fs::remove_dir_all(away).unwrap();
}

#[test]
fn a_folder_that_was_never_listed_is_told_from_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut folder = Folder::new(dir.path().join("later"), ControlPlane::Local);
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert!(!folder.loaded().listed);
    fs::create_dir(dir.path().join("later")).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert!(folder.loaded().listed && folder.loaded().problems.is_empty());
    fs::remove_dir(dir.path().join("later")).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert!(folder.loaded().listed);
}

#[test]
fn of_two_definitions_the_first_by_file_and_document_counts() {
    let (dir, mut folder) = folder("b.yaml", &service("a"));
    let first =
        service("b") + "---\napiVersion: v1\nkind: Service\nmetadata: {name: a, labels: {from: first}}\n";
    fs::write(dir.path().join("a.yaml"), first).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let loaded = folder.loaded();
    assert!(loaded.objects.services[&ServiceKey::new("default", "a")].metadata.labels.is_some());
    assert_eq!(
        problems(&folder),
        ["b.yaml:1: Service default/a: DuplicateObject: \
          is defined in a.yaml:5 and again in b.yaml:1; the first one counts"]
    );
    let reference = ObjectRef { kind: "Service", namespace: "default".into(), name: "a".into() };
    assert_eq!(loaded.origins.of(&reference).unwrap().to_string(), "a.yaml:5");
}

#[test]
fn every_kind_goes_where_the_projection_looks_for_it() {
    let (_dir, mut folder) = folder(
        "a.yaml",
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, namespace: shop, \
          labels: {kubernetes.io/service-name: web}}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n\
         {apiVersion: sheave.dev/v1alpha1, kind: AddressPool, metadata: {name: p}, spec: {}}\n---\n\
         {apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n\
         {apiVersion: v1, kind: Pod, metadata: {name: x}}\n",
    );
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let loaded = folder.loaded();
    assert!(loaded.objects.slices[&ServiceKey::new("shop", "web")].contains_key("s"));
    assert!(loaded.objects.nodes.contains_key("n1") && loaded.objects.pools.contains_key("p"));
    assert!(loaded.objects.namespaces.contains_key("shop"));
    assert_eq!((loaded.problems, loaded.passed_over), (vec![], 1));
}

#[test]
fn fifos_are_not_waited_for() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("b.yaml")).status().unwrap();
    assert!(made.success());
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a"]);
}

#[test]
fn a_change_of_permissions_alone_reads_again_but_changes_nothing() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    fs::set_permissions(dir.path().join("a.yaml"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(folder.scan(), FileScan::UNCHANGED);
}

#[test]
fn a_file_that_breaks_further_keeps_what_it_gave() {
    let (dir, mut folder) = folder("a.yaml", &format!("{BAD}{}", service("a")));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let path = dir.path().join("a.yaml");
    fs::write(&path, format!("{BAD}{}---\n{BAD}", service("a") + &service("b"))).unwrap();
    assert_eq!(folder.scan(), FileScan::UNSETTLED);
    assert_eq!(folder.scan_at(Instant::now() + SETTLE), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a", "b"]);
    fs::write(&path, format!("{BAD}---\na: b: c\n{}", service("b"))).unwrap();
    assert_eq!(folder.scan(), FileScan::UNSETTLED);
    assert_eq!(folder.scan_at(Instant::now() + SETTLE), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a", "b"]);
    assert!(problems(&folder)[0].contains("last good state of the file stays in effect"));
}

#[test]
fn whatever_beginning_of_a_file_is_seen_while_it_is_written_in_place_nothing_is_lost() {
    let text = service("a") + &service("b") + &service("c");
    let (dir, mut folder) = folder("a.yaml", &text);
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let before = folder.loaded().objects;
    for end in 0..text.len() {
        fs::write(dir.path().join("a.yaml"), &text[..end]).unwrap();
        assert_eq!(folder.scan(), FileScan::UNSETTLED, "{end}");
    }
    fs::write(dir.path().join("a.yaml"), &text).unwrap();
    assert_eq!(folder.scan(), FileScan::UNCHANGED);
    let after = folder.loaded().objects;
    assert!(before.services.iter().all(|(key, service)| Arc::ptr_eq(service, &after.services[key])));
    assert_eq!(problems(&folder), [""; 0]);
}

#[test]
fn a_file_emptied_in_place_is_believed_once_it_stayed_so() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    let started = Instant::now();
    assert_eq!(folder.scan_at(started), FileScan::CHANGED);
    let path = dir.path().join("a.yaml");
    fs::write(&path, "").unwrap();
    assert_eq!(folder.scan_at(started), FileScan::UNSETTLED);
    fs::write(&path, "# soon\n").unwrap();
    let written = started + SETTLE - Duration::from_millis(1);
    assert_eq!(folder.scan_at(written), FileScan::UNSETTLED);
    assert_eq!(folder.scan_at(written + SETTLE - Duration::from_millis(1)), FileScan::UNSETTLED);
    assert_eq!(services(&folder), ["a"]);
    assert_eq!(folder.scan_at(written + SETTLE), FileScan::CHANGED);
    assert_eq!(services(&folder), [""; 0]);
    assert_eq!(folder.scan_at(written + SETTLE), FileScan::UNCHANGED);
}

#[test]
fn a_shorter_file_is_waited_for_and_one_that_replaces_another_takes_effect_soon() {
    let (dir, mut folder) = folder("a.yaml", &(service("longer") + &service("b") + &service("c")));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let path = dir.path().join("a.yaml");
    fs::write(&path, service("a") + &service("b") + &service("c")).unwrap();
    assert_eq!(folder.scan(), FileScan::UNSETTLED);
    assert_eq!(folder.scan_at(Instant::now() + SETTLE), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a", "b", "c"]);
    fs::write(dir.path().join("new"), service("b")).unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    assert_eq!(folder.scan(), FileScan::UNSETTLED);
    assert_eq!(folder.scan_at(Instant::now() + REPLACED), FileScan::CHANGED);
    assert_eq!(services(&folder), ["b"]);
}

/// Like `git checkout` and `tar`.
#[test]
fn whatever_is_seen_while_a_file_is_deleted_and_written_anew_nothing_is_lost() {
    let text = service("a") + &service("b");
    let (dir, mut folder) = folder("a.yaml", &text);
    assert_eq!(folder.scan(), FileScan::CHANGED);
    let path = dir.path().join("a.yaml");
    fs::remove_file(&path).unwrap();
    assert_eq!(folder.scan(), FileScan::UNSETTLED);
    for end in [0, 20, service("a").len()] {
        fs::write(&path, &text[..end]).unwrap();
        assert_eq!(folder.scan(), FileScan::UNSETTLED, "{end}");
        assert_eq!(services(&folder), ["a", "b"]);
    }
    fs::write(&path, text + &service("c")).unwrap();
    assert_eq!(folder.scan(), FileScan::CHANGED);
    assert_eq!(services(&folder), ["a", "b", "c"]);
    assert_eq!(folder.scan_at(Instant::now() + SETTLE), FileScan::UNCHANGED);
}

#[test]
fn a_file_that_gets_another_name_is_not_two_for_a_moment() {
    let (dir, mut folder) = folder("a.yaml", &service("a"));
    assert_eq!(folder.scan(), FileScan::CHANGED);
    fs::rename(dir.path().join("a.yaml"), dir.path().join("b.yaml")).unwrap();
    assert!(folder.scan().changed);
    assert_eq!((services(&folder), problems(&folder)), (vec!["a".to_owned()], vec![]));
    assert_eq!(folder.scan_at(Instant::now() + REPLACED), FileScan::CHANGED);
    assert_eq!((services(&folder), problems(&folder)), (vec!["a".to_owned()], vec![]));
}

#[test]
fn of_a_karmada_control_plane_services_are_templates_and_slices_imported() {
    let dir = tempfile::tempdir().unwrap();
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]}\n---\n\
                apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nendpoints: []\n\
                metadata: {name: imported-member1-web-1, namespace: shop, labels: {kubernetes.io/service-name: derived-web}}\n";
    fs::write(dir.path().join("fleet.yaml"), text).unwrap();
    let loaded = super::super::load_of(ControlPlane::Karmada, dir.path());
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let web = crate::api::store::ServiceKey::multi_cluster("shop", "web");
    assert!(loaded.objects.services.is_empty() && loaded.objects.slices.is_empty());
    assert!(
        loaded.objects.fleet.templates.contains_key(&web) && loaded.objects.fleet.imported.contains_key(&web)
    );
}
