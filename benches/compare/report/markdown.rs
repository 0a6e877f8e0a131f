//! The tables of `benches/README.md`, so that nobody types them.

use super::{Circumstances, short};
use crate::entrant::{Entrant, Subject};
use crate::marks::{ELSEWHERE, Verdict};
use crate::results::{Results, RowResult};
use crate::sample::{Metric, Series};

/// Columns of the table of rows, after the row's name.
const SUBJECTS: [Subject; 5] =
    [Subject::Sheave, Subject::Haproxy, Subject::Nginx, Subject::Direct, Subject::Dnat];

/// All tables.
pub(crate) fn text(results: &Results, verdicts: &[Verdict], circumstances: &Circumstances) -> String {
    let mut text = String::new();
    let intro = format!(
        "{}; {}. Medians; the second figure is the proxy's own CPU.\n\n",
        circumstances.sentence(),
        circumstances.peers()
    );
    text.push_str(&intro);
    compared(&mut text, results);
    scenes(&mut text, results);
    marks(&mut text, verdicts);
    for obstacle in &results.obstacles {
        line(&mut text, &format!("Not run: {obstacle}."));
    }
    text
}

/// Rows that compare subjects: a line for each count of workers.
fn compared(text: &mut String, results: &Results) {
    let rows: Vec<_> = results.rows.iter().filter(|row| !row.row.is_of_scenes()).collect();
    if rows.is_empty() {
        return;
    }
    line(
        text,
        "| row | Sheave | HAProxy | nginx | routed | nftables DNAT | Sheave / HAProxy | Sheave / nginx |",
    );
    line(text, "|---|---|---|---|---|---|---|---|");
    for row in rows {
        for workers in &results.workers {
            let entrant = |subject| Entrant { workers: *workers, ..results.usual(subject) };
            if !row.series.contains_key(&entrant(Subject::Sheave)) {
                continue;
            }
            let cells = SUBJECTS.map(|subject| {
                let series = row.series.get(&entrant(subject));
                series.map_or("-".to_owned(), |series| cell(row, series))
            });
            let ratios = [Subject::Haproxy, Subject::Nginx]
                .map(|peer| ratios(row, entrant(Subject::Sheave), entrant(peer)));
            let name = if *workers > 1 {
                format!("{}, {workers} workers", row.row.name)
            } else {
                row.row.name.to_owned()
            };
            line(text, &format!("| {name} | {} | {} |", cells.join(" | "), ratios.join(" | ")));
        }
    }
    line(text, "");
}

/// Rows that compare Sheave with itself.
fn scenes(text: &mut String, results: &Results) {
    let rows: Vec<_> = results.rows.iter().filter(|row| row.row.is_of_scenes()).collect();
    if rows.is_empty() {
        return;
    }
    line(text, "| row | series | figures | to the first |");
    line(text, "|---|---|---|---|");
    for row in rows {
        for (entrant, series) in &row.series {
            let first = row.row.reference(*entrant);
            let ratios = if first == *entrant { "-".to_owned() } else { ratios(row, *entrant, first) };
            let (name, label) = (row.row.name, entrant.label());
            line(text, &format!("| {name} | {label} | {} | {ratios} |", cell(row, series)));
        }
    }
    line(text, "");
}

fn marks(text: &mut String, verdicts: &[Verdict]) {
    if verdicts.is_empty() {
        return;
    }
    line(text, "| mark | measured |");
    line(text, "|---|---|");
    for Verdict { mark, verdict, .. } in verdicts {
        line(text, &format!("| {mark} | {verdict} |"));
    }
    line(text, "");
    line(text, &format!("Not here: {ELSEWHERE}."));
}

/// The medians of a series in one cell: what a reader compares; the rest is on the terminal and in the JSON.
fn cell(row: &RowResult, series: &Series) -> String {
    let units = row.row.load.units();
    let figure = |metric| series.summary(metric).map(|summary| short(summary.median));
    let counted = |metric| figure(metric).filter(|count| count != "0");
    let mut parts = Vec::new();
    parts.extend(figure(Metric::Rate).map(|rate| format!("{rate} {}", units.rate)));
    parts.extend(figure(Metric::IdleKib).map(|size| format!("{size} KiB")));
    parts.extend(figure(Metric::ProcessCost).map(|cost| format!("{cost} {}", units.cost)));
    let shown = if row.row.load.is_one_at_a_time() { (Metric::P50, "p50") } else { (Metric::P99, "p99") };
    parts.extend(figure(shown.0).map(|latency| format!("{} {latency} us", shown.1)));
    parts.extend(figure(Metric::Added).map(|added| format!("{added} us added")));
    parts.extend(counted(Metric::Lost).map(|lost| format!("{lost} lost")));
    parts.extend(counted(Metric::Refused).map(|refused| format!("{refused} refused")));
    parts.extend(figure(Metric::Swaps).map(|swaps| format!("{swaps} tables/s")));
    if parts.is_empty() { "failed".to_owned() } else { parts.join(", ") }
}

fn ratios(row: &RowResult, ours: Entrant, theirs: Entrant) -> String {
    let ratio = |metric| {
        let (ours, theirs) = row.series.get(&ours).zip(row.series.get(&theirs))?;
        ours.ratio(theirs, metric).map(|ratio| format!("{:.2}x", ratio.median))
    };
    let single = row.row.load.is_one_at_a_time();
    let named = [
        ("rate", Metric::Rate, !single),
        ("CPU", Metric::ProcessCost, true),
        ("p50", Metric::P50, single),
        ("p99", Metric::P99, !single),
        ("p99.9", Metric::P999, row.row.is_of_scenes() && !single),
        ("added", Metric::Added, true),
        ("memory", Metric::IdleKib, true),
    ];
    let parts: Vec<_> = named
        .into_iter()
        .filter(|(_, _, shown)| *shown)
        .filter_map(|(name, metric, _)| ratio(metric).map(|ratio| format!("{name} {ratio}")))
        .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
