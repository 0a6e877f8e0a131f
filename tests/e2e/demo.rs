//! Tests of `sheave demo`: runs the commands that it prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;

use nix::sys::signal::Signal;

use crate::support::host::Host;
use crate::support::patience::{eventually, eventually_within, patience};
use crate::support::process::Process;
use sheave_test_support::program;

/// Starts the demo and waits until it has printed what to try.
fn start(host: &Host, arguments: &[&str]) -> Process {
    let mut demo = host.start(program::path(), &[&["demo"], arguments].concat());
    eventually("the demo says what to try", || {
        demo.expect_running();
        let text = demo.stdout();
        if text.contains("Ctrl-C") { Ok(()) } else { Err(text) }
    });
    demo
}

/// The printed line for `what`.
fn to_try(demo: &Process, what: &str) -> String {
    let text = demo.stdout();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(what)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("nothing to try for {what}: {text}")).trim().to_owned()
}

/// Number of requests of the line that counts answers.
const COUNTED: usize = 100;

/// Number of answers from each cluster, by the line that counts answers. Each request must be answered.
fn shares(host: &Host, line: &str) -> BTreeMap<String, usize> {
    let text = host.finish("bash", &["-c", line]).expect_success();
    let mut shares = BTreeMap::new();
    for counted in text.lines() {
        let (count, answer) = counted.trim().split_once(' ').expect("uniq -c counts");
        let server = answer.strip_prefix("hello from ").unwrap_or_else(|| panic!("no answer: {text}"));
        let cluster = server.split('-').next().unwrap_or(server).to_owned();
        *shares.entry(cluster).or_insert(0) += count.parse::<usize>().expect("a count");
    }
    assert_eq!(shares.values().sum::<usize>(), COUNTED, "{text}");
    shares
}

/// Runs a printed line, and counts until the shares are as expected after it.
fn expect_after(
    demo: &Process,
    host: &Host,
    what: &str,
    as_expected: impl Fn(&BTreeMap<String, usize>) -> bool,
) {
    host.finish("bash", &["-c", &to_try(demo, what)]).expect_success();
    eventually_within(patience(60.0), &format!("the shares after {what}"), || {
        let shares = shares(host, &to_try(demo, "FLEET"));
        if as_expected(&shares) { Ok(()) } else { Err(format!("{shares:?}")) }
    });
}

/// Answers without the part that differs between connections.
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
fn a_second_one_says_who_is_in_the_way() {
    let host = Host::new("newcomer");
    let first = start(&host, &[]);
    let second = host.finish(program::path(), &["demo", "--for", "1s"]);
    assert_eq!(second.code(), Some(69), "{}", second.stderr);
    assert_eq!(second.stdout, "");
    assert!(second.stderr.contains("127.0.0.80:18080/TCP"), "{}", second.stderr);
    assert!(second.stderr.contains("Is another demo running?"), "{}", second.stderr);
    for what in ["STATUS", "EXPLAIN"] {
        host.finish("bash", &["-c", &to_try(&first, what)]).expect_success();
    }
    drop(first);

    let _gateway = host.run(|| TcpListener::bind("127.0.0.1:9841").unwrap());
    let elsewhere = start(&host, &[]);
    assert!(to_try(&elsewhere, "STATUS").contains(" --admin http://127.0.0.1:"));
    host.finish("bash", &["-c", &to_try(&elsewhere, "STATUS")]).expect_success();
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

#[test]
fn the_printed_lines_weigh_drain_and_stop_a_cluster() {
    let host = Host::new("newcomer");
    let demo = start(&host, &[]);
    // 75 are expected; a fair choice leaves this range once in millions of runs.
    let mostly_east = |shares: &BTreeMap<String, usize>| {
        shares.keys().eq(["east", "west"])
            && shares.get("east").is_some_and(|count| (54..=96).contains(count))
    };
    let only_west = |shares: &BTreeMap<String, usize>| shares.keys().eq(["west"]);
    expect_after(&demo, &host, "FLEET", mostly_east);
    expect_after(&demo, &host, "DRAIN", only_west);
    expect_after(&demo, &host, "RETURN", mostly_east);
    expect_after(&demo, &host, "STOP", only_west);
    expect_after(&demo, &host, "START", mostly_east);

    let text = demo.stdout();
    let file = text.split_whitespace().find(|word| word.ends_with("shop.yaml")).expect("a file is named");
    let manifest = fs::read_to_string(file).unwrap();
    fs::write(file, manifest.replace("east=3,west=1", "east=0,west=1")).unwrap();
    expect_after(&demo, &host, "FLEET", only_west);
}
