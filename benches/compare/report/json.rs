//! Figures as JSON, with everything needed to judge them: circumstances, options and every run. `--against` reads the marks.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Circumstances;
use crate::results::{Results, RowResult};
use crate::sample::{Metric, Series};
use crate::verdict::Verdict;

/// The whole document as text, with a line for each mark and each series, for readable diffs.
pub(crate) fn document(results: &Results, verdicts: &[Verdict], circumstances: &Circumstances) -> String {
    let rows: Vec<_> = results.rows.iter().flat_map(series).collect();
    let lines = |values: Vec<Value>| {
        values.iter().map(|value| format!("    {value}")).collect::<Vec<_>>().join(",\n")
    };
    format!(
        "{{\n  \"circumstances\": {},\n  \"obstacles\": {},\n  \"marks\": [\n{}\n  ],\n  \"series\": [\n{}\n  ]\n}}\n",
        json!(circumstances),
        json!(results.obstacles),
        lines(verdicts.iter().map(|verdict| json!(verdict)).collect()),
        lines(rows),
    )
}

fn series(result: &RowResult) -> Vec<Value> {
    let units = result.row.load.units();
    let line = |(entrant, series): (&crate::entrant::Entrant, &Series)| {
        json!({
            "row": result.row.name,
            "series": entrant.label(),
            "load": result.describe(),
            "rateUnit": units.rate,
            "costUnit": units.cost,
            "rounds": rounds(series),
            "failures": series.failures,
        })
    };
    result.series.iter().map(line).collect()
}

/// Figures of each metric by round; `null` if the run failed or had none.
fn rounds(series: &Series) -> Map<String, Value> {
    let figures = |metric| {
        let figure = |sample: &Option<_>| {
            let sample: Option<&BTreeMap<Metric, f64>> = sample.as_ref();
            sample.and_then(|sample| sample.get(&metric).copied()).map(four_digits)
        };
        series.samples.iter().map(figure).collect::<Vec<_>>()
    };
    let named = Metric::ALL.into_iter().map(|metric| (json!(metric), figures(metric)));
    let measured = named.filter(|(_, figures)| figures.iter().any(Option::is_some));
    measured.map(|(name, figures)| (name.as_str().unwrap_or_default().to_owned(), json!(figures))).collect()
}

/// Rounds to four significant digits, which is more than the precision of any run.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
