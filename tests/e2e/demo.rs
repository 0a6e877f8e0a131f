//! `sheave demo` as a newcomer meets it: the lines that it prints are the lines that are run here.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::Signal;

use crate::support::host::Host;
use crate::support::patience::eventually;
use crate::support::process::Process;

const BINARY: &str = env!("CARGO_BIN_EXE_sheave");

/// Starts the demo and waits until it has said what to try.
fn start(host: &Host, arguments: &[&str]) -> Process {
    let mut demo = host.start(BINARY, &[&["demo"], arguments].concat());
    eventually("the demo says what to try", || {
        demo.expect_running();
        let text = demo.stdout();
        if text.contains("Ctrl-C") { Ok(()) } else { Err(text) }
    });
    demo
}

/// The line to try for a protocol, as printed after its name.
fn to_try(demo: &Process, protocol: &str) -> String {
    let text = demo.stdout();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(protocol));
    line.unwrap_or_else(|| panic!("nothing to try for {protocol}: {text}")).trim().to_owned()
}

/// Who answers, without the part that differs from connection to connection.
fn answers(host: &Host, line: &str) -> BTreeSet<String> {
    let ask = |_| host.finish("bash", &["-c", line]).expect_success();
    (0..40).map(ask).map(|text| text.split(';').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_printed_lines_work_and_edits_show_until_ctrl_c() {
    let host = Host::new("newcomer");
    let mut demo = start(&host, &[]);
    let web = to_try(&demo, "TCP");
    let before = answers(&host, &web);
    assert!(before.len() > 1, "several endpoints answer: {before:?}");
    let udp = to_try(&demo, "UDP");
    assert!(!host.finish("bash", &["-c", &udp]).expect_success().trim().is_empty());

    let text = demo.stdout();
    let file = text.split_whitespace().find(|word| word.ends_with(".yaml")).expect("a file to edit is named");
    let manifest = fs::read_to_string(file).unwrap();
    fs::write(file, manifest.replacen("ready: true", "ready: false", 1)).unwrap();
    eventually("one endpoint less answers", || {
        let now = answers(&host, &web);
        if now.len() + 1 == before.len() && now.is_subset(&before) { Ok(()) } else { Err(format!("{now:?}")) }
    });
    demo.signal(Signal::SIGINT);
    assert_eq!(demo.wait().code(), Some(0));
}

#[test]
fn with_a_time_it_ends_by_itself_and_cleans_up() {
    let host = Host::new("newcomer");
    let mut demo = start(&host, &["--for", "1s"]);
    assert_eq!(demo.wait().code(), Some(0));
    let text = demo.stdout();
    let file = text.split_whitespace().find(|word| word.ends_with(".yaml")).expect("a file to edit is named");
    assert!(!fs::exists(file).unwrap(), "{file} is left behind");
}
