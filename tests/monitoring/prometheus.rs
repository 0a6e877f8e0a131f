//! Prometheus server on a host, and its tool promtool.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::stage::free_port;
use crate::support::host::Host;
use crate::support::http;
use crate::support::patience::{eventually_within, patience};
use crate::support::process::Process;

/// Running server, which is killed when dropped.
pub(crate) struct Prometheus<'h> {
    host: &'h Host,
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

/// Series of a result: its labels and its value.
pub(crate) type Sample = (BTreeMap<String, String>, f64);

impl<'h> Prometheus<'h> {
    /// Scrapes these targets, given by name and address, and evaluates these rules, each second.
    pub(crate) fn start(host: &'h Host, targets: &[(&str, SocketAddr)], rules: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut config = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n\
                          rule_files: [rules.yaml]\nscrape_configs:\n"
            .to_owned();
        for (job, address) in targets {
            writeln!(config, "- {{job_name: {job}, static_configs: [{{targets: [\"{address}\"]}}]}}")
                .expect("strings take text");
        }
        fs::write(path("prometheus.yaml"), config).expect("a file is written");
        fs::write(path("rules.yaml"), rules).expect("a file is written");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, host.run(|| free_port(Ipv4Addr::LOCALHOST))));
        let arguments = [
            format!("--config.file={}", path("prometheus.yaml")),
            format!("--storage.tsdb.path={}", path("data")),
            format!("--web.listen-address={address}"),
            "--log.level=warn".to_owned(),
        ];
        let mut process = host.start("prometheus", &arguments);
        eventually_within(patience(30.0), "Prometheus is ready", || {
            process.expect_running();
            match host.run(|| http::get(address, "/-/ready")) {
                Ok(answer) if answer.status == 200 => Ok(()),
                Ok(answer) => Err(answer.body),
                Err(error) => Err(error.to_string()),
            }
        });
        Self { host, address, _process: process, _folder: folder }
    }

    /// Current result of a query.
    pub(crate) fn query(&self, query: &str) -> Vec<Sample> {
        let data = self.ask(&format!("/api/v1/query?query={}", encoded(query)));
        let result = data["result"].as_array().unwrap_or_else(|| panic!("{query}: {data}"));
        result.iter().map(sample).collect()
    }

    /// Names of the firing alerts.
    pub(crate) fn firing(&self) -> Vec<String> {
        let samples = self.query("group by (alertname) (ALERTS{alertstate=\"firing\"})");
        let mut names: Vec<String> =
            samples.into_iter().map(|(labels, _)| labels["alertname"].clone()).collect();
        names.sort();
        names
    }

    /// Alerts with their annotations.
    pub(crate) fn alerts(&self) -> Value {
        self.ask("/api/v1/alerts")
    }

    fn ask(&self, path: &str) -> Value {
        let answer =
            self.host.run(|| http::get(self.address, path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let body: Value =
            serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].clone()
    }
}

fn sample(result: &Value) -> Sample {
    let labels = result["metric"].as_object().into_iter().flatten();
    let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
    let value = result["value"][1].as_str().and_then(|value| value.parse().ok());
    (labels.collect(), value.unwrap_or_else(|| panic!("no value: {result}")))
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("strings take text");
        }
        encoded
    })
}

/// Output of promtool for this input.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is installed");
    let mut stdin = child.stdin.take().expect("it takes input");
    // It may not read its input.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    child.wait_with_output().expect("promtool ends")
}

/// Checks a file with promtool, and fails with its output.
pub(crate) fn promtool_accepts(arguments: &[&str], file: &Path) {
    let output = promtool(&[arguments, &[&file.display().to_string()]].concat(), "");
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{}", said.concat());
}
