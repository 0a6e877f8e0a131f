//! Tests of the bench's arithmetic. The bench has no test harness of its own, so this is a test target.

mod pattern;
mod sample;

use std::time::Duration;

use sample::{Cost, Metric, Moved, Sample, Series, Summary, Units, of_run};

const PER_THOUSAND: Units = Units { rate: "k/s", rate_scale: 1e-3, cost: "us", cost_scale: 1e6 };

fn moved(units: u64, latencies: Vec<Duration>, lost: Option<u64>) -> Moved {
    Moved { units, took: Duration::from_secs(2), latencies, lost }
}

fn series(rates: &[Option<f64>]) -> Series {
    let samples = rates.iter().map(|rate| rate.map(|rate| Sample::from([(Metric::Rate, rate)]))).collect();
    Series { samples, failures: Vec::new() }
}

#[test]
fn a_run_gives_rate_and_processor_time_per_unit() {
    let cost = Cost { process: Duration::from_secs(1), machine: Duration::from_secs(4) };
    let sample = of_run(moved(100_000, Vec::new(), Some(3)), cost, PER_THOUSAND, true);
    let expected =
        [(Metric::Rate, 50.0), (Metric::ProcessCost, 10.0), (Metric::MachineCost, 40.0), (Metric::Lost, 3.0)];
    assert_eq!(sample, Sample::from(expected));
    assert_eq!((PER_THOUSAND.rate, PER_THOUSAND.cost), ("k/s", "us"));
}

#[test]
fn the_routed_path_has_no_processor_time_of_a_proxy() {
    let cost = Cost { process: Duration::ZERO, machine: Duration::from_secs(1) };
    let sample = of_run(moved(10, Vec::new(), None), cost, PER_THOUSAND, false);
    assert!(!sample.contains_key(&Metric::ProcessCost));
    assert!(!sample.contains_key(&Metric::Lost));
}

#[test]
fn a_run_without_a_finished_unit_gives_no_summary() {
    let cost = Cost { process: Duration::from_secs(1), machine: Duration::from_secs(1) };
    let sample = of_run(moved(0, Vec::new(), Some(5)), cost, PER_THOUSAND, true);
    let series = Series { samples: vec![Some(sample)], failures: Vec::new() };
    assert_eq!(series.summary(Metric::ProcessCost), None);
    assert_eq!(series.summary(Metric::Rate).map(|rate| rate.median), Some(0.0));
}

#[test]
fn latencies_become_exact_percentiles_whatever_their_order() {
    let latencies: Vec<_> = (1..=1000).rev().map(Duration::from_micros).collect();
    let cost = Cost { process: Duration::ZERO, machine: Duration::ZERO };
    let sample = of_run(moved(1000, latencies, None), cost, PER_THOUSAND, false);
    let micros = |metric| sample[&metric].round();
    assert_eq!([Metric::P50, Metric::P99, Metric::P999].map(micros), [500.0, 990.0, 999.0]);
}

#[test]
fn a_summary_is_median_lowest_and_highest() {
    assert_eq!(Summary::of([3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
    assert_eq!(Summary::of([4.0, 1.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
    assert_eq!(Summary::of([]), None);
}

#[test]
fn ratios_compare_runs_of_the_same_round_and_leave_out_rounds_that_failed() {
    let ours = series(&[Some(2.0), Some(30.0), None, Some(8.0)]);
    let theirs = series(&[Some(1.0), Some(10.0), Some(1.0), None]);
    let ratio = ours.ratio(&theirs, Metric::Rate);
    assert_eq!(ratio, Some(Summary { median: 2.5, min: 2.0, max: 3.0 }));
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
