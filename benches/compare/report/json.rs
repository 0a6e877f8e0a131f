//! The figures as JSON, with what is needed to judge them: circumstances, options, every single run.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Circumstances;
use crate::marks::Verdict;
use crate::results::{Results, RowResult};
use crate::sample::{Metric, Series, Summary};

/// All metrics with a ratio that says something.
const COMPARED: [Metric; 9] = [
    Metric::Rate,
    Metric::ProcessCost,
    Metric::MachineCost,
    Metric::P50,
    Metric::P99,
    Metric::P999,
    Metric::Added,
    Metric::PeakKib,
    Metric::IdleKib,
];

/// Everything, as text.
pub(crate) fn document(results: &Results, verdicts: &[Verdict], circumstances: &Circumstances) -> String {
    let document = json!({
        "circumstances": circumstances,
        "obstacles": results.obstacles,
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
        "marks": verdicts,
    });
    format!("{document:#}\n")
}

fn row(result: &RowResult) -> Value {
    let units = result.row.load.units();
    let series: Map<String, Value> = result
        .series
        .iter()
        .map(|(entrant, series)| {
            let ratio = |metric| result.ratio(*entrant, metric).map(|ratio| (metric, ratio));
            (entrant.label(), figures(series, &COMPARED.into_iter().filter_map(ratio).collect()))
        })
        .collect();
    json!({
        "row": result.row.name,
        "load": result.row.load.describe(),
        "rateUnit": units.rate,
        "costUnit": units.cost,
        "reference": result.row.reference_name(),
        "series": series,
    })
}

fn figures(series: &Series, ratios: &BTreeMap<Metric, Summary>) -> Value {
    let summary = |metric| series.summary(metric).map(|summary| (metric, summary));
    json!({
        "summary": Metric::ALL.into_iter().filter_map(summary).collect::<BTreeMap<_, _>>(),
        "ratio": ratios,
        "samples": series.samples,
        "failures": series.failures,
    })
}
