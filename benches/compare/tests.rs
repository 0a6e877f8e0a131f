//! Tests of the bench's arithmetic and output. The bench has no test harness of its own, so this is a test target.

#![allow(dead_code, unused_imports, reason = "the modules serve the bench; this program uses a part of them")]

mod entrant;
mod failure;
mod marks;
mod pattern;
mod report;
mod results;
mod rows;
mod sample;
mod verdict;
#[path = "tests/verdicts.rs"]
mod verdicts;

use std::time::Duration;

use entrant::{Entrant, Scene, Subject};
use report::Circumstances;
use results::{Results, RowResult};
use rows::{Load, ROWS};
use sample::{Cost, Metric, Moved, Sample, Series, Summary, Units, of_run};
use verdict::judge;

const PER_THOUSAND: Units =
    Units { rate: "k/s", rate_scale: 1e-3, cost: "us", cost_scale: 1e6, counted: 1.0 };

fn moved(units: u64, latencies: Vec<Duration>, lost: Option<u64>) -> Moved {
    Moved { units, took: Duration::from_secs(2), latencies, lost }
}

fn series(rates: &[Option<f64>]) -> Series {
    let samples = rates.iter().map(|rate| rate.map(|rate| Sample::from([(Metric::Rate, rate)]))).collect();
    Series { samples, failures: Vec::new() }
}

#[test]
fn a_run_gives_rate_processor_time_and_context_switches_per_unit() {
    let cost = Cost { process: Duration::from_secs(1), machine: Duration::from_secs(4), switches: 50_000 };
    let sample = of_run(moved(100_000, Vec::new(), Some(3)), cost, PER_THOUSAND, true);
    let expected = [
        (Metric::Rate, 50.0),
        (Metric::ProcessCost, 10.0),
        (Metric::MachineCost, 40.0),
        (Metric::Switches, 0.5),
        (Metric::Lost, 3.0),
    ];
    assert_eq!(sample, Sample::from(expected));
}

#[test]
fn what_moves_bytes_counts_context_switches_per_gib() {
    let cost = Cost { switches: 300, ..Cost::default() };
    let sample = of_run(moved(3 << 30, Vec::new(), None), cost, Load::Bulk { streams: 1 }.units(), true);
    assert_eq!(sample[&Metric::Switches], 100.0);
}

#[test]
fn the_routed_path_has_no_processor_time_of_a_proxy() {
    let cost = Cost { process: Duration::ZERO, machine: Duration::from_secs(1), switches: 0 };
    let sample = of_run(moved(10, Vec::new(), None), cost, PER_THOUSAND, false);
    assert!(!sample.contains_key(&Metric::ProcessCost));
    assert!(!sample.contains_key(&Metric::Lost));
}

#[test]
fn the_machine_never_spent_less_than_the_proxy() {
    let cost = Cost { process: Duration::from_millis(3), machine: Duration::ZERO, switches: 0 };
    let sample = of_run(moved(60, Vec::new(), None), cost, PER_THOUSAND, true);
    assert!(sample.contains_key(&Metric::ProcessCost));
    assert!(!sample.contains_key(&Metric::MachineCost));
}

#[test]
fn a_run_without_a_finished_unit_gives_no_summary() {
    let cost = Cost { process: Duration::from_secs(1), machine: Duration::from_secs(1), switches: 0 };
    let sample = of_run(moved(0, Vec::new(), Some(5)), cost, PER_THOUSAND, true);
    let series = Series { samples: vec![Some(sample)], failures: Vec::new() };
    assert_eq!(series.summary(Metric::ProcessCost), None);
    assert_eq!(series.summary(Metric::Rate).map(|rate| rate.median), Some(0.0));
}

#[test]
fn latencies_become_exact_percentiles_whatever_their_order() {
    let latencies: Vec<_> = (1..=1000).rev().map(Duration::from_micros).collect();
    let cost = Cost { process: Duration::ZERO, machine: Duration::ZERO, switches: 0 };
    let sample = of_run(moved(1000, latencies, None), cost, PER_THOUSAND, false);
    let micros = |metric| sample[&metric].round();
    assert_eq!([Metric::P50, Metric::P99, Metric::P999].map(micros), [500.0, 990.0, 999.0]);
}

fn summary(median: f64, low: f64, high: f64, rounds: usize) -> Summary {
    Summary { median, low, high, rounds }
}

#[test]
fn a_summary_of_few_rounds_is_median_lowest_and_highest() {
    assert_eq!(Summary::of([3.0, 1.0, 2.0]), Some(summary(2.0, 1.0, 3.0, 3)));
    assert_eq!(Summary::of([4.0, 1.0]), Some(summary(2.5, 1.0, 4.0, 2)));
    assert_eq!(Summary::of([]), None);
    assert!(!Summary::of([1.0; 4]).expect("a summary").is_sure());
    assert!(Summary::of([1.0; 5]).expect("a summary").is_sure());
}

/// In coin tosses, at most `left_out` heads or at most as many tails occur with a probability below one tenth; with one more it
/// would be above. The sums are those of Pascal's triangle.
#[test]
fn the_interval_leaves_out_as_many_rounds_as_a_tenth_of_doubt_allows() {
    for (rounds, left_out) in [(5, 0), (7, 0), (8, 1), (10, 1), (11, 2), (13, 3), (15, 3), (16, 4)] {
        let values = (0..rounds).map(f64::from);
        let expected = summary(
            f64::from(rounds - 1) / 2.0,
            f64::from(left_out),
            f64::from(rounds - 1 - left_out),
            rounds as usize,
        );
        assert_eq!(Summary::of(values), Some(expected), "{rounds} rounds");
        let tail = |most: i32| {
            let mut term = 1.0_f64;
            let mut sum = 1.0;
            for heads in 0..most {
                term *= f64::from(rounds - heads) / f64::from(heads + 1);
                sum += term;
            }
            2.0 * sum / 2.0_f64.powi(rounds)
        };
        assert!(tail(left_out) <= 0.1 && tail(left_out + 1) > 0.1, "{rounds} rounds");
    }
}

#[test]
fn ratios_compare_runs_of_the_same_round_and_leave_out_rounds_that_failed() {
    let ours = series(&[Some(2.0), Some(30.0), None, Some(8.0)]);
    let theirs = series(&[Some(1.0), Some(10.0), Some(1.0), None]);
    assert_eq!(ours.ratio(&theirs, Metric::Rate), Some(summary(2.5, 2.0, 3.0, 2)));
    let unmeasured = [Metric::IdleKib, Metric::PeakKib];
    assert_eq!(unmeasured.map(|metric| ours.ratio(&theirs, metric)), [None, None]);
}

#[test]
fn an_answer_is_the_complement_of_its_request_at_every_place() {
    for position in [0, 1, 65_520, 65_521, 1 << 40] {
        let mut request = pattern::at(position, 1000).to_vec();
        pattern::complement(&mut request);
        assert_eq!(request, pattern::complement_at(position, 1000));
    }
}

#[test]
fn the_pattern_repeats_after_its_period_and_nowhere_at_a_page() {
    let page = pattern::at(0, 4096);
    assert_eq!(page, pattern::at(pattern::PERIOD as u64, 4096));
    assert_eq!(pattern::at(7, pattern::LONGEST).len(), pattern::LONGEST);
    for other in 1..pattern::PERIOD as u64 {
        assert_ne!(page, pattern::at(other * 4096, 4096));
    }
}

#[test]
fn neighbouring_messages_start_at_different_places() {
    let place = |conversation, sequence| pattern::position(conversation, sequence) % pattern::PERIOD as u64;
    let mut places: Vec<_> = (0..64).flat_map(|c| (0..64).map(move |s| place(c, s))).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 64 * 64);
}

fn entrant(subject: Subject, workers: usize, scene: Scene) -> Entrant {
    Entrant { subject, workers, scene }
}

fn usual(subject: Subject) -> Entrant {
    entrant(subject, 1, Scene::Usual)
}

/// Row in which each series has enough rounds for an interval, all with these figures.
fn row(name: &str, figures: &[(Entrant, &[(Metric, f64)])]) -> RowResult {
    let row = ROWS.iter().find(|row| row.name == name).expect("a row of that name");
    let entrants: Vec<_> = figures.iter().map(|(entrant, _)| *entrant).collect();
    let mut result = RowResult::new(row, &entrants);
    for (entrant, figures) in figures {
        let series = result.series.get_mut(entrant).expect("its series");
        series.samples = vec![Some(figures.iter().copied().collect()); sample::ENOUGH_ROUNDS];
    }
    result
}

fn results(rows: Vec<RowResult>) -> Results {
    Results { rows, obstacles: Vec::new(), workers: vec![1, 2], cores: 2 }
}

#[test]
fn every_row_has_its_own_name_and_someone_to_be_compared_with() {
    let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROWS.len());
    for row in &ROWS {
        let entrants = row.entrants(&Subject::ALL, &[1, 2]);
        assert!(entrants.iter().all(|entrant| entrants.contains(&row.reference(*entrant))), "{}", row.name);
    }
}

#[test]
fn workers_multiply_proxies_on_rows_of_several_connections_and_nobody_else() {
    let workers = |name: &str, subject| {
        let row = ROWS.iter().find(|row| row.name == name).expect("a row");
        let entrants = row.entrants(&Subject::ALL, &[1, 2]);
        entrants.iter().filter(|entrant| entrant.subject == subject).map(|e| e.workers).collect::<Vec<_>>()
    };
    assert_eq!(workers("bulk-4", Subject::Haproxy), [1, 2]);
    assert_eq!(workers("bulk-4", Subject::Direct), [1]);
    assert_eq!(workers("latency", Subject::Sheave), [1]);
    assert_eq!(workers("udp-64", Subject::Haproxy), [0; 0]);
    assert_eq!(workers("affinity", Subject::Nginx), [0; 0]);
    assert_eq!(workers("affinity", Subject::Sheave), [1, 1]);
}

#[test]
fn a_peer_of_a_row_of_scenes_has_the_last_one_and_is_compared_with_sheave_in_the_first() {
    let row = ROWS.iter().find(|row| row.name == "client-closes").expect("a row");
    let entrants = row.entrants(&Subject::ALL, &[1, 2]);
    let (reused, default) = (Scene::ReusedPorts, Scene::DefaultPorts);
    let sheave = [reused, default].map(|scene| entrant(Subject::Sheave, 1, scene));
    let haproxy = entrant(Subject::Haproxy, 1, default);
    assert_eq!(entrants, [sheave[0], sheave[1], haproxy]);
    assert_eq!(row.reference(haproxy), sheave[0]);
}

#[test]
fn the_median_of_latencies_is_in_microseconds() {
    let latencies = [3, 1, 2].map(Duration::from_millis).to_vec();
    assert_eq!((sample::median(latencies), sample::median(Vec::new())), (Some(2000.0), None));
}

#[test]
fn added_latency_is_the_median_beyond_that_of_the_routed_path_in_the_same_round() {
    let (direct, sheave) = (usual(Subject::Direct), usual(Subject::Sheave));
    let mut latency = row("latency", &[(direct, &[(Metric::P50, 30.0)]), (sheave, &[(Metric::P50, 45.0)])]);
    for (entrant, p50) in [(direct, 40.0), (sheave, 60.0)] {
        let series = latency.series.get_mut(&entrant).expect("its series");
        series.samples.push(Some(Sample::from([(Metric::P50, p50)])));
    }
    latency.derive_added_latency();
    let added = latency.series[&sheave].summary(Metric::Added);
    assert_eq!(added, Some(summary(15.0, 15.0, 20.0, 6)));
    assert_eq!(latency.series[&direct].summary(Metric::Added), None);
}

#[test]
fn latency_under_many_connections_is_not_taken_for_that_of_the_path() {
    let (direct, sheave) = (usual(Subject::Direct), usual(Subject::Sheave));
    let mut row = row("request-1k", &[(direct, &[(Metric::P50, 30.0)]), (sheave, &[(Metric::P50, 45.0)])]);
    row.derive_added_latency();
    assert_eq!(row.series[&sheave].summary(Metric::Added), None);
}

#[test]
fn what_threads_moved_beside_each_other_adds_up() {
    let one = moved(10, vec![Duration::from_micros(1)], Some(1));
    let other = Moved { took: Duration::from_secs(3), ..moved(20, vec![Duration::from_micros(2)], Some(2)) };
    let both = one.beside(other);
    assert_eq!((both.units, both.took, both.lost), (30, Duration::from_secs(3), Some(3)));
    assert_eq!(both.latencies.len(), 2);
}

fn circumstances() -> Circumstances {
    Circumstances {
        cores: 2,
        cpu: "A <Processor> & more".to_owned(),
        kernel: "6.18.0".to_owned(),
        commit: "0123456789abcdef0123456789abcdef01234567-dirty".to_owned(),
        time: "2026-01-02T03:04:05Z".parse().expect("a time"),
        busy: Some(3.5),
        versions: vec![
            ("haproxy", "HAProxy version 2.6.12-1+deb12u1 2023/12/16 - https://haproxy.org/".to_owned()),
            ("nginx", "nginx version: nginx/1.22.1".to_owned()),
        ],
        options: serde_json::json!({"rounds": 1}),
    }
}

fn some_results() -> Results {
    let figures = |rate: f64, cost: f64| [(Metric::Rate, rate), (Metric::ProcessCost, cost)];
    let (sheave, haproxy, nginx) = (figures(20.0, 0.1), figures(10.0, 0.2), figures(5.0, 0.9));
    let peers = [Subject::Sheave, Subject::Haproxy, Subject::Nginx].map(usual);
    let bulk = row("bulk-1", &[(peers[0], &sheave), (peers[1], &haproxy), (peers[2], &nginx)]);
    let idle = row("idle", &[(peers[0], &[(Metric::IdleKib, 2.0)]), (peers[1], &[(Metric::IdleKib, 4.0)])]);
    let swapping = entrant(Subject::Sheave, 1, Scene::Swapping);
    let swap = row("swap", &[(peers[0], &[(Metric::P99, 100.0)]), (swapping, &[(Metric::P99, 105.0)])]);
    Results {
        obstacles: vec!["ipvs: ipvsadm is not installed".to_owned()],
        ..results(vec![bulk, idle, swap])
    }
}

#[test]
fn markdown_tells_date_commit_figures_ratios_and_what_was_not_run() {
    let results = some_results();
    let text = report::markdown(&results, &judge(&results), &circumstances());
    for part in [
        "2026-01-02, commit 0123456789ab with changes; 2 cores",
        "Linux 6.18.0, busy (load average 3.5);",
        "haproxy 2.6.12, nginx 1.22.1",
        "| bulk-1 | 20.0 Gbit/s, 0.100 s/GiB |",
        "rate 2.00x (2.00..2.00), CPU 0.50x (0.50..0.50)",
        "| idle | 2.00 KiB | 4.00 KiB | - |",
        "| row | Sheave | HAProxy | nginx | Sheave / HAProxy | Sheave / nginx |",
        "| swap | sheave-swapping |",
        "| bulk-1 rate >= 1.10x haproxy | 2.00x (2.00..2.00) moonshot met |",
        "Not run: ipvs: ipvsadm is not installed.",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let columns = |line: &str| line.matches('|').count();
    let mut width = 0;
    for line in text.lines() {
        assert!(width == 0 || columns(line) == 0 || columns(line) == width, "ragged: {line}");
        width = columns(line);
    }
}

#[test]
fn json_has_every_run_and_every_mark() {
    let results = some_results();
    let text = report::json(&results, &judge(&results), &circumstances());
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let sheave = json["series"].as_array().expect("series").iter().find(|line| line["series"] == "sheave");
    let sheave = sheave.expect("a line of sheave");
    assert_eq!((sheave["row"].as_str(), sheave["rateUnit"].as_str()), (Some("bulk-1"), Some("Gbit/s")));
    assert_eq!(sheave["rounds"]["rate"], serde_json::json!(vec![20.0; 5]));
    assert_eq!(json["marks"][0]["figure"], "bulk-1 CPU per GiB to haproxy");
    assert_eq!(json["marks"][0]["outcome"], "moonshot");
    assert_eq!(json["marks"][0]["value"]["median"], 0.5);
    assert_eq!(json["circumstances"]["kernel"], "6.18.0");
    assert_eq!(json["obstacles"][0], "ipvs: ipvsadm is not installed");
}
