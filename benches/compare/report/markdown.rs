//! Tables of `benches/README.md`.

use super::{Circumstances, ratio, short};
use crate::entrant::{Entrant, Subject};
use crate::results::{Results, RowResult};
use crate::sample::{Metric, Series};
use crate::verdict::Verdict;

/// Columns of the table of rows, for subjects that took part.
const SUBJECTS: [(Subject, &str); 9] = [
    (Subject::Sheave, "Sheave"),
    (Subject::SheaveKernel, "kernel path"),
    (Subject::Haproxy, "HAProxy"),
    (Subject::Nginx, "nginx"),
    (Subject::Envoy, "Envoy"),
    (Subject::Direct, "routed"),
    (Subject::Tracked, "routed, tracked"),
    (Subject::KubeProxy, "kube-proxy's rules"),
    (Subject::Ipvs, "IPVS"),
];

/// Columns of ratios.
const PEERS: [(Subject, &str); 3] =
    [(Subject::Haproxy, "HAProxy"), (Subject::Nginx, "nginx"), (Subject::Envoy, "Envoy")];

/// All tables.
pub(crate) fn text(results: &Results, verdicts: &[Verdict], circumstances: &Circumstances) -> String {
    let mut text = String::new();
    let intro = format!(
        "{}; {}. Medians of all rounds; the second figure is the proxy's own CPU. Ratios are medians of the ratios of each \
         round, with their intervals.\n\n",
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

/// Table of rows that compare subjects, with a line for each number of workers.
fn compared(text: &mut String, results: &Results) {
    let rows: Vec<_> = results.rows.iter().filter(|row| !row.row.is_of_scenes()).collect();
    if rows.is_empty() {
        return;
    }
    let there = |(subject, _): &&(Subject, &str)| {
        rows.iter().any(|row| row.series.keys().any(|entrant| entrant.subject == *subject))
    };
    let columns: Vec<_> = SUBJECTS.iter().filter(there).collect();
    let peers: Vec<_> = PEERS.iter().filter(there).collect();
    let titles = columns.iter().map(|(_, title)| (*title).to_owned());
    let titles = titles.chain(peers.iter().map(|(_, title)| format!("Sheave / {title}")));
    line(text, &format!("| row | {} |", titles.collect::<Vec<_>>().join(" | ")));
    line(text, &format!("|{}", "---|".repeat(1 + columns.len() + peers.len())));
    for row in rows {
        for workers in results.workers.iter().copied() {
            let sheave = row.row.entrant(Subject::Sheave, workers);
            if !row.series.contains_key(&sheave) {
                continue;
            }
            let cells = columns.iter().map(|(subject, _)| {
                let series = row.series.get(&row.row.entrant(*subject, workers));
                series.map_or("-".to_owned(), |series| cell(row, series))
            });
            let ratios = peers.iter().map(|(peer, _)| ratios(row, sheave, row.row.entrant(*peer, workers)));
            let name = match workers {
                1 => row.row.name.to_owned(),
                _ => format!("{}, {workers} workers", row.row.name),
            };
            line(text, &format!("| {name} | {} |", cells.chain(ratios).collect::<Vec<_>>().join(" | ")));
        }
    }
    line(text, "");
}

/// Table of rows that compare Sheave with itself.
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
}

/// Medians of a series in one cell; the rest is on the terminal and in the JSON.
pub(super) fn cell(row: &RowResult, series: &Series) -> String {
    let units = row.row.load.units();
    let figure = |metric| series.summary(metric).map(|summary| short(summary.median));
    let counted = |metric| figure(metric).filter(|count| count != "0");
    let mut parts = Vec::new();
    parts.extend(figure(Metric::Rate).map(|rate| format!("{rate} {}", units.rate)));
    parts.extend(figure(Metric::IdleKib).map(|size| format!("{size} KiB")));
    parts.extend(figure(Metric::ProcessCost).map(|cost| format!("{cost} {}", units.cost)));
    for (metric, name) in latencies(row) {
        parts.extend(figure(*metric).map(|latency| format!("{name} {latency} us")));
    }
    parts.extend(figure(Metric::Added).map(|added| format!("{added} us added")));
    parts.extend(counted(Metric::Lost).map(|lost| format!("{lost} lost")));
    parts.extend(counted(Metric::Refused).map(|refused| format!("{refused} refused")));
    parts.extend(figure(Metric::Swaps).map(|swaps| format!("{swaps} tables/s")));
    parts.extend(figure(Metric::TimeWait).map(|ports| format!("{ports} ports in TIME_WAIT")));
    parts.extend(
        figure(Metric::OtherP50)
            .zip(figure(Metric::OtherSlowdown))
            .map(|(p50, times)| format!("another Service p50 {p50} us, {times}x of that without load")),
    );
    parts.extend(
        figure(Metric::Standstill)
            .zip(figure(Metric::StandstillBefore))
            .map(|(most, before)| format!("longest wait {most} ms, {before} ms before")),
    );
    if parts.is_empty() { "failed".to_owned() } else { parts.join(", ") }
}

/// Latencies that a row shows: the median if one connection measures the path, all if the rate is fixed, else the tail.
fn latencies(row: &RowResult) -> &'static [(Metric, &'static str)] {
    const ALL: [(Metric, &str); 3] = [(Metric::P50, "p50"), (Metric::P99, "p99"), (Metric::P999, "p99.9")];
    match row.row.open_loop {
        Some(_) => &ALL,
        None if row.row.load.is_one_at_a_time() => &ALL[..1],
        None => &ALL[1..2],
    }
}

/// Ratios of one series to another, with their intervals.
pub(super) fn ratios(row: &RowResult, ours: Entrant, theirs: Entrant) -> String {
    let Some((ours, theirs)) = row.series.get(&ours).zip(row.series.get(&theirs)) else {
        return "-".to_owned();
    };
    let closed = row.row.open_loop.is_none() && !row.row.load.is_one_at_a_time();
    let rate = closed.then_some((Metric::Rate, "rate"));
    let named = rate.into_iter().chain([(Metric::ProcessCost, "CPU")]).chain(latencies(row).iter().copied());
    let named = named.chain([(Metric::Added, "added"), (Metric::IdleKib, "memory")]);
    let parts: Vec<_> = named
        .filter_map(|(metric, name)| {
            ours.ratio(theirs, metric).map(|value| format!("{name} {}", ratio(value)))
        })
        .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
