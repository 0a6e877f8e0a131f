//! Tests of verdicts: where a mark is met, which entrants run again, and what is a regression.

use super::*;
use crate::marks::Outcome;
use crate::verdict::{Baseline, Comparison, Verdict, undecided};

fn verdict(verdicts: &[Verdict], mark: &str) -> (Outcome, String) {
    let found = verdicts.iter().find(|verdict| verdict.mark == mark);
    let found = found.unwrap_or_else(|| panic!("`{mark}` is not among {verdicts:#?}"));
    (found.outcome, found.verdict.clone())
}

/// Ratios of Sheave's CPU to HAProxy's in `request-1k`, by round.
fn request_cpu(ratios: &[f64]) -> RowResult {
    let mut result = row("request-1k", &[(usual(Subject::Sheave), &[]), (usual(Subject::Haproxy), &[])]);
    for (subject, scale) in [(Subject::Sheave, true), (Subject::Haproxy, false)] {
        let cost =
            |ratio: &f64| Some(Sample::from([(Metric::ProcessCost, if scale { *ratio } else { 1.0 })]));
        let series = result.series.get_mut(&usual(subject)).expect("its series");
        series.samples = ratios.iter().map(cost).collect();
    }
    result
}

const REQUEST_CPU: &str = "request-1k CPU per request <= 0.70x haproxy";

#[test]
fn a_mark_is_met_or_missed_where_the_whole_interval_lies_on_one_side_of_it() {
    let judged = |ratios: &[f64]| verdict(&judge(&results(vec![request_cpu(ratios)])), REQUEST_CPU);
    for (ratios, outcome, words) in [
        ([0.55, 0.56, 0.57, 0.58, 0.59], Outcome::Moonshot, "0.57x (0.55..0.59) moonshot met"),
        ([0.55, 0.56, 0.57, 0.58, 0.61], Outcome::Met, "0.57x (0.55..0.61) met (moonshot 0.60x)"),
        ([0.55, 0.56, 0.57, 0.58, 0.71], Outcome::WithinNoise, "0.57x (0.55..0.71) within noise, 5 rounds"),
        ([0.69, 0.80, 0.81, 0.82, 0.83], Outcome::WithinNoise, "0.81x (0.69..0.83) within noise, 5 rounds"),
        ([0.75, 0.76, 0.77, 0.78, 0.79], Outcome::Missed, "0.77x (0.75..0.79) not met, by 10 %"),
    ] {
        assert_eq!(judged(&ratios), (outcome, words.to_owned()));
    }
    let few = (Outcome::WithinNoise, "0.50x (0.50..0.50) no verdict from 4 rounds".to_owned());
    assert_eq!(judged(&[0.5; 4]), few);
}

#[test]
fn those_run_again_whose_interval_holds_a_mark_and_nobody_else() {
    let pair = [usual(Subject::Sheave), usual(Subject::Haproxy)];
    assert_eq!(undecided(&request_cpu(&[0.6, 0.65, 0.7, 0.75, 0.8]), 2), pair);
    assert_eq!(undecided(&request_cpu(&[0.6; 5]), 2), []);
    let mut row = request_cpu(&[0.6, 0.65, 0.7, 0.75, 0.8]);
    let nginx = series(&[Some(1.0); 5]);
    row.series.insert(usual(Subject::Nginx), nginx);
    assert_eq!(undecided(&row, 2), pair);
}

#[test]
fn a_figure_that_is_worse_than_the_baseline_by_more_than_both_intervals_is_a_regression() {
    let measured = |ratios: &[f64]| results(vec![request_cpu(ratios)]);
    let before = measured(&[0.60, 0.61, 0.62, 0.63, 0.64]);
    let text = report::json(&before, &judge(&before), &circumstances());
    let baseline: Baseline = serde_json::from_str(&text).expect("a baseline");
    let compared = |ratios: &[f64]| baseline.compare(&judge(&measured(ratios)));
    let fine = |comparison: Comparison| comparison.compared == 1 && comparison.regressions.is_empty();
    assert!(fine(compared(&[0.50, 0.51, 0.52, 0.53, 0.54])), "better");
    assert!(fine(compared(&[0.64, 0.66, 0.67, 0.68, 0.69])), "worse, but the intervals touch");
    let worse = compared(&[0.65, 0.66, 0.67, 0.68, 0.69]);
    let words = "request-1k CPU per request to haproxy is 0.67 (0.65..0.69), was 0.62 (0.60..0.64)";
    assert_eq!(worse.regressions, [words]);
    let few = compared(&[0.9, 0.9]);
    assert!(few.compared == 0 && few.regressions.is_empty(), "two rounds have no interval");
}

#[test]
fn a_mark_without_its_peer_is_not_measured_and_one_without_its_row_or_series_is_not_reported() {
    let alone = row("connect", &[(usual(Subject::Sheave), &[(Metric::Rate, 20.0)])]);
    let verdicts = judge(&results(vec![alone]));
    assert_eq!(verdict(&verdicts, "connect rate >= 1.15x haproxy").0, Outcome::NotMeasured);
    assert!(verdicts.iter().all(|verdict| verdict.mark.starts_with("connect ")));
    assert!(verdicts.iter().all(|verdict| !verdict.mark.contains("2 workers")));
}

#[test]
fn datagrams_per_processor_second_are_the_inverse_of_the_cost() {
    let costs = [(usual(Subject::Sheave), 2.0), (usual(Subject::Nginx), 4.0)];
    let costs = costs.map(|(entrant, cost)| (entrant, [(Metric::ProcessCost, cost)]));
    let udp = row("udp-64", &[(costs[0].0, &costs[0].1), (costs[1].0, &costs[1].1)]);
    let (outcome, words) = verdict(&judge(&results(vec![udp])), "udp-64 per CPU second >= 1.81x nginx");
    assert_eq!((outcome, words.as_str()), (Outcome::Met, "2.00x (2.00..2.00) met (moonshot 2.50x)"));
}

#[test]
fn the_tail_of_two_workers_is_compared_with_two_threads() {
    let two = |subject| entrant(subject, 2, Scene::Usual);
    let (ours, theirs) = (two(Subject::Sheave), two(Subject::Haproxy));
    let tails = row("request-1b", &[(ours, &[(Metric::P99, 90.0)]), (theirs, &[(Metric::P99, 100.0)])]);
    let (outcome, words) =
        verdict(&judge(&results(vec![tails])), "request-1b p99, 2 workers <= 1.00x haproxy-2w");
    assert_eq!((outcome, words.as_str()), (Outcome::Met, "0.90x (0.90..0.90) met (moonshot 0.80x)"));
}

#[test]
fn a_size_without_a_rival_is_judged_as_it_is() {
    let idle = row("idle", &[(usual(Subject::Sheave), &[(Metric::IdleKib, 0.3)])]);
    let (outcome, words) = verdict(&judge(&results(vec![idle])), "idle KiB per connection <= 0.31");
    assert_eq!((outcome, words.as_str()), (Outcome::Met, "0.30 (0.30..0.30) met"));
}

#[test]
fn refused_frontends_miss_a_mark_and_the_large_table_is_compared_with_the_small() {
    let small = entrant(Subject::Sheave, 1, Scene::Services(rows::FEW_SERVICES));
    let large = entrant(Subject::Sheave, 1, Scene::Services(rows::MANY_SERVICES));
    let frontends = row(
        "frontends",
        &[
            (small, &[(Metric::P50, 80.0), (Metric::Refused, 0.0)]),
            (large, &[(Metric::P50, 84.0), (Metric::Refused, 500.0)]),
        ],
    );
    let verdicts = judge(&results(vec![frontends]));
    assert_eq!(verdict(&verdicts, "frontends refused connections <= 0").0, Outcome::Missed);
    let median = "frontends median of first connections <= 1.10x sheave-10-services";
    assert_eq!(verdict(&verdicts, median).0, Outcome::Met);
}

#[test]
fn ports_in_time_wait_are_judged_by_what_a_connection_costs_and_by_what_another_service_feels() {
    let scenes = [Scene::ReusedPorts, Scene::DefaultPorts];
    let [reused, default] = scenes.map(|scene| entrant(Subject::Sheave, 1, scene));
    let figures = |cost, slowdown| [(Metric::ProcessCost, cost), (Metric::OtherSlowdown, slowdown)];
    let ports = row("client-closes", &[(reused, &figures(20.0, 9.0)), (default, &figures(22.0, 1.3))]);
    let verdicts = judge(&results(vec![ports]));
    let cost = verdict(&verdicts, "client-closes CPU per connection <= 1.15x sheave-tcp_tw_reuse-1");
    assert_eq!(cost, (Outcome::Met, "1.10x (1.10..1.10) met".to_owned()));
    let other = verdict(&verdicts, "client-closes median of another Service, to that without load <= 1.20");
    assert_eq!(other, (Outcome::Missed, "1.30 (1.30..1.30) not met, by 8 %".to_owned()));
}

#[test]
fn a_gateway_that_is_watched_is_compared_with_itself_unwatched() {
    let [alone, watched] = [0, rows::PAGES].map(|pages| entrant(Subject::Sheave, 1, Scene::Watched(pages)));
    let rates = row("watched", &[(alone, &[(Metric::Rate, 100.0)]), (watched, &[(Metric::Rate, 97.0)])]);
    let (outcome, words) = verdict(&judge(&results(vec![rates])), "watched rate >= 0.98x sheave-0-pages");
    assert_eq!((outcome, words.as_str()), (Outcome::Missed, "0.97x (0.97..0.97) not met, by 1 %"));
}

#[test]
fn the_gain_of_a_second_worker_is_judged_only_where_the_load_leaves_it_a_core() {
    let figures: [(Metric, f64); 2] = [(Metric::Rate, 100.0), (Metric::ProcessCost, 8.0)];
    let doubled: [(Metric, f64); 2] = [(Metric::Rate, 180.0), (Metric::ProcessCost, 8.4)];
    let measured = || {
        let two = entrant(Subject::Sheave, 2, Scene::Usual);
        row("request-1k", &[(usual(Subject::Sheave), &figures), (two, &doubled)])
    };
    let mark = "request-1k rate, 2 workers >= 1.70x sheave";
    let few = judge(&results(vec![measured()]));
    assert!(few.iter().all(|verdict| verdict.mark != mark), "on two cores");
    let enough = Results { cores: 4, ..results(vec![measured()]) };
    assert_eq!(verdict(&judge(&enough), mark).0, Outcome::Met);
}
