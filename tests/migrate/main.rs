//! Tests of `sheave migrate` as data: each folder has the objects of another load balancer (`in.yaml`), the expected stdout (`out.yaml`)
//! and stderr (`left.txt`). The output must satisfy `sheave validate`, as far as possible without Nodes.
//!
//! `UPDATE_DOCS=1` updates the expected output.

#![cfg(test)]

mod cases {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};

    use snapbox::assert_data_eq;

    /// Minimum number of folders; fewer means that some got lost.
    const FEWEST: usize = 13;

    /// The GatewayClass that migrated Gateways name.
    const CLASS: &str = "deploy/gateway-api/class.yaml";

    fn folders() -> Vec<PathBuf> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/migrate");
        let folders = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path());
        let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
        folders.sort();
        assert!(folders.len() >= FEWEST, "{folders:?}");
        folders
    }

    /// The arguments for a folder of this name.
    fn arguments(folder: &Path) -> Vec<&'static str> {
        let mut arguments = vec!["migrate", "--manifests", "in.yaml"];
        if folder.ends_with("gateway-api") {
            arguments.extend(["--to", "gateway-api"]);
        }
        arguments
    }

    /// Runs the program in a folder, so that paths are short.
    fn sheave(folder: &Path, arguments: &[&str], stdin: Stdio) -> Output {
        let mut command = Command::new(sheave_test_support::program::path());
        command.current_dir(folder).args(arguments).stdin(stdin).output().unwrap()
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    /// Compares with a file, or updates it.
    fn expect(file: &Path, found: &str) {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(file, found).unwrap();
        }
        let expected = fs::read_to_string(file).unwrap_or_default();
        assert_data_eq!(found, snapbox::Data::text(expected).raw());
    }

    #[test]
    fn objects_of_others_become_ours() {
        for folder in folders() {
            let printed = sheave(&folder, &arguments(&folder), Stdio::null());
            let (out, left) = (text(printed.stdout), text(printed.stderr));
            expect(&folder.join("out.yaml"), &out);
            expect(&folder.join("left.txt"), &left);
            let wanted = if left.is_empty() { 0 } else { 1 };
            assert_eq!(printed.status.code(), Some(wanted), "{}", folder.display());
        }
    }

    #[test]
    fn what_is_printed_is_valid() {
        for folder in folders() {
            let config = tempfile::NamedTempFile::new().unwrap();
            let settings = "handleUnclassified: true\nacceptProxy: {allow: [0.0.0.0/0, '::/0']}\n";
            fs::write(config.path(), settings).unwrap();
            let config = config.path().to_str().unwrap();
            let output = tempfile::TempDir::new().unwrap();
            fs::copy(folder.join("out.yaml"), output.path().join("out.yaml")).unwrap();
            fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(CLASS), output.path().join("class.yaml"))
                .unwrap();
            let arguments = ["validate", "--config", config, "--manifests", ".", "--node", "gw-1"];
            let report = text(sheave(output.path(), &arguments, Stdio::null()).stdout);
            // The addresses of gateway nodes are unknown here.
            let wrong: Vec<&str> = report
                .lines()
                .filter(|line| line.contains(": Invalid") || line.contains(": Duplicate"))
                .filter(|line| !line.contains("no such annotation"))
                .collect();
            assert!(wrong.is_empty(), "{}: {wrong:#?}", folder.display());
            assert!(report.contains("problem"), "{}: {report}", folder.display());
        }
    }

    #[test]
    fn a_pipe_is_read_as_a_file_is() {
        let folder = &folders()[0];
        let file = fs::File::open(folder.join("in.yaml")).unwrap();
        let piped = sheave(folder, &["migrate", "--manifests", "-"], file.into());
        let read = sheave(folder, &["migrate", "--manifests", "in.yaml"], Stdio::null());
        let named = |bytes: Vec<u8>| text(bytes).replace("in.yaml:", "stdin:");
        assert_eq!(text(piped.stdout), named(read.stdout));
        assert_eq!(text(piped.stderr), named(read.stderr));
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_told_and_the_others_are_translated() {
        let folder = tempfile::TempDir::new().unwrap();
        let pool = "{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: a}, spec: {addresses: [10.0.0.0/24]}}";
        fs::write(folder.path().join("a.yaml"), format!("{pool}\n---\na: b: c\n")).unwrap();
        let printed = sheave(folder.path(), &["migrate", "--manifests", "."], Stdio::null());
        assert_eq!(printed.status.code(), Some(65));
        assert!(text(printed.stdout).contains("- 10.0.0.0/24"));
        assert!(text(printed.stderr).contains("a.yaml:3: InvalidManifest"));
        let printed = sheave(folder.path(), &["migrate", "--manifests", "nowhere"], Stdio::null());
        assert_eq!(printed.status.code(), Some(65));
    }
}
